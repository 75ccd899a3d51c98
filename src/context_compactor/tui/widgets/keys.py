"""A line of what can be done here: each with its key and how it stands, and each can be clicked on."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from context_compactor.tui.texts import cut_line

_LONGEST = 24


class KeyHint(Struct, frozen=True):
    """A key, what it is for, and how that stands now."""

    key: str
    words: str
    state: str = ""


class KeyLine(Static):
    """Hints side by side. A click does what the key does. The key is in bold, so no colour is needed to tell it."""

    class Pressed(Message):
        """A hint was clicked on."""

        def __init__(self, key: str) -> None:
            self.key = key
            super().__init__()

    def show(self, hints: Sequence[KeyHint]) -> None:
        """Show these."""
        self.update(Content("  ").join([_hint(hint) for hint in hints]))

    def action_press(self, key: str) -> None:
        """What a click does."""
        self.post_message(self.Pressed(key))


def _hint(hint: KeyHint) -> Content:
    told = " ".join(filter(None, (hint.words, cut_line(hint.state, _LONGEST))))
    link = f"[@click=\"press('{hint.key}')\"]"
    return Content.from_markup(f"{link}[bold $text-accent]{hint.key}[/] $told[/]", told=told)
