"""The compactions of a session, the newest first, and the report of each."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from context_compactor.report import Report
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_pane import Pane, note
from context_compactor.tui.texts import long_ago, percent, safe
from context_compactor.tui.values import CompactionLine
from context_compactor.tui.widgets.rows import Cell, Column, Row, RowList

_LONGEST_REPORT = 60_000
_COLUMNS = (
    Column("Compaction", 17),
    Column("When", 11, from_width=100),
    Column("Why"),
    Column("Tokens", 20, right=True),
    Column("Saved", 7, right=True),
    Column("State", 7),
    Column("Readable", 9, right=True, from_width=110),
    Column("Failures kept", 13, right=True, from_width=120),
)


class CompactionsPane(Pane):
    """The list over the report of the one with the cursor."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._made: list[CompactionLine] = []

    def compose(self) -> ComposeResult:
        """The list and the report."""
        yield note()
        yield RowList(_COLUMNS, self._some, id="compaction-rows")
        with VerticalScroll(id="report-scroll"):
            yield Static(id="report", markup=False)

    async def load(self) -> None:
        """Read all reports."""
        self._made = (await self.source.compactions(self.session_id))[::-1]
        self.query_one(RowList).forget(len(self._made))
        self.say("" if self._made else "Nothing was compacted yet. It happens by itself when a level is reached.")
        self._show()

    def _some(self, first: int, count: int) -> list[Row]:
        now = app_of(self).now()
        return [_row(made, now) for made in self._made[first : first + count]]

    @on(RowList.Moved)
    def _show(self) -> None:
        at = self.query_one(RowList).cursor
        shown = self.query_one("#report", Static)
        shown.update(report_text(self._made[at].report) if at < len(self._made) else "")
        self.query_one("#report-scroll").scroll_home(animate=False)

    @on(RowList.Chosen)
    def _read(self) -> None:
        self.query_one("#report-scroll").focus()


def _row(made: CompactionLine, now: datetime) -> list[Cell]:
    report = made.report
    checked = report.fidelity.checked
    return [
        Cell(report.compaction_id),
        Cell(long_ago(made.created_at, now), "faint"),
        Cell(" ".join(filter(None, (report.trigger, report.level)))),
        Cell(f"{report.tokens_before:,} → {report.tokens_after:,}"),
        Cell(f"{report.reduction_percent:.0f} %"),
        Cell("" if made.is_active else "undone", "" if made.is_active else "failed"),
        Cell(percent(report.fidelity.retained / checked if checked else None)),
        Cell(percent(report.metrics.failures_share)),
    ]


def report_text(report: Report) -> Text:
    """A report under its fixed headings. What it quotes is shown as it is."""
    text = Text(f"{safe(report.short())}\n\n", style="bold")
    for line in safe(report.to_markdown())[:_LONGEST_REPORT].split("\n"):
        name, marked, value = line.removeprefix("**").partition("**: ")
        if marked and line.startswith("**"):
            text.append(f"{name}: ").append(f"{value}\n", style="not bold")
            continue
        is_heading = line.startswith("#")
        text.append(
            f"{line.lstrip('# ') if is_heading else line}\n", style="bold underline" if is_heading else "not bold"
        )
    return text
