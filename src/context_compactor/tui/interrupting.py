"""Ctrl-C: copy what is selected, cancel what is under way, empty what is being written, or leave."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from textual.widgets import Input, TextArea
from textual.worker import Worker

from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.typing_ahead import TypedAheadApp
from context_compactor.tui.widgets.prompt import Prompt

_LEAVE_SECONDS = 2.0
_GROUPS = ("command", "talk")


class InterruptedApp(TypedAheadApp):
    """An app that knows what is under way in its sessions, and ends it when asked to."""

    def __init__(self) -> None:
        super().__init__()
        self._asked_to_leave = -math.inf

    @property
    def is_leaving(self) -> bool:
        """Whether the app ends."""
        return self._exit

    def busy_with(self, screen: SessionScreen) -> str:
        """What is under way in a session, in words; empty when nothing is."""
        for worker in self._works(screen):
            return worker.description if worker.group == "command" else "the answer"
        return ""

    def action_interrupt(self) -> None:
        """One step of what Ctrl-C does."""
        if self._copy():
            return
        here = next((each for each in reversed(self.screen_stack) if isinstance(each, SessionScreen)), None)
        works = [worker for worker in self._works(here) if not worker.is_cancelled]
        for worker in works:
            worker.cancel()
        if not works and not self._empty():
            self._leave_at_the_second()

    def _works(self, screen: SessionScreen | None) -> Iterator[Worker[Any]]:
        """What is under way in a session, or anywhere when none is shown."""
        for worker in self.workers:
            is_here = screen is None or worker.name == screen.session_id or screen in worker.node.ancestors_with_self
            if is_here and worker.group in _GROUPS and not worker.is_finished:
                yield worker

    def _copy(self) -> bool:
        field = self.focused
        selected = field.selected_text if isinstance(field, (Input, TextArea)) else ""
        selected = selected or self.screen.get_selected_text() or ""
        if selected:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()  # so that the next one goes on
            if isinstance(field, TextArea):
                field.move_cursor(field.cursor_location)
            elif isinstance(field, Input):
                field.cursor_position = field.cursor_position
            self.notify(f"{len(selected):,} characters copied.", timeout=_LEAVE_SECONDS, markup=False)
        return bool(selected)

    def _empty(self) -> bool:
        """Empty the field that is written into, or the prompt of the screen; says whether there was anything."""
        field = self.focused
        if isinstance(field, Input) and field.value:
            field.value = ""
            return True
        return isinstance(self.screen, SessionScreen) and self.screen.query_one(Prompt).empty()

    def _leave_at_the_second(self) -> None:
        now = time.monotonic()
        if now - self._asked_to_leave < _LEAVE_SECONDS:
            self.exit()
        self._asked_to_leave = now
        self.notify("Ctrl-C again leaves.", timeout=_LEAVE_SECONDS, markup=False)
