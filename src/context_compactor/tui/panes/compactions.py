"""The compactions of a session: their reports, tokens over messages, and the last one as a diff."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static
from textual_plotext import PlotextPlot

from context_compactor.engine.report import Report
from context_compactor.json_values import json_text
from context_compactor.sessions.views import ContextDiff, DiffRow, DiffSide
from context_compactor.text import percent, short_count
from context_compactor.tui.formatting import safe_text, time_ago
from context_compactor.tui.screens.base import Pane, app_of, placeholder
from context_compactor.tui.screens.viewer import TextDocument, ViewerScreen
from context_compactor.tui.sources.base import CompactionLine, TextPiece, TokenPlot
from context_compactor.tui.widgets.row_list import Cell, Column, RowList

_MAX_REPORT = 60_000
_COLUMNS = (
    Column("Compaction", 17),
    Column("When", 11, min_list_width=100),
    Column("Why"),
    Column("Tokens", 20, right=True),
    Column("Saved", 7, right=True),
    Column("State", 7),
    Column("Readable", 9, right=True, min_list_width=110),
    Column("Failures kept", 13, right=True, min_list_width=120),
)


class CompactionsPane(Pane):
    """The list over the report of the one with the cursor."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._made: list[CompactionLine] = []

    def compose(self) -> ComposeResult:
        yield placeholder()
        yield RowList(_COLUMNS, id="compaction-rows")
        with VerticalScroll(id="report-scroll"):
            yield Static(id="report", markup=False)

    async def load(self) -> None:
        self._made = (await self.source.compactions(self.session_id))[::-1]
        now = app_of(self).now()
        self.query_one(RowList).show(self._made, lambda made: _compaction_row(made, now))
        self.say("" if self._made else "Nothing was compacted yet. It happens by itself when a level is reached.")
        self._show()

    @on(RowList.Moved)
    def _show(self) -> None:
        at = self.query_one(RowList).cursor
        shown = self.query_one("#report", Static)
        shown.update(report_text(self._made[at].report) if at < len(self._made) else "")
        self.query_one("#report-scroll").scroll_home(animate=False)

    @on(RowList.Selected)
    def _read(self) -> None:
        self.query_one("#report-scroll").focus()


def _compaction_row(made: CompactionLine, now: datetime) -> list[Cell]:
    report = made.report
    checked = report.fidelity.checked
    return [
        Cell(report.compaction_id),
        Cell(time_ago(made.created_at, now), "faint"),
        Cell(" ".join(filter(None, (report.trigger, report.level)))),
        Cell(f"{report.tokens_before:,} → {report.tokens_after:,}"),
        Cell(f"{report.reduction_percent:.0f} %"),
        Cell("" if made.is_active else "undone", "" if made.is_active else "failed"),
        Cell(percent(report.fidelity.retained / checked if checked else None)),
        Cell(percent(report.metrics.failures_share)),
    ]


def report_text(report: Report) -> Text:
    """A report under its fixed headings. What it quotes is shown as it is."""
    text = Text(f"{safe_text(report.short())}\n\n", style="bold")
    for line in safe_text(report.to_markdown())[:_MAX_REPORT].split("\n"):
        name, marked, value = line.removeprefix("**").partition("**: ")
        if marked and line.startswith("**"):
            text.append(f"{name}: ").append(f"{value}\n", style="not bold")
            continue
        is_heading = line.startswith("#")
        text.append(
            f"{line.lstrip('# ') if is_heading else line}\n", style="bold underline" if is_heading else "not bold"
        )
    return text


_MAX_MARKS = 40
_TICKS = 4


class PlotPane(Pane):
    """The plot, and in words what it shows."""

    def compose(self) -> ComposeResult:
        yield placeholder()
        yield PlotextPlot(id="series")
        yield Static(id="series-text", classes="why", markup=False)

    async def load(self) -> None:
        series = await self.source.plotted(self.session_id)
        self.say("" if series.points else "Nothing was said yet.")
        plot = self.query_one(PlotextPlot)
        plot.display = bool(series.points)
        if series.points:
            _draw_plot(plot, series)
        self.query_one("#series-text", Static).update(_plot_text(series))


def _draw_plot(plot: PlotextPlot, series: TokenPlot) -> None:
    plt = plot.plt
    plt.clear_figure()
    plt.plot([at for at, _ in series.points], [tokens for _, tokens in series.points], marker="braille")
    last = series.points[-1][0]
    for rule in series.levels[:1]:
        height = rule.threshold * series.budget_tokens
        plt.plot([series.points[0][0], last], [height, height], color="orange", marker="dot")
    marked = series.compactions[-_MAX_MARKS:]
    if marked:
        plt.scatter([made.message for made in marked], [made.after for made in marked], color="red", marker="x")
    first, most = series.points[0][0], max(series.budget_tokens, *(tokens for _, tokens in series.points))
    plt.ylim(0, most)
    heights = [float(round(most * step / _TICKS)) for step in range(_TICKS + 1)]
    plt.yticks(heights, [short_count(height) for height in heights])
    places = sorted({float(first + round((last - first) * step / _TICKS)) for step in range(_TICKS + 1)})
    plt.xticks(places, [f"{place:,.0f}" for place in places])
    plt.xlabel("messages")
    plt.title("tokens over messages")
    plot.refresh()


def _plot_text(series: TokenPlot) -> str:
    if not series.points:
        return ""
    made = f"{len(series.compactions):,} compactions (×)" if series.compactions else "no compaction yet"
    marks = ", ".join(f"{rule.level} at {int(rule.threshold * series.budget_tokens):,}" for rule in series.levels)
    how = "; where the compactions stand is estimated" if series.is_estimate and series.compactions else ""
    return f"{made} · {marks} (line) · budget {series.budget_tokens:,}{how}"


_MARKS = {"same": "=", "removed": "<", "added": ">", "changed": "|"}
_STYLES = {"same": "faint", "removed": "drop", "added": "keep", "changed": "summarize"}


class DiffPane(Pane):
    """A line for each message: `=` the same, `<` gone, `>` new, `|` changed."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._rows: tuple[DiffRow, ...] = ()

    def compose(self) -> ComposeResult:
        yield placeholder()
        yield Static(id="diff-words", classes="why", markup=False)
        yield RowList((Column("Before"), Column("", 1), Column("After")), id="diff-rows")

    async def load(self) -> None:
        status = await self.source.session(self.session_id)
        made = status.totals
        has_any = made.compactions > made.undone
        self.query_one(RowList).display = has_any
        self.say("" if has_any else "No compaction counts, so there is nothing to compare.")
        if not has_any:
            self._rows = ()
            self.query_one("#diff-words", Static).update("")
            return
        found = await self.source.diff(self.session_id)
        self._rows = found.rows
        self.query_one("#diff-words", Static).update(_diff_text(found))
        self.query_one(RowList).show(found.rows, _diff_row)

    @on(RowList.Selected)
    def _open(self, event: RowList.Selected) -> None:
        row = self._rows[event.at]
        pieces = [
            TextPiece(name, _message_text(side))
            for name, side in (("before", row.before), ("after", row.after))
            if side is not None
        ]
        self.app.push_screen(ViewerScreen(TextDocument(f"message {event.at + 1:,}, {row.change}", pieces)))


def _diff_text(found: ContextDiff) -> str:
    counts = ", ".join(f"{number:,} {name}" for name, number in found.counts().items() if number)
    (old, new), (before, after) = found.title, found.tokens
    return f"{old}: {before:,} tokens   {new}: {after:,} tokens   {counts}"


def _diff_row(row: DiffRow) -> list[Cell]:
    style = _STYLES[row.change]
    return [
        Cell(row.before.words if row.before else "", style),
        Cell(_MARKS[row.change], style),
        Cell(row.after.words if row.after else "", style),
    ]


def _message_text(side: DiffSide) -> str:
    """All that a message says; as JSON when that is no plain text."""
    content = side.raw.get("content")
    return content if isinstance(content, str) else json_text(side.raw)
