"""The request that every handler is given, who handles which verb, and reading bodies and queries with limits."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate
from typing import Any, Generic, TypeVar

import msgspec
from litestar.response.base import ASGIResponse
from msgspec import Struct

from context_compactor.server.open_sessions import SessionHandle
from context_compactor.server.problems import RequestRefused
from context_compactor.server.responses import JsonResponse
from context_compactor.server.service import Service
from context_compactor.server.tokens import Scope
from context_compactor.sessions.schemas import IDEMPOTENCY_KEY
from context_compactor.sessions.session import Session
from context_compactor.sessions.verbs import AnyVerb, Verb

Q = TypeVar("Q", bound=Struct)
A = TypeVar("A")
T = TypeVar("T")

_KEY = re.compile(r"[ -~]{1,200}")
_MAX_GZIP_MEMBERS = 1_000
_GUNZIP_CHUNK = 64 * 1024
_GZIP_WBITS = 31
"""What zlib calls its format."""
_MAX_DEPTH = 200
_MAX_CONTAINERS = 250_000
_BRACKETS = b"[]{}"
_DOWN, _UP = b"\x01", b"\xff"
_DEPTH_TABLE = bytes.maketrans(_BRACKETS, (_DOWN + _UP) * 2)
_NOT_BRACKETS = bytes(set(range(256)) - {*_BRACKETS, *b'"'})


class SessionRequest(Struct, frozen=True, kw_only=True):
    """Who asks, and for which session. `id` and `ref` are those of the path, `raw` is the body as it came."""

    service: Service
    scope: Scope
    raw: bytes
    headers: Any
    id: str = ""
    ref: str = ""
    authenticate: Callable[[], Scope] = Scope
    """Asks again whether the caller may: what is answered for long outlives a token."""

    @property
    def store_id(self) -> str:
        """The session's id in the store."""
        return self.scope.store_id(self.id)

    @property
    def key(self) -> str:
        """The idempotency key, or "" when there is none."""
        key: str | None = self.headers.get(IDEMPOTENCY_KEY)
        if key is not None and not _KEY.fullmatch(key):
            raise RequestRefused(
                400, f"{IDEMPOTENCY_KEY}: a key has 1 to 200 letters, digits, signs or spaces of ASCII."
            )
        return key or ""

    async def session(self, work: Callable[[Session], T]) -> T:
        """Do something with the session."""
        return await self.with_handle(lambda handle: work(handle.session()))

    async def with_handle(self, work: Callable[[SessionHandle], T]) -> T:
        """Do something with the session and its inside."""

        def ready(handle: SessionHandle) -> T:
            handle.session()
            return work(handle)

        return await self.service.with_session(self.store_id, ready)

    async def run_compaction(self, work: Callable[[Session], T], *, can_cancel: bool = False) -> T:
        """Do something long with the session while messages can still be appended."""
        return await self.service.run_compaction(self.store_id, work, can_cancel=can_cancel)


class RequestContext(SessionRequest, Generic[Q], frozen=True, kw_only=True):
    """A request of a verb as its handler sees it. `params` is what the verb declares: the body, or the query."""

    params: Q


Handler = Callable[[RequestContext[Q]], Awaitable[A | JsonResponse[A] | ASGIResponse]]
HANDLERS: dict[AnyVerb, Handler[Any, Any]] = {}


def handles(verb: Verb[..., Q, A, Any]) -> Callable[[Handler[Q, A]], Handler[Q, A]]:
    """Register the handler of a verb."""

    def register(handler: Handler[Q, A]) -> Handler[Q, A]:
        HANDLERS[verb] = handler
        return handler

    return register


def decompress(raw: bytes, encoding: str, most: int) -> bytes:
    """A body without its Content-Encoding. What would have more than `most` bytes is not unpacked beyond them."""
    name = encoding.strip().lower()
    if name == "identity":
        return raw
    if name not in ("gzip", "x-gzip"):
        problem = f"The body's Content-Encoding is {encoding[:80]!r}. Try: gzip, or none."
        raise RequestRefused(415, problem, {"Accept-Encoding": "gzip"})
    try:
        return b"".join(_gzip_members(memoryview(raw), most))
    except zlib.error as error:
        raise RequestRefused(400, f"The body is not gzip, though its Content-Encoding says so: {error}.") from error


def _gzip_members(raw: memoryview, most: int) -> Iterator[bytes]:
    """What the members of a gzip stream hold, one behind the other. Zeros behind the last one only fill a block up."""
    at = members = size = 0
    while at < len(raw) and (not members or any(raw[at : at + _GUNZIP_CHUNK])):
        members += 1
        if members > _MAX_GZIP_MEMBERS:
            raise RequestRefused(400, f"The body's gzip has more than {_MAX_GZIP_MEMBERS:,} members. Try: one.")
        unpacker = zlib.decompressobj(_GZIP_WBITS)
        while not unpacker.eof:
            if at >= len(raw):
                raise zlib.error("it is cut off")
            piece = unpacker.decompress(raw[at : at + _GUNZIP_CHUNK], most - size + 1)
            at = min(at + _GUNZIP_CHUNK, len(raw))
            size += len(piece)
            if size > most:
                raise RequestRefused(
                    413, f"The body has more than {most:,} bytes when it is unpacked. Try: several requests."
                )
            yield piece
        at -= len(unpacker.unused_data)


def decode_body(raw: bytes, kind: type[T], content_type: str) -> T:
    """A body as its type. Whatever JSON can hold is taken, half a character and any whole number too."""
    if not raw:
        raw = b"{}"
    elif content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused(
            415, f"The body is {content_type[:80] or 'of no type'!r}. Try: Content-Type: application/json."
        )
    if raw.count(b"[") + raw.count(b"{") > _MAX_DEPTH:
        _refuse_deep_json(raw)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise RequestRefused(422, f"{error}. Try: /openapi.json says what is taken.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _convert(_lenient_json(raw), kind)


def _refuse_deep_json(raw: bytes) -> None:
    """A list takes two bytes of a body and many more to read: how many there are is seen before any is read."""
    steps = _depth_changes(raw)
    if steps.count(_DOWN) > _MAX_CONTAINERS:
        raise RequestRefused(
            413, f"The body has more than {_MAX_CONTAINERS:,} lists and objects. Try: several requests."
        )
    if max(accumulate(memoryview(steps).cast("b")), default=0) > _MAX_DEPTH:
        raise RequestRefused(400, f"The body is nested more than {_MAX_DEPTH} deep.")


def _depth_changes(raw: bytes) -> bytes:
    """One byte, 1 or -1, for each list or object that begins or ends: the brackets of a JSON text outside quotes."""
    quoted = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_DEPTH_TABLE, _NOT_BRACKETS)
    return b"".join(quoted.replace(b'""', b"").split(b'"')[::2])


def _lenient_json(raw: bytes) -> Any:
    """What only Python's own reader takes: escapes of half a character."""
    try:
        return json.loads(raw, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise RequestRefused(400, "The body is not JSON that can be read: it is too deep.") from error
    except ValueError as error:
        raise RequestRefused(400, f"The body is not JSON: {error}.") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _convert(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RequestRefused(422, f"{error}. Try: /openapi.json says what is taken.") from error


def read_query(given: Any, kind: type[T]) -> T:
    """A query as its type; each name once."""
    values = {name: given.getall(name) for name in given}
    twice = next((name for name, many in values.items() if len(many) > 1), None)
    if twice is not None:
        raise RequestRefused(422, f"{twice[:80]!r} is in the query more than once.")
    try:
        return msgspec.convert({name: many[0] for name, many in values.items()}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestRefused(422, f"{error}. Try: /openapi.json says what may be asked.") from error
