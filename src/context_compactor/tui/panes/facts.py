"""The facts of a session by kind, and a search over its archive."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, get_args

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from context_compactor.archive.search.passages import Hit
from context_compactor.facts.fact import Fact, FactKind, expand_kind
from context_compactor.tui.formatting import safe_text
from context_compactor.tui.screens.base import Pane, placeholder
from context_compactor.tui.screens.viewer import OriginalDocument, TextDocument, ViewerScreen
from context_compactor.tui.sources.base import TextPiece
from context_compactor.tui.widgets.row_list import Cell, Column, RowList

_FACT_COLUMNS = (
    Column("Kind", 12),
    Column("Turn", 6, right=True),
    Column("State", 11),
    Column("Fact"),
    Column("Source", 9, min_list_width=100),
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
        yield Static(id="fact-kinds", classes="why", markup=False)
        yield placeholder()
        yield RowList(_FACT_COLUMNS, id="fact-rows")

    async def load(self) -> None:
        """Read all facts; those of a kind are chosen here."""
        self._every = await self.source.facts(self.session_id)
        self._choose()

    def show_kind(self, kind: str | None) -> None:
        self.kind = kind
        self._choose()

    def action_kind(self, by: int) -> None:
        """Facts of the next kind that there are any of."""
        kinds = [None, *self._kinds()]
        at = kinds.index(self.kind) if self.kind in kinds else 0
        self.show_kind(kinds[(at + by) % len(kinds)])

    def action_original(self) -> None:
        rows = self.query_one(RowList)
        fact = self._shown[rows.cursor] if rows.cursor < len(self._shown) else None
        if fact is None or not fact.ref:
            self.notify("This fact names no original.", severity="warning", markup=False)
            return
        self.app.push_screen(ViewerScreen(OriginalDocument(self.source, self.session_id, fact.ref)))

    def _kinds(self) -> dict[str, int]:
        counts = Counter(fact.kind for fact in self._every)
        counts["error"] += counts["failure"] if counts["error"] else 0
        return {kind: counts[kind] for kind in get_args(FactKind) if counts[kind]}

    def _choose(self) -> None:
        kinds = expand_kind(self.kind) if self.kind else get_args(FactKind)
        self._shown = [fact for fact in self._every if fact.kind in kinds][::-1]
        self.query_one(RowList).show(self._shown, _fact_row)
        named = {"all": len(self._every), **self._kinds()}
        chosen = self.kind or "all"
        words = "  ".join(
            f"[{kind.replace('_', ' ')} {count:,}]" if kind == chosen else f"{kind.replace('_', ' ')} {count:,}"
            for kind, count in named.items()
        )
        self.query_one("#fact-kinds", Static).update(words)
        self.say("" if self._shown else "No facts yet. Decisions, failures and file states are noted as they are seen.")

    @on(RowList.Selected)
    def _open(self, event: RowList.Selected) -> None:
        fact = self._shown[event.at]
        said = [
            ("content", fact.content),
            ("detail", fact.detail),
            ("status", fact.status),
            ("first seen", fact.first_seen or ""),
            ("last seen", fact.last_seen or ""),
            ("source", fact.ref),
        ]
        pieces = [TextPiece(name, text) for name, text in said if text]
        self.app.push_screen(ViewerScreen(TextDocument(f"{fact.kind} of turn {fact.turn:,}", pieces)))


def _fact_row(fact: Fact) -> list[Cell]:
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


_MAX_HITS = 40
_MAX_SHOWN = 3_000
_MAX_QUESTION = 2_000


class SearchPane(Pane):
    """A question, its hits, and the lines of the one with the cursor."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._words = ""
        self._hits: list[Hit] = []

    def compose(self) -> ComposeResult:
        yield Input(placeholder="a question, a name, an error; Enter searches the archive", id="question", compact=True)
        yield placeholder()
        columns = (Column("Original", 10), Column("Kind", 14), Column("Lines", 13, right=True), Column("Text"))
        yield RowList(columns, id="hit-rows")
        yield Static(id="hit-text", classes="below", markup=False)

    def search(self, words: str) -> None:
        self._words = words.strip()[:_MAX_QUESTION]
        self.query_one("#question", Input).value = self._words
        self.reload()

    async def load(self) -> None:
        if not self._words:
            self.say("Only what has left the context is searched: that is what the archive holds.")
            return
        self.say("Searching…")
        self._hits = await self.source.search(self.session_id, self._words, _MAX_HITS)
        self.query_one(RowList).show(self._hits, _hit_row)
        self.say("" if self._hits else "Nothing in the archive answers that. Try: other words.")
        self._show()

    @on(Input.Submitted, "#question")
    def _ask(self, event: Input.Submitted) -> None:
        event.stop()
        self.search(event.value)
        self.query_one(RowList).focus()

    @on(RowList.Moved)
    def _show(self) -> None:
        at = self.query_one(RowList).cursor
        self.query_one("#hit-text", Static).update(
            safe_text(self._hits[at].text[:_MAX_SHOWN]) if at < len(self._hits) else ""
        )

    @on(RowList.Selected)
    def _open(self, event: RowList.Selected) -> None:
        self.app.push_screen(ViewerScreen(OriginalDocument(self.source, self.session_id, self._hits[event.at].id)))


def _hit_row(hit: Hit) -> list[Cell]:
    lines = f"{hit.first_line:,}–{hit.last_line:,}"
    return [Cell(hit.id, "reference"), Cell(hit.kind, "faint"), Cell(lines, "faint"), Cell(hit.text[:400])]
