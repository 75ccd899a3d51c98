"""What the app runs on: errors it survives, keys typed ahead, and a terminal that is left as it was found."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

from rich.segment import Segment
from rich.traceback import Traceback
from textual import events
from textual.app import App
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Input, TextArea
from textual.worker import Worker, WorkerFailed, WorkerState

from context_compactor.agents.hook_log import append_log_line
from context_compactor.agents.paths import project_root
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.tui.formatting import cut_line, in_width

LOG_FILE = "logs/tui.jsonl"
_MAX_MESSAGE = 1_000
_MAX_TRACE = 20_000
_SETUP_EVENTS = (events.Load, events.Compose, events.Mount)
"""Without these nothing else can follow."""
_INPUT_EVENTS = (events.Key, events.Paste, events.MouseDown)
_MAX_ERRORS, _ERROR_WINDOW_SECONDS = 40, 10.0
"""So many errors in so many seconds, none of them after another key, are a loop."""
_REPEAT_SECONDS = 5.0
"""The same error is not shown again before that."""
_HUNG_UP, _HANGUP_CODE = ("EOFError", "OSError"), 129
_current_node: ContextVar[DOMNode] = ContextVar("current_node")
"""Whose message is handled, or whose timer or worker runs."""
_NOT_RENDERED = "This cannot be shown: something unexpected went wrong."


class ResilientApp(App[None]):
    """An app that lives on after an error in one of its parts.

    Textual has no public place for that. So methods of its own are overridden (those with `_` below): a version that
    calls them otherwise, or not at all, ends the app at the first error, and all else works as before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ending = ""
        """Why it had to end, in one line; empty unless it had to."""
        self.unexpected: deque[BaseException] = deque(maxlen=_MAX_ERRORS)
        """The last errors that nobody expected."""
        self.is_leaving = False
        """Whether the app ends."""
        self._since_input: deque[float] = deque(maxlen=_MAX_ERRORS)
        self._reported_at: dict[str, float] = {}
        self._has_started = False
        self._setup_error: Exception | None = None

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        self.is_leaving = True
        super().exit(result, return_code, message)

    # Where errors are caught

    async def _dispatch_message(self, message: Message) -> None:
        if isinstance(message, _INPUT_EVENTS):
            self._since_input.clear()
        await self._guard_dispatch(self, super()._dispatch_message, message)
        self._has_started = self._has_started or isinstance(message, events.Mount)

    def _register_child(self, parent: DOMNode, child: Widget, *args: Any, **more: Any) -> None:
        for name, guard in (
            ("_dispatch_message", partial(self._guard_dispatch, child)),
            ("render_lines", self._guard_lines),
            ("_render", self._guard_render),
        ):
            method = getattr(child, name, None)
            if method is not None and name not in vars(child):  # one that was taken away and put back is guarded
                vars(child)[name] = partial(guard, method)
        super()._register_child(parent, child, *args, **more)

    async def _guard_dispatch(
        self, node: DOMNode, dispatch: Callable[[Message], Awaitable[None]], message: Message
    ) -> None:
        _current_node.set(node)
        try:
            await dispatch(message)
        except Exception as error:
            if isinstance(message, _SETUP_EVENTS):
                self._setup_error = error
                raise
            self.report_unexpected(error)

    def _guard_lines(self, render_lines: Callable[[Region], list[Strip]], crop: Region) -> list[Strip]:
        try:
            return render_lines(crop)
        except Exception as error:  # noqa: BLE001  one part that cannot be drawn must not keep the others
            self.report_unexpected(error)
            lines = [_NOT_RENDERED if y == 0 else "" for y in range(crop.y, crop.bottom)]
            return [Strip([Segment(in_width(line, crop.width))], crop.width) for line in lines]

    def _guard_render(self, render: Callable[[], Visual]) -> Visual:
        try:
            return render()
        except Exception as error:  # noqa: BLE001  as above
            self.report_unexpected(error)
            return Content(_NOT_RENDERED)

    def _handle_exception(self, error: Exception) -> None:
        """What Textual ends an app with. Only a part that could not be set up is a reason to."""
        node = _current_node.get(None)
        is_set_up = not isinstance(node, Widget) or node.is_mounted
        if self._has_started and is_set_up and error is not self._setup_error:
            self.report_unexpected(error)
        else:
            self.end_with_error(error)

    def panic(self, *renderables: Any) -> None:
        """Textual's end when the terminal cannot be read. One that has hung up is left as at its signal."""
        found = [each.trace.stacks[0] for each in renderables if isinstance(each, Traceback)]
        if all(stack.exc_type in _HUNG_UP for stack in found):
            self.exit(return_code=self.return_code or _HANGUP_CODE)
        for stack in found:
            if stack.exc_type not in _HUNG_UP:
                self.end_with_error(RuntimeError(f"reading from the terminal: {stack.exc_type}: {stack.exc_value}"))

    # What becomes of them

    def report_unexpected(self, error: BaseException) -> None:
        """Show an error that nobody expected, and go on. What fails while the app ends is only logged."""
        if isinstance(error, WorkerFailed):
            error = error.error
        if self.is_leaving:
            log_error(error)
            return
        now = time.monotonic()
        self._since_input.append(now)
        is_loop = len(self._since_input) == _MAX_ERRORS and now - self._since_input[0] < _ERROR_WINDOW_SECONDS
        if is_loop or not (self._has_started and self.is_running):
            self.end_with_error(error)
            return
        self.unexpected.append(error)
        words = _error_text(error)
        if now - self._reported_at.get(words, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return
        recent = {text: at for text, at in self._reported_at.items() if now - at < _REPEAT_SECONDS}
        self._reported_at = recent | {words: now}
        self.notify(f"{words}. {_advice(error)}", title="Unexpected", severity="error", markup=False)

    def end_with_error(self, error: BaseException) -> None:
        """End, as cleanly as if somebody had asked for it, and say why when the terminal is as it was."""
        if not self.ending:
            self.unexpected.append(error)
            self.ending = f"the terminal UI had to end: {_error_text(error)}. {_advice(error)}"
        self.exit(return_code=1)

    def report_worker_error(self, event: Worker.StateChanged) -> None:
        """Say that some work ended in an error that is none of ours. Whoever begins work calls this."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.report_unexpected(event.worker.error)


def log_error(error: BaseException) -> str:
    """Keep where in the code an error was, in the log of the project; the path of that, or nothing if it failed."""
    trace = "".join(traceback.format_exception(error))[-_MAX_TRACE:]
    root = project_root("", os.environ)
    line: dict[str, object] = {"what": "unexpected", "error": _error_text(error), "trace": trace}
    written = append_log_line(root, LOG_FILE, line, _MAX_TRACE)
    return os.path.relpath(written) if written else ""


def _advice(error: BaseException) -> str:
    where = log_error(error)
    return f"Try: again; if it stays, please report it{f' with {where}' if where else ''}."


def _error_text(error: BaseException) -> str:
    return cut_line(f"{type(error).__name__}: {error}", _MAX_MESSAGE)


_CHECK_SECONDS, _MAX_CHECKS = 0.1, 30
"""How often it is looked whether a key that is waited for can still come through, and how many times at most."""


class KeyQueueApp(ResilientApp):
    """An app that takes keys one after the other."""

    class Delivered(Message):
        """Goes the same way as a key, behind it: where this arrives, the key is through."""

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[events.Key | events.Paste] = deque()
        self._awaited: KeyQueueApp.Delivered | None = None
        self._written_to: Widget | None = None

    async def on_event(self, event: events.Event) -> None:
        """Put what is typed in line; everything else is none of ours."""
        if not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if self._awaited is None:
            await self._send_next()

    async def _send_next(self) -> None:
        while self._typed and self._awaited is None and not self.is_leaving:
            target = self.focused or self.screen
            is_text = _is_plain_text(self._typed[0], target)
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
        awaited = self._awaited = self.Delivered()
        if target.post_message(awaited):
            self._check(awaited, target, _MAX_CHECKS)
        else:
            self._arrived(awaited)

    def _check(self, awaited: Delivered, target: Widget, looks: int) -> None:
        """What went with the screen that it was sent to will never arrive."""
        if self._awaited is not awaited or self.is_leaving:
            return
        if looks and target.is_attached and target.is_running and target.screen is self.screen:
            asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check, awaited, target, looks - 1)
        else:
            self._arrived(awaited)

    def on_key_queue_app_delivered(self, awaited: Delivered) -> None:
        """The last key is through. What it asked for may still lie before us, so once around."""
        self.call_after_refresh(self._arrived, awaited)

    def _arrived(self, awaited: Delivered) -> None:
        if self._awaited is awaited:
            self._awaited = None
            self.call_later(self._send_next)


def _is_plain_text(event: events.Key | events.Paste, target: Widget) -> bool:
    is_text = isinstance(event, events.Paste) or event.is_printable
    return is_text and isinstance(target, (Input, TextArea))


_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
_DUMB_TERMINALS = ("dumb", "unknown")
_JOIN_SECONDS, _EXIT_SECONDS = 1.0, 0.5


def check_terminal() -> None:
    """`BadSetting` with what to use instead, where nothing can be drawn."""
    instead = "Try: `compactor sessions` and `compactor show SESSION`"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # what is drawn goes beside the output
        raise BadSetting(f"tui: standard output is not a terminal. {instead}.")
    kind = os.environ.get("TERM", "")
    if kind in _DUMB_TERMINALS:
        raise BadSetting(f"tui: the terminal UI does not work with TERM={kind}. {instead}, or another TERM.")
    encoding = sys.stderr.encoding or ""
    if not encoding.lower().replace("-", "").startswith("utf"):
        raise BadSetting(
            f"tui: this terminal uses the encoding {encoding}, and the UI needs UTF-8. "
            "Try: LANG=C.UTF-8, or PYTHONUTF8=1."
        )


def run_app(app: ResilientApp) -> None:
    """Run until it is left. What it could not live with is a `CompactorError`, a signal an exit code above 128."""
    # Work that is asked for in the last moment is never begun, and need not be.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    before = set(threading.enumerate())
    asyncio.run(_run_until_exit(app))
    _leave_threads(set(threading.enumerate()) - before, app.return_code or 0)
    if app.ending:
        raise CompactorError(app.ending)
    if app.return_code:
        raise SystemExit(app.return_code)


async def _run_until_exit(app: ResilientApp) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_loop_error)
    for name in _SIGNALS:
        with suppress(AttributeError, NotImplementedError):  # not on every system
            number = getattr(signal, name)
            loop.add_signal_handler(number, app.exit, None, 128 + number)
    await app.run_async()


def _leave_threads(threads: set[threading.Thread], code: int) -> None:
    """All is closed, and the terminal is as it was. A thread that hears from a silent server is not waited for long:
    the program ends without it, once it has said what it has to say.
    """
    give_up = time.monotonic() + _JOIN_SECONDS
    for thread in threads:
        if not thread.daemon:
            thread.join(max(give_up - time.monotonic(), 0))
    if any(thread.is_alive() and not thread.daemon for thread in threads):
        end = threading.Timer(_EXIT_SECONDS, os._exit, (code,))
        end.daemon = True
        end.start()


def _log_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """What some work ended with that nobody waits for any more: not for the screen, but not lost."""
    error = context.get("exception")
    log_error(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message", ""))))
