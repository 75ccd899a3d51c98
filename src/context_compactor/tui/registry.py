"""Which panes one session has, and which commands its prompt knows. New ones are added here and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from context_compactor.tui.commands.command import Command
from context_compactor.tui.commands.compact import COMPACT, PLAN
from context_compactor.tui.commands.going_on import CHECKPOINT, EXPORT, HANDOFF
from context_compactor.tui.commands.leaving import DELETE, QUIT, SESSIONS, help_for
from context_compactor.tui.commands.looking import CONTEXT, FACTS, SEARCH, SETTINGS
from context_compactor.tui.commands.originals import RECALL, RESTORE
from context_compactor.tui.commands.talking import MODEL, RETRY
from context_compactor.tui.commands.undo import REDO, UNDO
from context_compactor.tui.screens.session_changes import ChangesPane
from context_compactor.tui.screens.session_chat import ChatPane
from context_compactor.tui.screens.session_compactions import CompactionsPane
from context_compactor.tui.screens.session_context import ContextPane
from context_compactor.tui.screens.session_facts import FactsPane
from context_compactor.tui.screens.session_pane import Pane
from context_compactor.tui.screens.session_plan import PlanPane
from context_compactor.tui.screens.session_plot import PlotPane
from context_compactor.tui.screens.session_search import SearchPane
from context_compactor.tui.screens.session_turns import TurnsPane
from context_compactor.tui.screens.talking import talk

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen


class PaneSpec(Struct, frozen=True):
    """A pane of a session: its id, the word on its tab, and what makes it."""

    id: str
    title: str
    make: Callable[[str], Pane]


PANES: list[PaneSpec] = [
    PaneSpec("turns", "Turns", TurnsPane),
    PaneSpec("plan", "Plan", PlanPane),
    PaneSpec("chat", "Chat", ChatPane),
    PaneSpec("context", "Context", ContextPane),
    PaneSpec("plot", "Plot", PlotPane),
    PaneSpec("compactions", "Compactions", CompactionsPane),
    PaneSpec("facts", "Facts", FactsPane),
    PaneSpec("search", "Search", SearchPane),
    PaneSpec("diff", "Diff", ChangesPane),
]
"""In the order of their tabs; the key of each is its number."""


COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        COMPACT,
        PLAN,
        UNDO,
        REDO,
        CONTEXT,
        RECALL,
        SEARCH,
        FACTS,
        CHECKPOINT,
        HANDOFF,
        RESTORE,
        MODEL,
        RETRY,
        SETTINGS,
        EXPORT,
        help_for(lambda: COMMANDS),
        DELETE,
        SESSIONS,
        QUIT,
    )
}
"""By name, without the slash, in the order in which they are offered."""

TALK: list[Callable[[SessionScreen, str], Awaitable[None]]] = [talk]
"""What is entered without a slash goes to the last of these."""
