"""Which panes one session has, and which commands its prompt knows. New ones are added here and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from context_compactor.tui.commands.chat import MODEL, RETRY, send_message
from context_compactor.tui.commands.command import Command
from context_compactor.tui.commands.compaction import COMPACT, PLAN, REDO, UNDO
from context_compactor.tui.commands.inspect import CONTEXT, FACTS, RECALL, RESTORE, SEARCH, SETTINGS
from context_compactor.tui.commands.session import CHECKPOINT, DELETE, EXPORT, HANDOFF, QUIT, SESSIONS, help_command
from context_compactor.tui.panes.chat import ChatPane
from context_compactor.tui.panes.compactions import CompactionsPane, DiffPane, PlotPane
from context_compactor.tui.panes.facts import FactsPane, SearchPane
from context_compactor.tui.panes.plan import PlanPane
from context_compactor.tui.panes.turns import ContextPane, TurnsPane
from context_compactor.tui.screens.base import Pane

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
    PaneSpec("diff", "Diff", DiffPane),
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
        help_command(lambda: COMMANDS),
        DELETE,
        SESSIONS,
        QUIT,
    )
}
"""By name, without the slash, in the order in which they are offered."""

TALK: list[Callable[[SessionScreen, str], Awaitable[None]]] = [send_message]
"""What is entered without a slash goes to the last of these."""
