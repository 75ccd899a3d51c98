"""The tabs of a session."""

from __future__ import annotations

from textual.widgets import TabbedContent, TabPane


class PaneTabs(TabbedContent):
    """Tabs that change when somebody chooses one, and only then.

    Textual's own go to the pane in which the focus was seen to move, however long ago that was: who presses the key of
    the next pane meanwhile would be brought back.
    """

    def _on_tab_pane_focused(self, event: TabPane.Focused) -> None:
        event.stop()
        event.prevent_default()
