"""What the model is shown: the tokens of each section as bars, and every message of the context."""

from __future__ import annotations

import asyncio

from msgspec import structs
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from context_compactor.messages.detect import find_dialect
from context_compactor.messages.turn import Turn
from context_compactor.tui.reading import TextReading
from context_compactor.tui.screens.session_pane import Pane, note
from context_compactor.tui.screens.session_viewer import ViewerScreen
from context_compactor.tui.texts import gauge_bar
from context_compactor.tui.turn_lines import pieces_of
from context_compactor.tui.values import Piece, Raw, Standing
from context_compactor.tui.widgets.rows import Cell, Column, Row, RowList

_NAME, _BAR = 14, 30


class ContextPane(Pane):
    """The context by section."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._messages: list[list[Piece]] = []

    def compose(self) -> ComposeResult:
        """The bars over the messages."""
        yield note()
        yield Static(id="sections", markup=False)
        columns = (
            Column("Message", 8, right=True),
            Column("Role", 10),
            Column("Characters", 11, right=True),
            Column("Words"),
        )
        yield RowList(columns, self._some, id="context-rows")

    async def load(self) -> None:
        """Measure, and read what would be sent."""
        standing = await self.source.session(self.session_id)
        self.query_one("#sections", Static).update(_bars(standing))
        raws = await self.source.context(self.session_id)
        self._messages = await asyncio.to_thread(_read, raws)
        self.query_one(RowList).forget(len(self._messages))
        self.say("" if raws else "The context is empty: nothing was said yet.")

    def _some(self, first: int, count: int) -> list[Row]:
        return [_row(at, pieces) for at, pieces in enumerate(self._messages[first : first + count], first + 1)]

    @on(RowList.Chosen)
    def _open(self, event: RowList.Chosen) -> None:
        reading = TextReading(f"message {event.at + 1:,} of the context", self._messages[event.at])
        self.app.push_screen(ViewerScreen(reading))


def _bars(standing: Standing) -> Text:
    """A line for each section that holds anything, on one scale, and all of them together."""
    weights = {name: tokens for name, tokens in structs.asdict(standing.sections).items() if tokens}
    most = max(weights.values(), default=1)
    text = Text(no_wrap=True, overflow="crop")
    for name, tokens in weights.items():
        share = f"{100 * tokens / standing.budget_tokens:5.1f} %"
        bar = gauge_bar(tokens / most, _BAR).rstrip("░")
        text.append(f"{name.replace('_', ' '):<{_NAME}}{tokens:>10,} {share} {bar}\n")
    total = standing.sections.total
    share = f"{100 * total / standing.budget_tokens:5.1f} %"
    text.append(f"{'in all':<{_NAME}}{total:>10,} {share} of {standing.budget_tokens:,}", style="bold")
    margin = f"; the truth may be up to {100 * standing.margin:.1f} % higher" if standing.margin else ""
    text.append(f"  {standing.source}{margin}", style="dim")
    return text


def _read(raws: list[Raw]) -> list[list[Piece]]:
    if not raws:
        return []
    return [pieces_of(Turn(0, (message,))) for message in find_dialect("auto", raws).parse(raws)]


def _row(number: int, pieces: list[Piece]) -> list[Cell]:
    role = pieces[0].role if pieces else ""
    words = " · ".join(
        f"{piece.title}: {piece.text[:200]}" if piece.role != role else piece.text[:300] for piece in pieces[:3]
    )
    size = sum(len(piece.text) for piece in pieces)
    return [Cell(f"{number:,}", "faint"), Cell(role), Cell(f"{size:,}"), Cell(words)]
