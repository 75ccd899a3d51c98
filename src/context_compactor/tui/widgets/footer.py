"""The line with the keys that do something now."""

from __future__ import annotations

from textual.screen import Screen
from textual.widgets import Footer


class KeysFooter(Footer):
    """Made anew when other keys do something, and only then: Textual would do so whenever the focus moves."""

    _shown: object = None
    _is_asked = False

    def bindings_changed(self, screen: Screen[object]) -> None:
        """Look soon whether there are other keys."""
        self._bindings_ready = True
        if screen.app.app_focus and not self._is_asked:
            self._is_asked = self.call_after_refresh(self._look)

    async def _look(self) -> None:
        self._is_asked = False
        if not self.is_attached:
            return
        keys = [(binding, enabled, tip) for _, binding, enabled, tip in self.screen.active_bindings.values()]
        if keys != self._shown and self.screen.is_current:
            self._shown = keys
            await self.recompose()
