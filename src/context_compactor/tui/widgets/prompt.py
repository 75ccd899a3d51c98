"""The line at the bottom of a session, for commands and for talking."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class Prompt(Input):
    """An input that posts `Submitted(text)` when there is something in it, and remembers what was entered."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "back", "Before", show=False),
        Binding("down", "forth", "After", show=False),
    ]

    class Submitted(Message):
        """Something was entered."""

        def __init__(self, prompt: Prompt, text: str) -> None:
            self.prompt, self.text = prompt, text
            super().__init__()

        @property
        def control(self) -> Prompt:
            """The prompt."""
            return self.prompt

    def __init__(self, *, placeholder: str = "", id: str | None = None) -> None:  # noqa: A002
        super().__init__(placeholder=placeholder, id=id, compact=True)
        self._entered: list[str] = []
        self._at = 0

    async def action_submit(self) -> None:
        """Post what was entered and begin anew."""
        text = self.value.strip()
        if not text:
            return
        if self._entered[-1:] != [text]:
            self._entered.append(text)
        self._at = len(self._entered)
        self.value = ""
        self.post_message(self.Submitted(self, text))

    def action_back(self) -> None:
        """What was entered before."""
        self._show(self._at - 1)

    def action_forth(self) -> None:
        """What was entered after that."""
        self._show(self._at + 1)

    def _show(self, at: int) -> None:
        self._at = min(max(at, 0), len(self._entered))
        self.value = self._entered[self._at] if self._at < len(self._entered) else ""
        self.cursor_position = len(self.value)
