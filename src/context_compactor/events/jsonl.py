"""The log of a project: its newest events, one JSON object on each line.

A line is both: an entry of a compaction log (`timestamp`, `session_id`, `event`, `context_before`, `tool_calls`,
`reason`) and the whole envelope of the event (`id`, `type`, `session_id`, `created_at`, `payload`). `event` is
`compaction` for a compaction that was carried out, once each, and the type of the event for everything else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from context_compactor.errors import BadSetting
from context_compactor.events.event import Event
from context_compactor.files import make_private_folder, one_writer, remove_scraps, write_atomically

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
            raise BadSetting(f"keep: {keep} is not a number of events; give 1 or more")
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
                self._trim()

    def _trim(self) -> None:
        self._rewrite([line for line in self.path.read_bytes().splitlines(keepends=True) if _read(line)][-self.keep :])

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
