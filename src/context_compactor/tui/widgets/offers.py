"""The list over the prompt that says how what is being written may go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from context_compactor.tui.texts import cut_line

_MOST = 300
_WIDEST = 34


class Offer(Struct, frozen=True):
    """One way to go on: what the prompt then holds, how that is shown, and what it means."""

    line: str
    shown: str
    words: str = ""


class Offers(OptionList, can_focus=False):
    """What may be chosen. Keys come from the prompt, clicks from anywhere. `make_room` hears if there is a list."""

    BINDINGS: ClassVar = []

    def __init__(self, make_room: Callable[[bool], None]) -> None:
        super().__init__(id="offers", compact=True, markup=False)
        self._make_room = make_room
        self.display = False
        self._offers: list[Offer] = []

    @property
    def is_open(self) -> bool:
        """Whether there is anything to choose."""
        return bool(self.display)

    @property
    def chosen(self) -> Offer | None:
        """The one with the cursor, if there is one."""
        at = self.highlighted
        return self._offers[at] if self.is_open and at is not None and at < len(self._offers) else None

    def offer(self, offers: Sequence[Offer], *, is_begun: bool) -> None:
        """Show these, or nothing. Where a word is begun, the first that fits it is chosen already."""
        self._offers = list(offers[:_MOST])
        self.clear_options()
        self._make_room(bool(self._offers))
        if not self._offers:
            self.display = False
            return
        width = min(max(len(offer.shown) for offer in self._offers), _WIDEST)
        self.add_options([_option(offer, width) for offer in self._offers])
        if len(offers) > _MOST:
            more = "… and more; go on writing"
            self.add_option(Option(Content.styled(more, "$text-muted"), disabled=True))
        self.display = True
        self.highlighted = 0 if is_begun else None
        self.scroll_home(animate=False)

    def close(self) -> bool:
        """Take the list away; says whether there was one."""
        was_open = self.is_open
        self.offer([], is_begun=False)
        return was_open

    def at(self, index: int) -> Offer | None:
        """The one on this line."""
        return self._offers[index] if 0 <= index < len(self._offers) else None

    def move(self, by: int) -> None:
        """The cursor to the next or the one before, around the ends."""
        count = len(self._offers)
        at = self.highlighted
        self.highlighted = (0 if by > 0 else count - 1) if at is None else (at + by) % count


def _option(offer: Offer, width: int) -> Option:
    shown = cut_line(offer.shown, _WIDEST)
    return Option(Content.assemble((f"{shown:<{width}}", "bold"), "  ", (cut_line(offer.words, 200), "$text-muted")))
