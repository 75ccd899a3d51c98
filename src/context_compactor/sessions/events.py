"""How others learn what happened to a session: the event bus, its sinks, the project's JSON Lines log, and the desktop
notification."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from shutil import which
from threading import Lock, Thread, local
from typing import Any, Protocol, TextIO, cast, runtime_checkable

import msgspec
from msgspec import Struct, field

from context_compactor.engine.report import Report
from context_compactor.errors import BadSetting
from context_compactor.files import make_private_folder, one_writer, remove_scraps, write_atomically
from context_compactor.protocols import ServiceStore
from context_compactor.store.events import EVENT_TYPES, Event, EventType
from context_compactor.text import one_line

_LONGEST_ERROR = 500
# A sink may emit in answer to an event, and another one in answer to that; a longer chain is a loop.
_LONGEST_CHAIN = 4


@runtime_checkable
class Sink(Protocol):
    """Takes events. It may be called from several threads at once, and what it raises is counted, not passed on."""

    def write(self, event: Event) -> None:
        """Take one event; do not change it."""


@runtime_checkable
class TransactionalSink(Sink, Protocol):
    """A sink in the same database as the session: it can store an event in the transaction of what that reports."""

    def write_within(self, event: Event) -> None:
        """Take one event as a part of the transaction that is under way, or raise."""


class SinkFailure(Struct, frozen=True):
    """How often a sink failed, and what it said last."""

    sink: str
    count: int
    last_error: str


class _Subscription:
    def __init__(self, sink: Sink | Callable[[Event], None], types: frozenset[str], session_id: str | None) -> None:
        self.name = _name(sink)
        self.write = _writer(sink)
        self.write_within = sink.write_within if isinstance(sink, TransactionalSink) else None
        self.types = types
        self.session_id = session_id
        self.is_active = True

    def wants(self, event: Event) -> bool:
        return self.is_active and event.type in self.types and self.session_id in (None, event.session_id)


class _Emitting(local):
    """What one thread is delivering: the events that wait, how long their chain is, and to which sink."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Event, bool]] = deque()
        self.chain = 0
        self.sink = ""


class Bus:
    """Delivers each event to every sink that wants it, in the order they subscribed, before `emit` returns.

    An event that a sink emits while it writes waits until the current one has reached everybody.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._failures: dict[str, SinkFailure] = {}
        self._emitting = _Emitting()

    def subscribe(
        self,
        sink: Sink | Callable[[Event], None],
        types: Iterable[EventType] | None = None,
        session_id: str | None = None,
    ) -> Callable[[], None]:
        """Send this sink all events, or some types or those of one session. What is returned unsubscribes it again."""
        subscription = _Subscription(sink, _checked(types), session_id)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

        def unsubscribe() -> None:
            subscription.is_active = False
            with self._lock:
                self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

        return unsubscribe

    def write_within(self, event: Event) -> None:
        """Have an event stored in the transaction that is under way; what a sink raises is raised.

        When it is committed, `emit` it with `is_stored`, so that everybody else gets it.
        """
        for subscription in self._subscriptions:
            if subscription.write_within is not None and subscription.wants(event):
                subscription.write_within(event)

    def emit(self, event: Event, *, is_stored: bool = False) -> None:
        """Deliver an event. Never raises what a sink raised: see `failures`."""
        mine = self._emitting
        if mine.chain >= _LONGEST_CHAIN:
            self._note(mine.sink, f"{event.type} was not delivered: the sink answers its own events without end")
            return
        mine.waiting.append((mine.chain + 1, event, is_stored))
        if mine.chain == 0:
            self._deliver(mine)

    @property
    def failures(self) -> tuple[SinkFailure, ...]:
        """Sinks that failed since the bus was made, by name."""
        with self._lock:
            return tuple(self._failures.values())

    def _deliver(self, mine: _Emitting) -> None:
        try:
            while mine.waiting:
                mine.chain, event, is_stored = mine.waiting.popleft()
                for subscription in self._subscriptions:
                    if subscription.wants(event) and not (is_stored and subscription.write_within):
                        mine.sink = subscription.name
                        self._write(subscription, event)
        finally:
            mine.chain = 0
            mine.waiting.clear()

    def _write(self, subscription: _Subscription, event: Event) -> None:
        try:
            subscription.write(event)
        except Exception as problem:  # noqa: BLE001 - a sink is somebody else's code and must not stop a compaction
            from traceback import format_exception_only  # which prints what cannot be printed, too

            self._note(subscription.name, format_exception_only(problem)[-1].strip())

    def _note(self, sink: str, error: str) -> None:
        error = error[:_LONGEST_ERROR]
        with self._lock:
            count = self._failures[sink].count + 1 if sink in self._failures else 1
            self._failures[sink] = SinkFailure(sink, count, error)
        if count == 1:
            from logging import getLogger

            said = "events do not reach %s: %s (said once; `failures` of the bus counts on)"
            getLogger("context_compactor").warning(said, sink, error)


def _name(sink: object) -> str:
    named = getattr(sink, "name", None) or getattr(sink, "__qualname__", None)
    return named if isinstance(named, str) else type(sink).__qualname__


def _writer(sink: Sink | Callable[[Event], None]) -> Callable[[Event], None]:
    from inspect import iscoroutinefunction

    write = getattr(sink, "write", sink)
    if not callable(write) or iscoroutinefunction(write):
        raise BadSetting(
            f"sink: {sink!r} cannot receive events; pass a function that takes one event, or "
            "an object with a synchronous write(event)"
        )
    return cast("Callable[[Event], None]", write)


def _checked(types: Iterable[EventType] | None) -> frozenset[str]:
    if types is None:
        return frozenset(EVENT_TYPES)
    named = frozenset([types] if isinstance(types, str) else types)
    unknown = sorted(str(each) for each in named.difference(EVENT_TYPES))
    if unknown:
        raise BadSetting(f"types: {unknown[0]!r} is not an event type; known types: {', '.join(EVENT_TYPES)}")
    return named


LOG_FILE = Path(".compactor/logs/compaction.json")
KEPT = 100
_COMPACTED = "session.compacted"
_LONGEST_WAIT = 5.0
# A link is not followed: what it leads to is no log, and would be trimmed like one.
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class LogLine(Struct, frozen=True):
    """One line of the log. A line that another program wrote without an envelope has an empty `id`."""

    timestamp: str
    session_id: str
    event: str
    context_before: int = 0
    tool_calls: int = 0
    reason: str = ""
    id: str = ""
    type: str = ""
    created_at: str = ""
    payload: dict[str, Any] = field(default_factory=dict)


class JsonlSink:
    """Appends events to a log that holds at least the last `keep` of them and at most twice as many.

    Any number of programs may append to one log. A line is there whole or not at all, even when its writer is killed.
    """

    def __init__(self, path: str | os.PathLike[str] = LOG_FILE, keep: int = KEPT) -> None:
        if keep < 1:
            raise BadSetting(f"keep: {keep} is not a number of events; use 1 or more")
        self.path = Path(path)
        self.keep = keep
        self.name = f"JsonlSink {self.path}"
        self._known = (0, 0, 0)  # the file's inode, and how many of its bytes hold how many lines

    def write(self, event: Event) -> None:
        """Append one event. Raises when the log cannot be written, or another program keeps it for too long."""
        make_private_folder(self.path.parent)
        with one_writer(self.path.parent, wait_seconds=_LONGEST_WAIT):
            lines = self._append(msgspec.json.encode(_line(event)) + b"\n")
            if lines >= 2 * self.keep:
                whole = [line for line in self.path.read_bytes().splitlines(keepends=True) if _read(line)]
                self._rewrite(whole[-self.keep :])

    def _rewrite(self, lines: list[bytes]) -> None:
        remove_scraps(self.path.parent)
        write_atomically(self.path, b"".join(lines), private=True)

    def remove(self, session_id: str) -> None:
        """Take the lines of a session out of the log, and what is no line of a log with them."""
        if not self.path.is_file() or self.path.is_symlink():
            return
        with one_writer(self.path.parent, wait_seconds=_LONGEST_WAIT):
            lines = self.path.read_bytes().splitlines(keepends=True)
            kept = [line for line in lines if (read := _read(line)) and read.session_id != session_id]
            if kept != lines:
                self._rewrite(kept)

    def _append(self, line: bytes) -> int:
        descriptor = os.open(self.path, _FLAGS, 0o600)
        try:
            inode, size, lines = self._counted(descriptor)
            if size and _read_from(descriptor, size - 1) != b"\n":
                line = b"\n" + line  # somebody was killed in the middle of a line
            _write_whole(descriptor, line, size)
            self._known = (inode, size + len(line), lines + line.count(b"\n"))
            return self._known[2]
        finally:
            os.close(descriptor)

    def _counted(self, descriptor: int) -> tuple[int, int, int]:
        """What is known of the file now. Only what was added since the last time is read."""
        state = os.fstat(descriptor)
        inode, size, lines = self._known
        if state.st_ino != inode or state.st_size < size:
            size = lines = 0
        return state.st_ino, state.st_size, lines + _read_from(descriptor, size).count(b"\n")


def read_log(path: str | os.PathLike[str] = LOG_FILE, last: int = KEPT) -> list[LogLine]:
    """The newest lines of a log, oldest first; none when there is no log. What is not a line of a log is left out."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    return [line for line in map(_read, content.splitlines()) if line][-last:] if last > 0 else []


def _line(event: Event) -> LogLine:
    payload = event.payload
    return LogLine(
        timestamp=event.created_at,
        session_id=event.session_id,
        event="compaction" if event.type == _COMPACTED else event.type,
        context_before=_number(payload.get("tokens_before")),
        tool_calls=_number(payload.get("tool_calls")),
        reason=str(payload.get("trigger") or payload.get("reason") or ""),
        id=event.id,
        type=event.type,
        created_at=event.created_at,
        payload=payload,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _read(line: bytes) -> LogLine | None:
    try:
        return msgspec.json.decode(line, type=LogLine)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _read_from(descriptor: int, start: int) -> bytes:
    os.lseek(descriptor, start, os.SEEK_SET)
    pieces = iter(lambda: os.read(descriptor, 1 << 20), b"")
    return b"".join(pieces)


def _write_whole(descriptor: int, line: bytes, size: int) -> None:
    """Write all of a line or nothing of it."""
    rest = line
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        os.ftruncate(descriptor, size)
        raise


class ServiceStoreSink:
    """Writes each event to a service store, on the disk when it returns."""

    def __init__(self, service_store: ServiceStore) -> None:
        self._service_store = service_store

    def write(self, event: Event) -> None:
        """Store one event, and queue its deliveries to webhooks."""
        self._service_store.record_event(event)

    write_within = write
    """The same in the transaction of what the event reports: both are on the disk, or neither is."""


_TITLE = "Context Compactor"
_NOTICE_WIDTH = 160
_PROGRAM_SECONDS = 10
_APPLE = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
# Terminals that show a notice for OSC 9, and those that do for OSC 777. The others get a bell.
_OSC_9 = ("iTerm.app", "WezTerm", "ghostty", "kitty")
_OSC_777 = ("rxvt", "foot")


def notify(report: Report) -> None:
    """Notify whoever sits at this machine that a context was compacted, where that is possible."""
    if not report.changed or os.environ.get("CI"):
        return
    text = one_line(
        f"{report.session_id}: {report.tokens_before:,} → {report.tokens_after:,} tokens, "
        f"{report.reduction_percent:g} % less",
        _NOTICE_WIDTH,
    )
    try:
        command = desktop_command(text, os.environ)
        if command:
            _start_program(command)
        elif sys.stderr is not None and sys.stderr.isatty():
            notify_terminal(text, sys.stderr, os.environ)
    except (OSError, ValueError):  # a closed terminal, no room for a process: the compaction stands all the same
        return


def desktop_command(text: str, environ: Mapping[str, str]) -> list[str]:
    """The command that shows a notice on the desktop; empty where there is none."""
    if sys.platform == "darwin":
        program = which("osascript", path=environ.get("PATH"))
        script = [part for line in _APPLE for part in ("-e", line)]
        return [program, *script, _TITLE, text] if program and not environ.get("SSH_CONNECTION") else []
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return []
    program = which("notify-send", path=environ.get("PATH"))
    return [program, "--app-name", _TITLE, "--", _TITLE, text] if program else []


def notify_terminal(text: str, terminal: TextIO, environ: Mapping[str, str]) -> None:
    """A notice of the terminal itself, or its bell. A terminal inside another one is only rung."""
    terminal.write(_sequence(text, environ))
    terminal.flush()


def _sequence(text: str, environ: Mapping[str, str]) -> str:
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if environ.get("TMUX") or term.startswith(("screen", "tmux")):
        return "\a"
    if program in _OSC_9 or "kitty" in term:
        return f"\x1b]9;{_TITLE}: {text}\a"
    if environ.get("VTE_VERSION") or term.startswith(_OSC_777):
        return f"\x1b]777;notify;{_TITLE};{text.replace(';', ',')}\a"
    return "\a"


def _start_program(command: list[str]) -> None:
    """Start a program and do not wait for it; a thread does, so that nothing of it is left behind."""
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    Thread(target=_reap, args=(program,), name="notice", daemon=True).start()


def _reap(program: subprocess.Popen[bytes]) -> None:
    try:
        program.wait(_PROGRAM_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
