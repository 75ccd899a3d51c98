"""The context before and after the last compaction, side by side."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from context_compactor.messages.jsontext import json_text
from context_compactor.session.diff import ContextDiff, DiffRow, Side
from context_compactor.tui.reading import TextReading
from context_compactor.tui.screens.session_pane import Pane, note
from context_compactor.tui.screens.session_viewer import ViewerScreen
from context_compactor.tui.values import Piece
from context_compactor.tui.widgets.rows import Cell, Column, Row, RowList

_MARKS = {"same": "=", "removed": "<", "added": ">", "changed": "|"}
_STYLES = {"same": "faint", "removed": "drop", "added": "keep", "changed": "summarize"}


class ChangesPane(Pane):
    """A line for each message: `=` the same, `<` gone, `>` new, `|` changed."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._rows: tuple[DiffRow, ...] = ()

    def compose(self) -> ComposeResult:
        """Both sides of each message."""
        yield note()
        yield Static(id="diff-words", classes="why", markup=False)
        yield RowList((Column("Before"), Column("", 1), Column("After")), self._some, id="diff-rows")

    async def load(self) -> None:
        """Compare, unless there is nothing to compare."""
        standing = await self.source.session(self.session_id)
        made = standing.totals
        has_any = made.compactions > made.undone
        self.query_one(RowList).display = has_any
        self.say("" if has_any else "No compaction counts, so there is nothing to compare.")
        if not has_any:
            self._rows = ()
            self.query_one("#diff-words", Static).update("")
            return
        found = await self.source.diff(self.session_id)
        self._rows = found.rows
        self.query_one("#diff-words", Static).update(_words(found))
        self.query_one(RowList).forget(len(found.rows))

    def _some(self, first: int, count: int) -> list[Row]:
        return [_row(row) for row in self._rows[first : first + count]]

    @on(RowList.Chosen)
    def _open(self, event: RowList.Chosen) -> None:
        row = self._rows[event.at]
        pieces = [
            Piece(name, _written(side))
            for name, side in (("before", row.before), ("after", row.after))
            if side is not None
        ]
        self.app.push_screen(ViewerScreen(TextReading(f"message {event.at + 1:,}, {row.change}", pieces)))


def _words(found: ContextDiff) -> str:
    counts = ", ".join(f"{number:,} {name}" for name, number in found.counts().items() if number)
    (old, new), (before, after) = found.title, found.tokens
    return f"{old}: {before:,} tokens   {new}: {after:,} tokens   {counts}"


def _row(row: DiffRow) -> list[Cell]:
    style = _STYLES[row.change]
    return [
        Cell(row.before.words if row.before else "", style),
        Cell(_MARKS[row.change], style),
        Cell(row.after.words if row.after else "", style),
    ]


def _written(side: Side) -> str:
    """All that a message says; as JSON when that is no plain text."""
    content = side.raw.get("content")
    return content if isinstance(content, str) else json_text(side.raw)
