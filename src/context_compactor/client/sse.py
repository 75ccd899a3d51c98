"""Reading a stream of events (SSE): lines in, events out, and where to go on after a break."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from context_compactor.errors import ServerError
from context_compactor.events.event import EVENT_TYPES, Event

T = TypeVar("T")

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
        raise ServerError(f"what is told is none of ours: {error}. Try: does the address lead there?") from error


def _warn(reason: str) -> None:
    _log.warning("events may be missing: %s", reason)
