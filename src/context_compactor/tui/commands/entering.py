"""What becomes of what was entered: a command, or something said."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual.worker import WorkType

from context_compactor.errors import CompactorError
from context_compactor.tui.commands.command import Command, quoted
from context_compactor.tui.commands.offering import nearest
from context_compactor.tui.screens.live import app_of

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

Talk = Callable[["SessionScreen", str], Awaitable[None]]


def enter(screen: SessionScreen, text: str, commands: Mapping[str, Command], talk: Sequence[Talk]) -> bool:
    """Begin what was asked for; not so when something else is under way, and then nothing is begun."""
    if text == "?":
        app_of(screen).action_help()
        return True
    if not text.startswith("/") or text.startswith("//"):
        return _say(screen, text.removeprefix("/") if text.startswith("//") else text, talk)
    name, rest = re.split(r"\s+|$", text[1:], maxsplit=1)
    command = commands.get(name)
    if command is None:
        screen.tell(_unknown(name, commands), "warning")
        return True
    if not command.only_looks and not _is_free(screen):
        return False
    begin(screen, command, rest.strip())
    return True


def begin(screen: SessionScreen, command: Command, rest: str) -> None:
    """Run a command beside the screen, also when that is left meanwhile. What goes wrong is told."""

    async def run() -> None:
        try:
            await command.run(screen, rest)
        except CompactorError as error:
            screen.tell(f"{error}", "failed")

    group = "look" if command.only_looks else "command"
    work: WorkType[None] = run
    name, told = screen.session_id, f"/{command.name}"
    app_of(screen).run_worker(work, name=name, group=group, description=told, exit_on_error=False)


def _say(screen: SessionScreen, text: str, talk: Sequence[Talk]) -> bool:
    if not _is_free(screen):
        return False
    screen.attempt(lambda: talk[-1](screen, text), "talk")
    return True


def _is_free(screen: SessionScreen) -> bool:
    busy = app_of(screen).busy_with(screen)
    if busy:
        screen.tell(f"Not now: {busy} is under way. Try: again when it is done; Ctrl-C cancels it.", "warning")
    return not busy


def _unknown(name: str, commands: Mapping[str, Command]) -> str:
    near = nearest(name, commands)
    hint = f"; did you mean /{near[0]}?" if near else "; /help lists all of them."
    said = " To say it instead, begin with two slashes." if "/" in name else ""
    return f"{quoted('/' + name)} is no command{hint}{said}"
