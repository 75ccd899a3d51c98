"""`/help`, `/sessions`, `/delete` and `/quit`: how to find one's way, here and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from context_compactor.errors import BadSetting
from context_compactor.tui.commands.command import Choice, Command, nothing_behind, quoted
from context_compactor.tui.commands.offering import nearest
from context_compactor.tui.screens.delete_session import ask_and_delete
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.texts import cut_line

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

_LONGEST = 60


def help_for(commands: Callable[[], Mapping[str, Command]]) -> Command:
    """`/help`, which has to know all commands, itself among them."""

    async def run(screen: SessionScreen, rest: str) -> None:
        name = rest.removeprefix("/")
        if not name:
            app_of(screen).action_help()
            return
        command = commands().get(name)
        if command is None:
            near = nearest(name, commands())
            hint = f"Did you mean /{near[0]}?" if near else "Try: /help lists all of them."
            raise BadSetting(f"/help: {quoted('/' + name)} is no command. {hint}")
        screen.tell("\n".join(filter(None, (command.usage, command.words, command.more))))

    async def choices(_: SessionScreen, rest: str) -> Sequence[Choice]:
        known = commands().values()
        return [Choice(each.name, each.words) for each in known] if " " not in rest else []

    return Command("help", "Words, keys and commands, or one command.", run, "[command]", choices, only_looks=True)


async def sessions(screen: SessionScreen, rest: str) -> None:
    """Back to the list."""
    nothing_behind("sessions", rest)
    app_of(screen).show_sessions()


async def delete(screen: SessionScreen, rest: str) -> None:
    """Delete the session, if that is really wanted, and back to the list."""
    nothing_behind("delete", rest)
    app, session_id = app_of(screen), screen.session_id
    if await ask_and_delete(app, session_id):
        if app.screen_of(session_id) is not None:
            app.show_sessions()
        app.notify(f"{cut_line(session_id, _LONGEST)} is deleted.", markup=False)


async def leave(screen: SessionScreen, rest: str) -> None:
    """Out."""
    nothing_behind("quit", rest)
    app_of(screen).exit()


SESSIONS = Command("sessions", "Back to all sessions.", sessions, only_looks=True)
DELETE = Command("delete", "Delete this session for good; it is asked first.", delete)
QUIT = Command("quit", "Leave.", leave, only_looks=True)
