"""The turns of the history with their tiers, and the context that the model is shown now."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec import structs
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static
from textual.worker import WorkType

from context_compactor.dialects.detection import likely_dialect
from context_compactor.dialects.turns import Turn
from context_compactor.errors import CompactorError
from context_compactor.tui.formatting import cut_line, gauge_bar
from context_compactor.tui.screens.base import Pane, app_of, placeholder
from context_compactor.tui.screens.viewer import TextDocument, ViewerScreen
from context_compactor.tui.sources.base import Raw, SessionStatus, TextPiece, TurnLine, TurnPage
from context_compactor.tui.sources.turns import turn_pieces
from context_compactor.tui.widgets.row_list import Cell, Column, RowList

_PAGE = 60
_TURN_COLUMNS = (
    Column("Turn", 9),
    Column("Tier", 9),
    Column("Tokens", 8, right=True),
    Column("Kind", 13, min_list_width=70),
    Column("Words"),
    Column("Why", min_list_width=110),
)


class TurnsPane(Pane):
    """All turns, the newest at the end, where one begins."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._lines: dict[int, TurnLine] = {}
        self._has_begun = False
        self._is_fetching = False

    def compose(self) -> ComposeResult:
        yield placeholder()
        yield RowList(_TURN_COLUMNS, id="turn-rows")
        yield Static(id="turn-why", classes="why", markup=False)

    @property
    def rows(self) -> RowList:
        return self.query_one("#turn-rows", RowList)

    @property
    def _is_at_end(self) -> bool:
        return not self._has_begun or self.rows.cursor >= self.rows.total - 1

    async def load(self) -> None:
        """Find out how many turns there are, step by step, and show those around the cursor anew."""
        while not (known := await self.source.turns(self.session_id, 0, 0)).is_all:
            self.say(f"{known.total:,} turns so far, and more are being read…")
        rows = self.rows
        first = max(known.total - _PAGE if self._is_at_end else rows.seen[0] - _PAGE // 3, 0)
        page = await self.source.turns(self.session_id, first, _PAGE)
        follows_end = self._is_at_end  # asked after the reading: whoever moved away meanwhile stays there
        self._lines.clear()
        rows.forget(page.total)
        if follows_end:
            rows.cursor = page.total - 1
        self._has_begun = self._has_begun or bool(page.total)
        self.say("" if page.total else "Nothing was said yet.")
        self._put(first, page)
        self._show_why()

    def _put(self, first: int, page: TurnPage) -> None:
        rows = self.rows
        rows.put(first, [_turn_row(line) for line in page.turns])
        self._lines.update((line.at, line) for line in page.turns)
        self._lines = {at: line for at, line in self._lines.items() if rows.at(at) is not None}

    @on(RowList.RowsRequested)
    def _want(self) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            work: WorkType[None] = self._fetch
            self.run_worker(work, group="rows", exit_on_error=False)

    async def _fetch(self) -> None:
        """Read what is seen now; what was passed by meanwhile is not asked for any more."""
        try:
            while (wanted := self.rows.missing()) is not None:
                page = await self.source.turns(self.session_id, *wanted)
                if not page.turns or page.total < self.rows.total:
                    return
                self._put(wanted[0], page)
                self._show_why()
        except CompactorError as error:
            app_of(self).show_error(error)
        finally:
            self._is_fetching = False

    @on(RowList.Moved)
    def _show_why(self) -> None:
        line = self._lines.get(self.rows.cursor)
        refs = f"  [{', '.join(line.refs)}]" if line and line.refs else ""
        self.query_one("#turn-why", Static).update(cut_line(f"{line.tier.value}: {line.reason}{refs}") if line else "")

    @on(RowList.Selected)
    def _open(self, event: RowList.Selected) -> None:
        line = self._lines.get(event.at)
        title = (line.ref or line.role) if line else f"turn at {event.at + 1}"
        read = partial(self.source.turn, self.session_id, event.at)
        self.app.push_screen(ViewerScreen(TextDocument(title, read=read)))


def _turn_row(line: TurnLine) -> list[Cell]:
    tier = line.tier.value
    return [
        Cell(line.ref or line.role, "faint"),
        Cell(tier, tier),
        Cell(f"{line.tokens:,}"),
        Cell(line.kind, "faint"),
        Cell(f"{line.role}: {line.words}", "strong" if line.role == "user" else ""),
        Cell(line.reason, "faint"),
    ]


_NAME_WIDTH, _BAR_WIDTH = 14, 30


class ContextPane(Pane):
    """The context by section."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._messages: list[list[TextPiece]] = []

    def compose(self) -> ComposeResult:
        yield placeholder()
        yield Static(id="sections", markup=False)
        columns = (
            Column("Message", 8, right=True),
            Column("Role", 10),
            Column("Characters", 11, right=True),
            Column("Words"),
        )
        yield RowList(columns, id="context-rows")

    async def load(self) -> None:
        status = await self.source.session(self.session_id)
        self.query_one("#sections", Static).update(_section_bars(status))
        raws = await self.source.context(self.session_id)
        self._messages = await asyncio.to_thread(_parse_messages, raws)
        self.query_one(RowList).show(list(enumerate(self._messages, 1)), _message_row)
        self.say("" if raws else "The context is empty: nothing was said yet.")

    @on(RowList.Selected)
    def _open(self, event: RowList.Selected) -> None:
        reading = TextDocument(f"message {event.at + 1:,} of the context", self._messages[event.at])
        self.app.push_screen(ViewerScreen(reading))


def _section_bars(status: SessionStatus) -> Text:
    """A line for each section that holds anything, on one scale, and all of them together."""
    weights = {name: tokens for name, tokens in structs.asdict(status.sections).items() if tokens}
    most = max(weights.values(), default=1)
    text = Text(no_wrap=True, overflow="crop")
    for name, tokens in weights.items():
        share = f"{100 * tokens / status.budget_tokens:5.1f} %"
        bar = gauge_bar(tokens / most, _BAR_WIDTH).rstrip("░")
        text.append(f"{name.replace('_', ' '):<{_NAME_WIDTH}}{tokens:>10,} {share} {bar}\n")
    total = status.sections.total
    share = f"{100 * total / status.budget_tokens:5.1f} %"
    text.append(f"{'in all':<{_NAME_WIDTH}}{total:>10,} {share} of {status.budget_tokens:,}", style="bold")
    margin = f"; the truth may be up to {100 * status.margin:.1f} % higher" if status.margin else ""
    text.append(f"  {status.source}{margin}", style="dim")
    return text


def _parse_messages(raws: list[Raw]) -> list[list[TextPiece]]:
    if not raws:
        return []
    return [turn_pieces(Turn(0, (message,))) for message in likely_dialect(raws).parse(raws)]


def _message_row(numbered: tuple[int, list[TextPiece]]) -> list[Cell]:
    number, pieces = numbered
    role = pieces[0].role if pieces else ""
    words = " · ".join(
        f"{piece.title}: {piece.text[:200]}" if piece.role != role else piece.text[:300] for piece in pieces[:3]
    )
    size = sum(len(piece.text) for piece in pieces)
    return [Cell(f"{number:,}", "faint"), Cell(role), Cell(f"{size:,}"), Cell(words)]
