"""How what stands in the prompt may go on: names of commands, and arguments where they are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from context_compactor.errors import CompactorError
from context_compactor.tui.commands.command import Command
from context_compactor.tui.widgets.offers import Offer

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen


async def offers_for(screen: SessionScreen, text: str, commands: Mapping[str, Command]) -> list[Offer]:
    """Every way to go on with a text that begins with a slash; what cannot be found out offers nothing."""
    name, blank, rest = text[1:].partition(" ")
    if not blank:
        return [commands[each].offer() for each in fitting(name, commands)]
    command = commands.get(name)
    if command is None or command.choices is None:
        return []
    try:
        choices = {choice.text: choice for choice in await command.choices(screen, rest)}
    except CompactorError:
        return []  # entering it says what is wrong
    before, last = _split(rest)
    return [
        Offer(f"/{name} {before}{each}", each, choices[each].words)
        for each in fitting(last, choices)
        if each != last or len(choices) > 1
    ]


def fitting(begun: str, names: Iterable[str]) -> list[str]:
    """The names that fit what was begun, those that begin with it first, each in the order they came in."""
    begun = begun.casefold()
    found = [(name, at) for name in names if (at := name.casefold().find(begun)) >= 0]
    return [name for name, at in found if not at] + [name for name, at in found if at]


def nearest(name: str, names: Iterable[str], count: int = 1) -> list[str]:
    """The names that are most like a wrong one."""
    known = list(names)
    near = get_close_matches(name, known, n=count, cutoff=0.5)
    return near or fitting(name, known)[:count] if name else near


def _split(rest: str) -> tuple[str, str]:
    cut = rest.rfind(" ") + 1
    return rest[:cut], rest[cut:]
