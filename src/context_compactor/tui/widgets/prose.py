"""A long text in Markdown that may still be growing: what no longer changes is drawn once."""

from __future__ import annotations

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from context_compactor.tui.markdown import open_fence, rendered, settled
from context_compactor.tui.texts import safe

_CHUNK, _LONGEST, _LONGEST_FENCE = 1_500, 4_000, 80
"""Characters that are drawn in one piece, about, and at most: a piece of code or a paragraph may be long."""


class Prose(Vertical):
    """Text that is read as Markdown. Nothing in it drives the terminal."""

    def __init__(self, text: str = "", classes: str = "") -> None:
        super().__init__(classes=f"prose {classes}".rstrip())
        self._raw = 0
        """How many characters were added."""
        self._open = ""
        """What may still be read differently."""
        self._last: Static | None = None
        self._first = text

    def on_mount(self) -> None:
        """Begin with what is there."""
        if self._first:
            self.add(self._first)

    @property
    def length(self) -> int:
        """How many characters it shows."""
        return self._raw

    def add(self, text: str) -> None:
        """Go on with some more."""
        self._raw += len(text)
        self._open += safe(text)
        while (at := _cut(self._open)) > 0:
            piece = self._open[:at]
            self._draw(piece)
            fence = open_fence(piece)
            self._open, self._last = (fence if len(fence) < _LONGEST_FENCE else "") + self._open[at:], None
        self._draw(self._open)

    def clear(self) -> None:
        """Begin anew."""
        self._raw, self._open, self._last = 0, "", None
        self.remove_children()

    def _draw(self, text: str) -> None:
        content = rendered(text) if text.strip() else Content("")
        if self._last is None:
            if not text.strip():
                return
            self._last = Static(content, classes="chunk")
            self.mount(self._last)
        else:
            self._last.update(content)


def _cut(text: str) -> int:
    """Where to end a piece; 0 while all of it is the last one."""
    end = settled(text)
    if end > _CHUNK:
        return settled(text[: text.find("\n\n", _CHUNK) + 3]) or end
    if len(text) <= _LONGEST:
        return 0
    line = text.rfind("\n", 1, _LONGEST)
    return line + 1 if line > len(open_fence(text)) else _LONGEST
