"""Reading a stream of events (SSE): lines in, events out, and where to go on after a break."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import msgspec

from context_compactor.events.event import Event

GAP, END = "gap", "end"
"""What a server says about the stream itself."""

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
        """The events in some lines. What is cut off at the end was never sent."""
        values: list[str] = []
        kind, new_id = "", self.last_id
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            if not name and not value and line.strip(b"\r\n") == b"":
                self.last_id = new_id
                if values and kind not in (GAP, END):
                    yield msgspec.json.decode("\n".join(values), type=Event)
                elif kind == GAP:
                    self._on_gap(_reason("\n".join(values)))
                kind, values = "", []
            elif name == "event":
                kind = value
            elif name == "data":
                values.append(value)
            elif name == "id" and "\0" not in value:
                new_id = value
            elif name == "retry" and value.isascii() and value.isdigit():
                self.pause = min(int(value) / 1000, _LONGEST_PAUSE)


def _reason(text: str) -> str:
    return str(msgspec.json.decode(text, type=dict[str, str]).get("reason", ""))


def _warn(reason: str) -> None:
    _log.warning("events may be missing: %s", reason)
