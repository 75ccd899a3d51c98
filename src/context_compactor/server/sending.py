"""What a verb sends back when it is more than an answer: another status, headers, or bytes that are ready."""

from __future__ import annotations

from typing import Generic, TypeVar

from litestar.response.base import ASGIResponse
from msgspec import Struct, field

from context_compactor.api import encode

A = TypeVar("A", bound=Struct)


class Sent(Struct, Generic[A], frozen=True):
    """Content on its way out."""

    content: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def sent(answer: A | bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> Sent[A]:
    """An answer with a status and headers of its own."""
    return Sent(answer if isinstance(answer, bytes) else encode(answer), status, headers or {})


def response_of(answer: Struct | Sent[Struct] | ASGIResponse) -> ASGIResponse:
    """The HTTP response to a verb's answer; one that is ready goes as it is."""
    if isinstance(answer, ASGIResponse):
        return answer
    out: Sent[Struct] = answer if isinstance(answer, Sent) else sent(answer)
    return ASGIResponse(
        body=out.content, status_code=out.status, media_type="application/json", headers=out.headers or None
    )
