"""What a terminal shows that is too small for anything else, until it is larger."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Static

SMALLEST = Size(40, 10)


def is_too_small(size: Size) -> bool:
    """Whether there is no room for a list and what stands around it."""
    return size.width < SMALLEST.width or size.height < SMALLEST.height


class SmallScreen(ModalScreen[None]):
    """Lies over everything and goes away by itself. What was begun goes on below."""

    def compose(self) -> ComposeResult:
        """How much room there is, and how much is needed."""
        yield Static(id="small", markup=False)

    def on_screen_resume(self) -> None:
        """It may have been under something while the terminal grew."""
        self._look(self.app.size)

    def on_resize(self, event: events.Resize) -> None:
        """Say so, or go."""
        self._look(event.size)

    def _look(self, size: Size) -> None:
        if is_too_small(size):
            need = f"{SMALLEST.width}x{SMALLEST.height}"
            self.query_one(Static).update(f"Too small: {size.width}x{size.height}. At least {need}, please. ^q quits")
        elif self.is_active:  # else it would take away what lies over it
            self.dismiss()
