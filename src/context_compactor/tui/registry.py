"""Which panes one session has, and which commands its prompt knows. New ones are added here and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from context_compactor.tui.screens.session_changes import ChangesPane
from context_compactor.tui.screens.session_compactions import CompactionsPane
from context_compactor.tui.screens.session_context import ContextPane
from context_compactor.tui.screens.session_facts import FactsPane
from context_compactor.tui.screens.session_pane import Pane
from context_compactor.tui.screens.session_plot import PlotPane
from context_compactor.tui.screens.session_search import SearchPane
from context_compactor.tui.screens.session_turns import TurnsPane

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen


class PaneSpec(Struct, frozen=True):
    """A pane of a session: its id, the word on its tab, and what makes it."""

    id: str
    title: str
    make: Callable[[str], Pane]


PANES: list[PaneSpec] = [
    PaneSpec("turns", "Turns", TurnsPane),
    PaneSpec("context", "Context", ContextPane),
    PaneSpec("plot", "Plot", PlotPane),
    PaneSpec("compactions", "Compactions", CompactionsPane),
    PaneSpec("facts", "Facts", FactsPane),
    PaneSpec("search", "Search", SearchPane),
    PaneSpec("diff", "Diff", ChangesPane),
]
"""In the order of their tabs; the key of each is its number."""


class Command(Struct, frozen=True):
    """A command of the prompt: what is entered behind its name goes to `run`, which may take long and be cancelled."""

    name: str
    words: str
    """One line of help."""
    run: Callable[[SessionScreen, str], Awaitable[None]]
    arguments: str = ""
    """What may stand behind the name, such as `[focus]`."""


COMMANDS: dict[str, Command] = {}
"""By name, without the slash."""

TALK: list[Callable[[SessionScreen, str], Awaitable[None]]] = []
"""What is entered without a slash goes to the last of these."""
