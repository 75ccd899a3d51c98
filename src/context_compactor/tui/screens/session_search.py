"""A search over the archive of a session: lines of originals that answer a question."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, Static

from context_compactor.archive.search.hits import Hit
from context_compactor.tui.reading import OriginalReading
from context_compactor.tui.screens.session_pane import Pane, note
from context_compactor.tui.screens.session_viewer import ViewerScreen
from context_compactor.tui.texts import safe
from context_compactor.tui.widgets.rows import Cell, Column, Row, RowList

_HITS = 40
_LONGEST = 3_000
_LONGEST_QUESTION = 2_000


class SearchPane(Pane):
    """A question, its hits, and the lines of the one with the cursor."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._words = ""
        self._hits: list[Hit] = []

    def compose(self) -> ComposeResult:
        """The question over the hits over their lines."""
        yield Input(placeholder="a question, a name, an error; Enter searches the archive", id="question", compact=True)
        yield note()
        columns = (Column("Original", 10), Column("Kind", 14), Column("Lines", 13, right=True), Column("Text"))
        yield RowList(columns, self._some, id="hit-rows")
        yield Static(id="hit-text", classes="below", markup=False)

    def search(self, words: str) -> None:
        """Ask for something else."""
        self._words = words.strip()[:_LONGEST_QUESTION]
        self.query_one("#question", Input).value = self._words
        self.reload()

    async def load(self) -> None:
        """Search, if anything is asked."""
        if not self._words:
            self.say("Only what has left the context is searched: that is what the archive holds.")
            return
        self.say("Searching…")
        self._hits = await self.source.search(self.session_id, self._words, _HITS)
        self.query_one(RowList).forget(len(self._hits))
        self.say("" if self._hits else "Nothing in the archive answers that. Try: other words.")
        self._show()

    @on(Input.Submitted, "#question")
    def _ask(self, event: Input.Submitted) -> None:
        event.stop()
        self.search(event.value)
        self.query_one(RowList).focus()

    def _some(self, first: int, count: int) -> list[Row]:
        return [_row(hit) for hit in self._hits[first : first + count]]

    @on(RowList.Moved)
    def _show(self) -> None:
        at = self.query_one(RowList).cursor
        self.query_one("#hit-text", Static).update(safe(self._hits[at].text[:_LONGEST]) if at < len(self._hits) else "")

    @on(RowList.Chosen)
    def _open(self, event: RowList.Chosen) -> None:
        self.app.push_screen(ViewerScreen(OriginalReading(self.source, self.session_id, self._hits[event.at].id)))


def _row(hit: Hit) -> list[Cell]:
    lines = f"{hit.first_line:,}–{hit.last_line:,}"
    return [Cell(hit.id, "reference"), Cell(hit.kind, "faint"), Cell(lines, "faint"), Cell(hit.text[:400])]
