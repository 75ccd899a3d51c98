"""A command of the prompt, as a value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from context_compactor.errors import BadSetting
from context_compactor.tui.texts import cut_line
from context_compactor.tui.widgets.offers import Offer

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

_LONGEST_SHOWN = 60


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
    only_looks: bool = False
    """Whether it changes nothing and takes no time, so that it may run while something else is under way."""

    @property
    def usage(self) -> str:
        """How it is entered."""
        return f"/{self.name} {self.arguments}".rstrip()

    def offer(self) -> Offer:
        """The command itself, to go on with."""
        return Offer(f"/{self.name} " if self.arguments else f"/{self.name}", self.usage, self.words)


def quoted(text: str) -> str:
    """What somebody has entered, in a message."""
    return repr(cut_line(text, _LONGEST_SHOWN))


def nothing_behind(name: str, rest: str) -> None:
    """Refuse arguments where there are none."""
    if rest:
        raise BadSetting(f"/{name} takes nothing, but {quoted(rest)} stands behind it. Try: /{name}.")
