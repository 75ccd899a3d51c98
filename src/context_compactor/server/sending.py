"""What a verb sends back when it is more than an answer: another status, headers, or bytes that are ready."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from litestar.response.base import ASGIResponse
from msgspec import Struct, field, structs

from context_compactor.api import encode

A = TypeVar("A", bound=Struct)
Run = Callable[[Callable[[], bytes]], Awaitable[bytes]]

LARGE = 64 * 1024
"""More bytes than that are read, written and packed in a thread, so that nobody else has to wait for it."""
PACKED_FROM = 1_000
PACKING_LEVEL = 4
_PACKED = {"Content-Encoding": "gzip"}
_VARIES = {"Vary": "Accept-Encoding"}


class Sent(Struct, Generic[A], frozen=True):
    """Content on its way out."""

    content: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def sent(answer: A | bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> Sent[A]:
    """An answer with a status and headers of its own. One that may be large is made where it was computed."""
    return Sent(answer if isinstance(answer, bytes) else encode(answer), status, headers or {})


async def response_of(answer: Struct | Sent[Struct] | ASGIResponse, accepted: str, run: Run) -> ASGIResponse:
    """The HTTP response to a verb's answer, packed for those who accept it; one that is ready goes as it is."""
    if isinstance(answer, ASGIResponse):
        return answer
    out: Sent[Struct] = answer if isinstance(answer, Sent) else sent(answer)
    if len(out.content) >= PACKED_FROM:
        out = await _packed(out, run) if "gzip" in accepted else _with(out, out.content, _VARIES)
    return ASGIResponse(
        body=out.content, status_code=out.status, media_type="application/json", headers=out.headers or None
    )


async def _packed(out: Sent[A], run: Run) -> Sent[A]:
    pack = partial(gzip.compress, out.content, PACKING_LEVEL, mtime=0)
    content = await run(pack) if len(out.content) > LARGE else pack()
    return _with(out, content, _VARIES | _PACKED)


def _with(out: Sent[A], content: bytes, headers: dict[str, str]) -> Sent[A]:
    return structs.replace(out, content=content, headers=out.headers | headers)
