"""The turns of a session: each in a line with its tier, its tokens, what it is and why it is there or is not."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.widgets import Static
from textual.worker import WorkType

from context_compactor.errors import CompactorError
from context_compactor.tui.reading import TurnReading
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_pane import Pane, note
from context_compactor.tui.screens.session_viewer import ViewerScreen
from context_compactor.tui.texts import cut_line
from context_compactor.tui.values import TurnLine, TurnPage
from context_compactor.tui.widgets.rows import Cell, Column, RowList

_PAGE = 60
_COLUMNS = (
    Column("Turn", 9),
    Column("Tier", 9),
    Column("Tokens", 8, right=True),
    Column("Kind", 13, from_width=70),
    Column("Words"),
    Column("Why", from_width=110),
)


class TurnsPane(Pane):
    """All turns, the newest at the end, where one begins."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._lines: dict[int, TurnLine] = {}
        self._has_begun = False
        self._is_fetching = False

    def compose(self) -> ComposeResult:
        """The list, and why the turn with the cursor is what it is."""
        yield note()
        yield RowList(_COLUMNS, id="turn-rows")
        yield Static(id="turn-why", classes="why", markup=False)

    @property
    def rows(self) -> RowList:
        """The list."""
        return self.query_one("#turn-rows", RowList)

    async def load(self) -> None:
        """Find out how many turns there are, step by step, and show those around the cursor anew."""
        while not (known := await self.source.turns(self.session_id, 0, 0)).is_all:
            self.say(f"{known.total:,} turns so far, and more are being read…")
        rows = self.rows
        is_at_end = not self._has_begun or rows.cursor >= rows.total - 1
        first = max(known.total - _PAGE if is_at_end else rows.seen[0] - _PAGE // 3, 0)
        page = await self.source.turns(self.session_id, first, _PAGE)
        self._lines.clear()
        rows.forget(page.total)
        if is_at_end:
            rows.cursor = page.total - 1
        self._has_begun = self._has_begun or bool(page.total)
        self.say("" if page.total else "Nothing was said yet.")
        self._put(first, page)
        self._show_why()

    def _put(self, first: int, page: TurnPage) -> None:
        rows = self.rows
        rows.put(first, [_row(line) for line in page.turns])
        self._lines.update((line.at, line) for line in page.turns)
        self._lines = {at: line for at, line in self._lines.items() if rows.at(at) is not None}

    @on(RowList.Wanted)
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
            app_of(self).tell_error(error)
        finally:
            self._is_fetching = False

    @on(RowList.Moved)
    def _show_why(self) -> None:
        line = self._lines.get(self.rows.cursor)
        refs = f"  [{', '.join(line.refs)}]" if line and line.refs else ""
        self.query_one("#turn-why", Static).update(cut_line(f"{line.tier.value}: {line.reason}{refs}") if line else "")

    @on(RowList.Chosen)
    def _open(self, event: RowList.Chosen) -> None:
        line = self._lines.get(event.at)
        title = (line.ref or line.role) if line else f"turn at {event.at + 1}"
        self.app.push_screen(ViewerScreen(TurnReading(self.source, self.session_id, event.at, title)))


def _row(line: TurnLine) -> list[Cell]:
    tier = line.tier.value
    return [
        Cell(line.ref or line.role, "faint"),
        Cell(tier, tier),
        Cell(f"{line.tokens:,}"),
        Cell(line.kind, "faint"),
        Cell(f"{line.role}: {line.words}", "strong" if line.role == "user" else ""),
        Cell(line.reason, "faint"),
    ]
