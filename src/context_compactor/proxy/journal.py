"""The journal of a proxy: one file for each exchange, written while it passes, until it is recorded as a session.

Whoever relays only appends bytes, and whoever records reads whole files later, in another process. A file that a
killed process has left is recorded by the next one: the request as it was sent, the reply if it was complete.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from context_compactor.files import make_private_folder

_log = logging.getLogger("context_compactor")
_OPEN, _DONE = ".open", ".done"
_LOCK = "lock"
# The parts of a file, each behind its kind and its length.
_REQUEST, _BODY, _REPLY, _CHUNK, _END = b"Q", b"B", b"R", b"C", b"E"
_PREFIX = 9
MOST_REPLY = 32 << 20
"""Bytes of a reply that are written down; one that is longer is passed on and not recorded."""
# A file that has ended the recorder so often is kept aside.
_MOST_TRIES = 3


class ExchangeRequest(Struct, frozen=True, kw_only=True):
    """What is kept of a request beside its body. Of its headers only those that `headers` names; never a key."""

    id: str
    at: str
    protocol: str
    path: str
    upstream: str
    scope: str
    credential: str
    headers: dict[str, str]
    mode: str
    kind: str = "main"


class ExchangeReply(Struct, frozen=True, kw_only=True):
    """How a reply began."""

    status: int
    content_type: str = ""
    content_encoding: str = ""


class ExchangeEnd(Struct, frozen=True, kw_only=True):
    """How an exchange ended: whether the client has got all of it, and how it was answered."""

    is_complete: bool
    milliseconds: int = 0
    kind: str = ""
    usage: dict[str, Any] | None = None
    """What the provider has reported for replies that the client has not got."""


class JournalExchange(Struct, frozen=True, kw_only=True):
    """An exchange as it was written down."""

    request: ExchangeRequest
    body: bytes
    reply: ExchangeReply | None = None
    content: bytes = b""
    end: ExchangeEnd | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the whole reply is here."""
        return self.reply is not None and self.end is not None and self.end.is_complete

    @property
    def kind(self) -> str:
        """What kind of request it was: as it was answered, else as it was asked."""
        return (self.end.kind if self.end else "") or self.request.kind


class ExchangeFile:
    """An exchange on its way into its file. A disk that fails ends the file, and never the exchange."""

    def __init__(self, folder: Path, request: ExchangeRequest, body: bytes) -> None:
        self.path = folder / f"{time.time_ns():020d}-{request.id}{_OPEN}"
        self.problem = ""
        self._file: BinaryIO | None = None
        self._began = time.monotonic()
        self._size = 0
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._file = os.fdopen(descriptor, "wb", buffering=0)
        except OSError as error:
            self._fail(error)
            return
        self._write(_REQUEST, msgspec.json.encode(request))
        self._write(_BODY, body)

    def begin_reply(self, reply: ExchangeReply) -> None:
        """Note how the reply begins. One that is begun again takes the place of the first."""
        self._size = 0
        self._write(_REPLY, msgspec.json.encode(reply))

    def add(self, chunk: bytes) -> None:
        """Note a part of the reply as the client gets it. Of one that is too long to be read again, nothing more."""
        self._size += len(chunk)
        if self._size <= MOST_REPLY:
            self._write(_CHUNK, chunk)

    def end(self, *, is_complete: bool, kind: str = "", usage: dict[str, Any] | None = None) -> Path | None:
        """Note the end, and give the file over to whoever records it; None when it could not be written."""
        took = round((time.monotonic() - self._began) * 1_000)
        is_complete = is_complete and self._size <= MOST_REPLY
        end = ExchangeEnd(is_complete=is_complete, milliseconds=took, kind=kind, usage=usage)
        self._write(_END, msgspec.json.encode(end))
        if self._file is None:
            return None
        self._file.close()
        self._file = None
        done = self.path.with_suffix(_DONE)
        try:
            self.path.rename(done)
        except OSError as error:
            self._fail(error)
            return None
        return done

    def _write(self, kind: bytes, content: bytes) -> None:
        if self._file is None:
            return
        try:
            view = memoryview(kind + len(content).to_bytes(8, "big") + content)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Give up on the file: half of an exchange is not worth the room where there is none."""
        self.problem = f"{self.path.parent}: {error.strerror or error}"
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class Journal:
    """The files of one proxy, in a folder of its own that it has locked. Folders of proxies that ended can be taken."""

    def __init__(self, root: Path) -> None:
        make_private_folder(root)
        self.root = root
        name = f"{time.time_ns():020d}-{token_hex(4)}"
        hidden = root / f".{name}"  # else somebody could take it for one that was left behind, before it is locked
        hidden.mkdir(mode=0o700)
        self._lock = _lock_folder(hidden)
        self.folder = hidden.rename(root / name)

    @property
    def locks(self) -> list[int]:
        """What keeps others from the folder, for a process that shall hold it too."""
        return [] if self._lock is None else [self._lock]

    def begin(self, request: ExchangeRequest, body: bytes) -> ExchangeFile:
        """A file for an exchange that begins now."""
        return ExchangeFile(self.folder, request, body)

    def close(self) -> None:
        """Leave the folder to others, and remove it when nothing is left in it."""
        if self._lock is not None:
            remove_folder(self.folder, self._lock)
            self._lock = None


def _lock_folder(folder: Path) -> int | None:
    """The lock of a folder, for as long as it is open; None when somebody else has it."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def finished(folder: Path) -> list[Path]:
    """The exchanges of a folder that wait to be recorded, in the order in which they began."""
    return sorted(folder.glob(f"*{_DONE}*"))


def claim(path: Path) -> Path | None:
    """Count a try to record a file, under a name that says so; None when it was tried too often and is set aside."""
    tries = int(path.suffix.removeprefix(_DONE) or 0)
    if tries >= _MOST_TRIES:
        set_aside(path)
        return None
    return path.rename(path.with_suffix(f"{_DONE}{tries + 1}"))


def set_aside(path: Path) -> Path:
    """Keep a file that cannot be recorded, under a name by which nobody takes it up again."""
    return path.rename(path.with_suffix(".failed"))


def opened(folder: Path) -> list[Path]:
    """The exchanges of a folder that are under way, in the order in which they began."""
    return sorted(folder.glob(f"*{_OPEN}"))


def finish_open(folder: Path) -> None:
    """Take the exchanges as ended that were under way when their proxy ended."""
    for path in opened(folder):
        path.rename(path.with_suffix(_DONE))


def left_behind(root: Path) -> Iterator[tuple[Path, int]]:
    """The folders of proxies that have ended without having recorded everything, each with its lock."""
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
        with suppress(OSError):
            lock = _lock_folder(folder)
            if lock is None:
                continue
            finish_open(folder)
            yield folder, lock


def remove_folder(folder: Path, lock: int) -> None:
    """Remove a folder in which nothing is left, and give its lock back."""
    with suppress(OSError):
        if not any(path.name != _LOCK for path in folder.iterdir()):
            (folder / _LOCK).unlink(missing_ok=True)
            folder.rmdir()
    os.close(lock)


def read_exchange(path: Path) -> JournalExchange | None:
    """An exchange from its file, as far as it was written; None where not even the request was."""
    content = path.read_bytes()
    found: dict[str, Any] = {}
    chunks: list[bytes] = []
    at = 0
    while at + _PREFIX <= len(content):
        kind, size = content[at : at + 1], int.from_bytes(content[at + 1 : at + _PREFIX], "big")
        part = content[at + _PREFIX : at + _PREFIX + size]
        at += _PREFIX + size
        if len(part) < size:
            break
        if kind == _REQUEST:
            found["request"] = msgspec.json.decode(part, type=ExchangeRequest)
        elif kind == _BODY:
            found["body"] = part
        elif kind == _REPLY:
            found["reply"], chunks = msgspec.json.decode(part, type=ExchangeReply), []
        elif kind == _CHUNK:
            chunks.append(part)
        elif kind == _END:
            found["end"] = msgspec.json.decode(part, type=ExchangeEnd)
    if "request" not in found or "body" not in found:
        return None
    return JournalExchange(**found, content=b"".join(chunks))
