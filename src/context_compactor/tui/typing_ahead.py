"""Keys that come faster than they are followed: each goes to what the ones before it have led to.

Textual gives a key at once to what has the focus now. On a slow line, or while much is drawn, the keys of `/find this`
come together, and all but the first would go to the list that the slash is about to leave. So a key that may lead
elsewhere is waited for before the next is looked at. What is written into a field leads nowhere, and only waits to be
there before a key that may be about it, such as Ctrl-C, is looked at.
"""

from __future__ import annotations

import asyncio
from collections import deque

from textual import events
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, TextArea

from context_compactor.tui.surviving import SurvivingApp

_LOOK_SECONDS, _MOST_LOOKS = 0.1, 30
"""How often it is looked whether a key that is waited for can still come through, and how many times at most."""


class TypedAheadApp(SurvivingApp):
    """An app that takes keys one after the other."""

    class Followed(Message):
        """Goes the same way as a key, behind it: where this arrives, the key is through."""

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[events.Key | events.Paste] = deque()
        self._awaited: TypedAheadApp.Followed | None = None
        self._written_to: Widget | None = None

    async def on_event(self, event: events.Event) -> None:
        """Put what is typed in line; everything else is none of ours."""
        if not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if self._awaited is None:
            await self._take()

    async def _take(self) -> None:
        while self._typed and self._awaited is None and not self._closing:
            target = self.focused or self.screen
            is_text = _leads_nowhere(self._typed[0], target)
            if self._written_to is not None and not is_text:  # it may be about what is being written
                self._await(self._written_to)
                return
            await super().on_event(self._typed.popleft())
            if is_text:
                self._written_to = target
            else:
                self._await(target)

    def _await(self, target: Widget) -> None:
        self._written_to = None
        awaited = self._awaited = self.Followed()
        if target.post_message(awaited):
            self._check(awaited, target, _MOST_LOOKS)
        else:
            self._arrived(awaited)

    def _check(self, awaited: Followed, target: Widget, looks: int) -> None:
        """What went with the screen that it was sent to will never arrive."""
        if self._awaited is not awaited or self._closing:
            return
        if looks and target.is_attached and target.is_running and target.screen is self.screen:
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._check, awaited, target, looks - 1)
        else:
            self._arrived(awaited)

    def on_typed_ahead_app_followed(self, awaited: Followed) -> None:
        """The last key is through. What it asked for may still lie before us, so once around."""
        self.call_after_refresh(self._arrived, awaited)

    def _arrived(self, awaited: Followed) -> None:
        if self._awaited is awaited:
            self._awaited = None
            self.call_later(self._take)


def _leads_nowhere(event: events.Key | events.Paste, target: Widget) -> bool:
    is_text = isinstance(event, events.Paste) or event.is_printable
    return is_text and isinstance(target, (Input, TextArea))
