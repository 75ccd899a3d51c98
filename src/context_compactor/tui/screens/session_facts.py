"""The facts of a session: what must outlive the text, by kind."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, get_args

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from context_compactor.facts.fact import Fact, FactKind, kinds_asked
from context_compactor.tui.reading import OriginalReading, TextReading
from context_compactor.tui.screens.session_pane import Pane, note
from context_compactor.tui.screens.session_viewer import ViewerScreen
from context_compactor.tui.values import Piece
from context_compactor.tui.widgets.rows import Cell, Column, Row, RowList

_COLUMNS = (
    Column("Kind", 12),
    Column("Turn", 6, right=True),
    Column("State", 11),
    Column("Fact"),
    Column("Source", 9, from_width=100),
)


class FactsPane(Pane):
    """All facts, or those of one kind, the newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "kind(1)", "Next kind"),
        Binding("F", "kind(-1)", "Kind before", show=False),
        Binding("o", "original", "Original"),
    ]

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._every: list[Fact] = []
        self._shown: list[Fact] = []
        self.kind: str | None = None

    def compose(self) -> ComposeResult:
        """The kinds over the facts."""
        yield Static(id="fact-kinds", classes="why", markup=False)
        yield note()
        yield RowList(_COLUMNS, self._some, id="fact-rows")

    async def load(self) -> None:
        """Read all facts; those of a kind are chosen here."""
        self._every = await self.source.facts(self.session_id)
        self._choose()

    def show_kind(self, kind: str | None) -> None:
        """Facts of one kind only, or all of them."""
        self.kind = kind
        self._choose()

    def action_kind(self, by: int) -> None:
        """Facts of the next kind that there are any of."""
        kinds = [None, *self._kinds()]
        at = kinds.index(self.kind) if self.kind in kinds else 0
        self.show_kind(kinds[(at + by) % len(kinds)])

    def action_original(self) -> None:
        """Read the original that the fact with the cursor is from."""
        rows = self.query_one(RowList)
        fact = self._shown[rows.cursor] if rows.cursor < len(self._shown) else None
        if fact is None or not fact.ref:
            self.notify("This fact names no original.", severity="warning", markup=False)
            return
        self.app.push_screen(ViewerScreen(OriginalReading(self.source, self.session_id, fact.ref)))

    def _kinds(self) -> dict[str, int]:
        counts = Counter(fact.kind for fact in self._every)
        counts["error"] += counts["failure"] if counts["error"] else 0
        return {kind: counts[kind] for kind in get_args(FactKind) if counts[kind]}

    def _choose(self) -> None:
        kinds = kinds_asked(self.kind) if self.kind else get_args(FactKind)
        self._shown = [fact for fact in self._every if fact.kind in kinds][::-1]
        self.query_one(RowList).forget(len(self._shown))
        named = {"all": len(self._every), **self._kinds()}
        chosen = self.kind or "all"
        words = "  ".join(
            f"[{kind.replace('_', ' ')} {count:,}]" if kind == chosen else f"{kind.replace('_', ' ')} {count:,}"
            for kind, count in named.items()
        )
        self.query_one("#fact-kinds", Static).update(words)
        self.say("" if self._shown else "No facts yet. Decisions, failures and file states are noted as they are seen.")

    def _some(self, first: int, count: int) -> list[Row]:
        return [_row(fact) for fact in self._shown[first : first + count]]

    @on(RowList.Chosen)
    def _open(self, event: RowList.Chosen) -> None:
        fact = self._shown[event.at]
        said = [
            ("content", fact.content),
            ("detail", fact.detail),
            ("status", fact.status),
            ("first seen", fact.first_seen or ""),
            ("last seen", fact.last_seen or ""),
            ("source", fact.ref),
        ]
        pieces = [Piece(name, text) for name, text in said if text]
        self.app.push_screen(ViewerScreen(TextReading(f"{fact.kind} of turn {fact.turn:,}", pieces)))


def _row(fact: Fact) -> list[Cell]:
    times = f" ×{fact.count}" if fact.count > 1 else ""
    words = " – ".join(filter(None, (fact.content, fact.detail)))
    style = "failed" if fact.kind in ("failure", "error") else ""
    return [
        Cell(fact.kind.replace("_", " "), style),
        Cell(f"{fact.turn:,}", "faint"),
        Cell(f"{fact.status}{times}", "faint"),
        Cell(words),
        Cell(fact.ref, "faint"),
    ]
