"""One request, allowed and read: who asks, about which session, with what body and query."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from context_compactor.api import IDEMPOTENCY_KEY
from context_compactor.server.open_sessions import Opened
from context_compactor.server.problems import Refused
from context_compactor.server.scope import Scope
from context_compactor.server.service import Service
from context_compactor.session.session import Session

B = TypeVar("B")
Q = TypeVar("Q")
T = TypeVar("T")
S = TypeVar("S", bound=Struct)

_LONGEST_KEY = 200
_MOST_MEMBERS = 1_000
_UNPACKED_AT_ONCE = 64 * 1024
_GZIP = 31
"""What zlib calls its format."""
_DEEPEST = 200
_MOST_WITHIN = 250_000
_BRACKETS = b"[]{}"
_DOWN, _UP = b"\x01", b"\xff"
_STEPS = bytes.maketrans(_BRACKETS, (_DOWN + _UP) * 2)
_NEITHER = bytes(set(range(256)) - {*_BRACKETS, *b'"'})


class Asked(Struct, Generic[B, Q], frozen=True, kw_only=True):
    """A request as a verb sees it. `id` and `ref` are those of its address, `raw` is its body as it came."""

    service: Service
    scope: Scope
    body: B
    query: Q
    raw: bytes
    headers: Any
    id: str = ""
    ref: str = ""
    admitted: Callable[[], Scope] = Scope
    """Asks again whether the caller may: what is answered for long outlives a token."""

    @property
    def store_id(self) -> str:
        """The session's id in the store."""
        return self.scope.inside(self.id)

    @property
    def key(self) -> str:
        """The idempotency key, or "" when there is none."""
        key: str = self.headers.get(IDEMPOTENCY_KEY, "")
        if len(key) > _LONGEST_KEY or not key.isprintable():
            raise Refused(400, f"{IDEMPOTENCY_KEY}: a key has at most {_LONGEST_KEY} characters that can be printed.")
        return key

    async def session(self, work: Callable[[Session], T]) -> T:
        """Do something with the session."""
        return await self.service.in_session(self.store_id, lambda opened: work(opened.session()))

    async def opened(self, work: Callable[[Opened], T]) -> T:
        """Do something with the session and its inside."""

        def ready(opened: Opened) -> T:
            opened.session()
            return work(opened)

        return await self.service.in_session(self.store_id, ready)

    async def beside(self, work: Callable[[Session], T], *, can_cancel: bool = False) -> T:
        """Do something long with the session while messages can still be appended."""
        return await self.service.beside(self.store_id, work, can_cancel=can_cancel)


def unpack(raw: bytes, encoding: str, most: int) -> bytes:
    """A body without its Content-Encoding. What would have more than `most` bytes is not unpacked beyond them."""
    name = encoding.strip().lower()
    if name == "identity":
        return raw
    if name not in ("gzip", "x-gzip"):
        problem = f"The body's Content-Encoding is {encoding[:80]!r}. Try: gzip, or none."
        raise Refused(415, problem, {"Accept-Encoding": "gzip"})
    try:
        return b"".join(_members(memoryview(raw), most))
    except zlib.error as error:
        raise Refused(400, f"The body is not gzip, though its Content-Encoding says so: {error}.") from error


def _members(raw: memoryview, most: int) -> Iterator[bytes]:
    """What the members of a gzip stream hold, one behind the other. Zeros behind the last one only fill a block up."""
    at = members = size = 0
    while at < len(raw) and (not members or any(raw[at : at + _UNPACKED_AT_ONCE])):
        members += 1
        if members > _MOST_MEMBERS:
            raise Refused(400, f"The body's gzip has more than {_MOST_MEMBERS:,} members. Try: one.")
        unpacker = zlib.decompressobj(_GZIP)
        while not unpacker.eof:
            if at >= len(raw):
                raise zlib.error("it is cut off")
            piece = unpacker.decompress(raw[at : at + _UNPACKED_AT_ONCE], most - size + 1)
            at = min(at + _UNPACKED_AT_ONCE, len(raw))
            size += len(piece)
            if size > most:
                raise Refused(413, f"The body has more than {most:,} bytes when it is unpacked. Try: several requests.")
            yield piece
        at -= len(unpacker.unused_data)


def decode(raw: bytes, kind: type[S], content_type: str) -> S:
    """A body as its type. Whatever JSON can hold is taken, half a character and any whole number too."""
    if not raw:
        raw = b"{}"
    elif content_type.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, f"The body is {content_type[:80] or 'of no type'!r}. Try: Content-Type: application/json.")
    if raw.count(b"[") + raw.count(b"{") > _DEEPEST:
        _refuse_costly(raw)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(422, f"{error}. Try: /openapi.json says what is taken.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _convert(_odd_json(raw), kind)


def _refuse_costly(raw: bytes) -> None:
    """A list takes two bytes of a body and many more to read: how many there are is seen before any is read."""
    steps = _steps(raw)
    if steps.count(_DOWN) > _MOST_WITHIN:
        raise Refused(413, f"The body has more than {_MOST_WITHIN:,} lists and objects. Try: several requests.")
    if max(accumulate(memoryview(steps).cast("b")), default=0) > _DEEPEST:
        raise Refused(400, f"The body is nested more than {_DEEPEST} deep.")


def _steps(raw: bytes) -> bytes:
    """One byte, 1 or -1, for each list or object that begins or ends: the brackets of a JSON text outside quotes."""
    quoted = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_STEPS, _NEITHER)
    return b"".join(quoted.replace(b'""', b"").split(b'"')[::2])


def _odd_json(raw: bytes) -> Any:
    """What only Python's own reader takes: escapes of half a character."""
    try:
        return json.loads(raw, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise Refused(400, "The body is not JSON that can be read: it is too deep.") from error
    except ValueError as error:
        raise Refused(400, f"The body is not JSON: {error}.") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _convert(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refused(422, f"{error}. Try: /openapi.json says what is taken.") from error


def read_query(given: Any, kind: type[T]) -> T:
    """A query as its type; each name once."""
    values = {name: given.getall(name) for name in given}
    twice = next((name for name, many in values.items() if len(many) > 1), None)
    if twice is not None:
        raise Refused(422, f"{twice[:80]!r} is in the query more than once.")
    try:
        return msgspec.convert({name: many[0] for name, many in values.items()}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(422, f"{error}. Try: /openapi.json says what may be asked.") from error
