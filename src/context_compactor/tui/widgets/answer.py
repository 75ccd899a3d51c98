"""The strip over the prompt that says what came of what was entered: what was told last, and before it what was."""

from __future__ import annotations

from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from context_compactor.tui.texts import cut_line, safe

Tone = Literal["", "done", "failed", "warning", "faint"]
_MOST = 200
"""Texts that are kept."""
_LONGEST = 20_000
"""Characters of one of them; what is longer belongs into the viewer."""


class Answer(Vertical):
    """What was told since something was last entered, a few lines of it at a time. What was told before is kept, and
    comes back into sight when one looks back.
    """

    def __init__(self) -> None:
        super().__init__(id="answer")
        self.display = False
        self.texts: list[str] = []
        """What was told, the newest last."""
        self._told = VerticalScroll(can_focus=False)
        self._progress = Static(id="progress", markup=False)
        self._progress.display = False

    def compose(self) -> ComposeResult:
        """What was told, over what goes on."""
        yield self._told
        yield self._progress

    def begin(self) -> None:
        """Something was entered: what was told until now is past."""
        for said in self._told.children:
            said.add_class("past")
        self.remove_class("back")
        self._told.display = False
        self._show()

    def tell(self, text: str, style: Tone = "") -> None:
        """Show a text. Nothing in it is markup, and nothing in it drives the terminal."""
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}\n… and {len(text) - _LONGEST:,} characters more"
        words = safe(text).rstrip("\n")
        self.texts = [*self.texts, words][-_MOST:]
        for old in list(self._told.children)[: max(len(self._told.children) - _MOST + 1, 0)]:
            old.remove()
        self._told.mount(Static(words, markup=False, classes=f"said {style}".rstrip()))
        self._told.display = True
        self._show()
        self._told.scroll_end(animate=False)

    def tell_progress(self, text: str) -> None:
        """Say in one line what goes on; nothing ends it."""
        self._progress.update(cut_line(text))
        self._progress.display = bool(text)
        self._show()

    def make_room(self, is_wanted: bool) -> None:
        """Leave what was told out of sight while its place is wanted for something else."""
        self._told.set_class(is_wanted, "shut")

    @property
    def is_open(self) -> bool:
        """Whether anything that was told is in sight."""
        return bool(self.display and self._told.display)

    def close(self) -> bool:
        """Take what was told out of sight; says whether there was any."""
        was_open = self.is_open
        self.begin()
        return was_open

    def look_back(self, by: int) -> None:
        """Pages up or down through everything that was told."""
        if not self.texts:
            return
        if not self.has_class("back"):
            self.add_class("back")
            self._told.display = True
            self._show()
            self._told.scroll_end(animate=False)
        self.call_after_refresh(self._told.scroll_page_up if by < 0 else self._told.scroll_page_down, animate=False)

    def _show(self) -> None:
        self.display = bool(self._told.display or self._progress.display)
