"""What nobody expected: a message where the app can go on, and one line on the way out where it cannot.

Textual ends an app at the first error in any of its parts, and prints where in the code that was. Here every part is
given a net when it is registered: what goes wrong behind a key, a timer or a message is told, written to the log, and
over. What cannot be drawn says so in its place. Only a screen that cannot be made, and errors that come again and
again with nobody touching a key, end the app.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from rich.segment import Segment
from rich.traceback import Traceback
from textual import events
from textual._context import active_message_pump
from textual.app import App
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget
from textual.worker import Worker, WorkerFailed, WorkerState

from context_compactor.agents.diary import append_line
from context_compactor.agents.places import project_root
from context_compactor.tui.texts import cut_line, in_width

LOG_FILE = "logs/tui.jsonl"
_LONGEST = 1_000
_LONGEST_TRACE = 20_000
_FIRST = (events.Load, events.Compose, events.Mount)
"""Without these nothing else can follow."""
_TOUCHES = (events.Key, events.Paste, events.MouseDown)
_MOST, _SECONDS = 40, 10.0
"""So many errors in so many seconds, none of them after another key, are a loop."""
_AGAIN_SECONDS = 5.0
"""The same error is not told again before that."""
_HUNG_UP, _HANGUP_CODE = ("EOFError", "OSError"), 129
_NOT_DRAWN = "This cannot be shown: something unexpected went wrong."


class SurvivingApp(App[None]):
    """An app that lives on."""

    def __init__(self) -> None:
        super().__init__()
        self.ending = ""
        """Why it had to end, in one line; empty unless it had to."""
        self.unexpected: deque[BaseException] = deque(maxlen=_MOST)
        """The last errors that nobody expected."""
        self._since_touch: deque[float] = deque(maxlen=_MOST)
        self._told_at: dict[str, float] = {}
        self._is_living = False

    # Nets

    async def _process_messages_loop(self) -> None:
        self._is_living = True
        try:
            await super()._process_messages_loop()
        finally:
            self._is_living = False

    async def _dispatch_message(self, message: Message) -> None:
        if isinstance(message, _TOUCHES):
            self._since_touch.clear()
        await self._survive(super()._dispatch_message, message)

    def _register_child(self, parent: DOMNode, child: Widget, before: int | None, after: int | None) -> None:
        if "_dispatch_message" not in vars(child):  # one that was taken away and put back has its net
            dispatch, draw, look = child._dispatch_message, child.render_lines, child._render
            vars(child).update(
                _dispatch_message=lambda message: self._survive(dispatch, message),
                render_lines=lambda crop: self._draw(draw, crop),
                _render=lambda: self._look(look),
            )
        super()._register_child(parent, child, before, after)

    async def _survive(self, dispatch: Callable[[Message], Awaitable[None]], message: Message) -> None:
        try:
            await dispatch(message)
        except Exception as error:
            if isinstance(message, _FIRST):
                raise
            self.meet(error)

    def _draw(self, draw: Callable[[Region], list[Strip]], crop: Region) -> list[Strip]:
        try:
            return draw(crop)
        except Exception as error:  # noqa: BLE001  one part that cannot be drawn must not keep the others
            self.meet(error)
            lines = [_NOT_DRAWN if y == 0 else "" for y in range(crop.y, crop.bottom)]
            return [Strip([Segment(in_width(line, crop.width))], crop.width) for line in lines]

    def _look(self, look: Callable[[], Visual]) -> Visual:
        try:
            return look()
        except Exception as error:  # noqa: BLE001  as above
            self.meet(error)
            return Content(_NOT_DRAWN)

    def _handle_exception(self, error: Exception) -> None:
        """Textual's own end of everything. What had its turn already and is only called again lives on."""
        pump = active_message_pump.get(self)
        if self._is_living and pump._is_mounted:
            self.meet(error)
        else:
            self.leave(error)

    def panic(self, *renderables: Any) -> None:
        """Textual's other end: the terminal cannot be read. One that has hung up is left as at its signal."""
        found = [each.trace.stacks[0] for each in renderables if isinstance(each, Traceback)]
        if all(stack.exc_type in _HUNG_UP for stack in found):
            self.exit(return_code=self.return_code or _HANGUP_CODE)
        for stack in found:
            if stack.exc_type not in _HUNG_UP:
                self.leave(RuntimeError(f"reading from the terminal: {stack.exc_type}: {stack.exc_value}"))

    # Telling

    def meet(self, error: BaseException) -> None:
        """Tell an error that nobody expected, and go on. What fails while all is taken apart is only written down."""
        if isinstance(error, WorkerFailed):
            error = error.error
        if self._exit:
            write_down(error)
            return
        now = time.monotonic()
        self.unexpected.append(error)
        self._since_touch.append(now)
        is_loop = len(self._since_touch) == _MOST and now - self._since_touch[0] < _SECONDS
        if is_loop or self._closing or not self._is_living:
            self.leave(error)
            return
        words = _words(error)
        if now - self._told_at.get(words, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
            return
        self._told_at = {told: at for told, at in self._told_at.items() if now - at < _AGAIN_SECONDS} | {words: now}
        where = write_down(error)
        report = f"report it with {where}" if where else "report it"
        message = f"{words}. Try: again; if it stays, please {report}."
        self.notify(message, title="Unexpected", severity="error", markup=False)

    def leave(self, error: BaseException) -> None:
        """End, as cleanly as if somebody had asked for it, and say why when the terminal is as it was."""
        self._return_code = 1
        if not self.ending:
            where = write_down(error)
            report = f"report it with {where}" if where else "report it"
            self.ending = f"the terminal UI had to end: {_words(error)}. Try: again; if it stays, please {report}."
            if isinstance(error, Exception):  # whoever drives the app in a test is given it
                self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()

    def tell_unexpected(self, event: Worker.StateChanged) -> None:
        """Say that some work ended in an error that is none of ours. Whoever begins work calls this."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.meet(event.worker.error)


def write_down(error: BaseException) -> str:
    """Keep where in the code an error was, in the log of the project; the path of that, or nothing if it failed."""
    trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]
    root = project_root("", os.environ)
    line: dict[str, object] = {"what": "unexpected", "error": _words(error), "trace": trace}
    written = append_line(root, LOG_FILE, line, _LONGEST_TRACE)
    return os.path.relpath(written) if written else ""


def _words(error: BaseException) -> str:
    return cut_line(f"{type(error).__name__}: {error}", _LONGEST)
