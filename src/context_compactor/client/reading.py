"""From a reply to an answer of its type, or to the error that the server named."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from context_compactor.api import Problem
from context_compactor.client.transport import Reply
from context_compactor.errors import (
    BadInput,
    BadMessage,
    BadSetting,
    Cancelled,
    CompactorError,
    KeyReused,
    ServerDenied,
    ServerError,
    ServerUnavailable,
    StaleBase,
    UnknownReference,
    UnknownSession,
)
from context_compactor.messages.jsontext import read_json

T = TypeVar("T")

_NAMED: dict[str, type[CompactorError]] = {
    "unknown-session": UnknownSession,
    "unknown-reference": UnknownReference,
    "bad-setting": BadSetting,
    "bad-input": BadInput,
    "key-reused": KeyReused,
    "stale-base": StaleBase,
    "cancelled": Cancelled,
}
_BY_STATUS: dict[int, Callable[[str, int], ServerError]] = {
    401: ServerDenied,
    403: ServerDenied,
    502: ServerUnavailable,
    503: ServerUnavailable,
    504: ServerUnavailable,
}
_LONGEST_TEXT = 300


def answer_of(reply: Reply, kind: type[T]) -> T:
    """The answer, or the error that the server named."""
    if not 200 <= reply.status < 300:
        raise error_of(reply)
    try:
        return msgspec.convert(read_json(reply.body), kind)
    except (msgspec.ValidationError, ValueError) as error:
        problem = f"the answer is none of ours: {error}. Try: does the address lead to `compactor serve`?"
        raise ServerError(problem, reply.status) from error


def error_of(reply: Reply) -> CompactorError:
    """The error behind a reply that is no success."""
    tried = f" ({reply.tried})" if reply.tried else ""
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
    except msgspec.DecodeError:
        told = reply.body[:_LONGEST_TEXT].decode("utf-8", "replace")
        return _plain(reply.status, f"the server answered {reply.status}: {told}{tried}")
    text = (problem.detail or problem.title) + tried
    if problem.name == "bad-message" and problem.index is not None:
        field = problem.field or "message"
        return BadMessage(problem.index, field, text.removeprefix(f"message {problem.index}, field {field!r}: "))
    named = _NAMED.get(problem.name)
    return named(text) if named else _plain(reply.status, text)


def _plain(status: int, text: str) -> CompactorError:
    if status in (400, 413, 415, 422):
        return BadInput(text)
    return _BY_STATUS.get(status, ServerError)(text, status)
