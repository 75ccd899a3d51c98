"""A command of the prompt as a value, and the completions of what is being entered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import Struct

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.tui.formatting import cut_line
from context_compactor.tui.widgets.prompt import Completion

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen


_MAX_QUOTED = 60


class Choice(Struct, frozen=True):
    """Something that may stand behind the name of a command, and what it means."""

    text: str
    words: str = ""


class Command(Struct, frozen=True):
    """A command of the prompt: what is entered behind its name goes to `run`, which may take long and be cancelled.

    Bad arguments are a `BadSetting`; then nothing was changed.
    """

    name: str
    words: str
    """One line of help."""
    run: Callable[[SessionScreen, str], Awaitable[None]]
    arguments: str = ""
    """What may stand behind the name, such as `[focus]`."""
    choices: Callable[[SessionScreen, str], Awaitable[Sequence[Choice]]] | None = None
    """What may stand in the place of the last word of these arguments."""
    more: str = ""
    """What else `/help` says of it."""
    is_read_only: bool = False
    """Whether it changes nothing and takes no time, so that it may run while something else is under way."""

    @property
    def usage(self) -> str:
        """How it is entered."""
        return f"/{self.name} {self.arguments}".rstrip()

    def offer(self) -> Completion:
        """The command itself, to go on with."""
        return Completion(f"/{self.name} " if self.arguments else f"/{self.name}", self.usage, self.words)


def quoted(text: str) -> str:
    """What somebody has entered, in a message."""
    return repr(cut_line(text, _MAX_QUOTED))


def refuse_arguments(name: str, rest: str) -> None:
    """Refuse arguments where there are none."""
    if rest:
        raise BadSetting(f"/{name} takes nothing, but {quoted(rest)} stands behind it. Try: /{name}.")


async def completions_for(screen: SessionScreen, text: str, commands: Mapping[str, Command]) -> list[Completion]:
    """Every way to go on with a text that begins with a slash; what cannot be found out offers nothing."""
    name, blank, rest = text[1:].partition(" ")
    if not blank:
        return [commands[each].offer() for each in matching(name, commands)]
    command = commands.get(name)
    if command is None or command.choices is None:
        return []
    try:
        choices = {choice.text: choice for choice in await command.choices(screen, rest)}
    except CompactorError:
        return []  # entering it says what is wrong
    before, last = _split(rest)
    return [
        Completion(f"/{name} {before}{each}", each, choices[each].words)
        for each in matching(last, choices)
        if each != last or len(choices) > 1
    ]


def matching(begun: str, names: Iterable[str]) -> list[str]:
    """The names that fit what was begun, those that begin with it first, each in the order they came in."""
    begun = begun.casefold()
    found = [(name, at) for name in names if (at := name.casefold().find(begun)) >= 0]
    return [name for name, at in found if not at] + [name for name, at in found if at]


def nearest(name: str, names: Iterable[str], count: int = 1) -> list[str]:
    """The names that are most like a wrong one."""
    known = list(names)
    near = get_close_matches(name, known, n=count, cutoff=0.5)
    return near or matching(name, known)[:count] if name else near


def did_you_mean(name: str, names: Iterable[str], otherwise: str, prefix: str = "") -> str:
    """The name that is most like a wrong one, or what to try instead."""
    near = nearest(name, names)
    return f"Did you mean {prefix}{near[0]}?" if near else otherwise


def _split(rest: str) -> tuple[str, str]:
    cut = rest.rfind(" ") + 1
    return rest[:cut], rest[cut:]
