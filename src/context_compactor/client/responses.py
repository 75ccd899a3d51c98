"""From a reply to an answer of its type or the error the server named, and the stream of events (SSE)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from context_compactor import errors
from context_compactor.client.transport import HttpReply
from context_compactor.json_values import read_json
from context_compactor.sessions.schemas import Problem
from context_compactor.store.events import EVENT_TYPES, Event

T = TypeVar("T")

_NAMED: dict[str, type[errors.CompactorError]] = {
    "unknown-session": errors.UnknownSession,
    "unknown-reference": errors.UnknownReference,
    "bad-setting": errors.BadSetting,
    "bad-input": errors.BadInput,
    "key-reused": errors.KeyReused,
    "stale-base": errors.StaleBase,
    "cancelled": errors.Cancelled,
}
_BY_STATUS: dict[int, Callable[[str, int], errors.ServerError]] = {
    401: errors.ServerDenied,
    403: errors.ServerDenied,
    502: errors.ServerUnavailable,
    503: errors.ServerUnavailable,
    504: errors.ServerUnavailable,
}
_LONGEST_TEXT = 300


def answer_of(reply: HttpReply, kind: type[T]) -> T:
    """The answer, or the error that the server named."""
    if not 200 <= reply.status < 300:
        raise error_of(reply)
    if kind is type(None):
        return kind()
    try:
        return msgspec.convert(read_json(reply.body), kind)
    except (msgspec.ValidationError, ValueError) as error:
        problem = (
            f"the response is not from a compactor server: {error}. Try: check that the URL leads to `compactor serve`."
        )
        raise errors.ServerError(problem, reply.status) from error


def error_of(reply: HttpReply) -> errors.CompactorError:
    """The error behind a reply that is no success."""
    tried = f" ({reply.tried})" if reply.tried else ""
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
    except msgspec.DecodeError:
        text = reply.body[:_LONGEST_TEXT].decode("utf-8", "replace")
        return _plain(reply.status, f"the server answered {reply.status}: {text}{tried}")
    text = (problem.detail or problem.title) + tried
    if problem.name == "bad-message" and problem.index is not None:
        field = problem.field or "message"
        return errors.BadMessage(problem.index, field, text.removeprefix(f"message {problem.index}, field {field!r}: "))
    named = _NAMED.get(problem.name)
    return named(text) if named else _plain(reply.status, text)


def _plain(status: int, text: str) -> errors.CompactorError:
    if status in (400, 413, 415, 422):
        return errors.BadInput(text)
    return _BY_STATUS.get(status, errors.ServerError)(text, status)


_GAP = "gap"
_log = logging.getLogger("context_compactor")
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class EventStream:
    """What is remembered from one connection to the next: the last event's id, and how long to wait.

    `on_gap` is called with a sentence when the server no longer knows the last event, so that some may be missing.
    """

    def __init__(self, last_id: str = "", on_gap: Callable[[str], None] | None = None) -> None:
        self.last_id = last_id
        self._on_gap = on_gap or _warn
        self.pause = _FIRST_PAUSE

    def read(self, lines: Iterable[bytes]) -> Iterator[Event]:
        """The events in some lines, all but those of types that only a newer server knows.

        What is cut off at the end was never sent.
        """
        values: list[str] = []
        kind, new_id = "", self.last_id
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            if not name and not value and line.strip(b"\r\n") == b"":
                self.last_id = new_id
                if values and kind in EVENT_TYPES:
                    yield _read("\n".join(values), Event)
                elif kind == _GAP:
                    self._on_gap(str(_read("\n".join(values), dict[str, Any]).get("reason", "")))
                kind, values = "", []
            elif name == "event":
                kind = value
            elif name == "data":
                values.append(value)
            elif name == "id" and "\0" not in value:
                new_id = value
            elif name == "retry" and value.isascii() and value.isdigit():
                self.pause = min(int(value) / 1000, _LONGEST_PAUSE)


def _read(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise errors.ServerError(
            f"the event stream is not from a compactor server: {error}. "
            "Try: check that the URL leads to `compactor serve`."
        ) from error


def _warn(reason: str) -> None:
    _log.warning("events may be missing: %s", reason)
