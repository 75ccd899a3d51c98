"""Reading a stream of events (SSE): lines in, events out, and where to go on after a break."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from context_compactor.events.event import Event

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class EventStream:
    """What is remembered from one connection to the next: the last event's id, and how long to wait."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.pause = _FIRST_PAUSE

    def read(self, lines: Iterable[bytes]) -> Iterator[Event]:
        """The events in some lines. What is cut off at the end was never sent."""
        values: list[str] = []
        new_id = self.last_id
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            if not name and not value and line.strip(b"\r\n") == b"":
                if values:
                    self.last_id = new_id
                    yield msgspec.json.decode("\n".join(values), type=Event)
                values = []
            elif name == "data":
                values.append(value)
            elif name == "id" and "\0" not in value:
                new_id = value
            elif name == "retry" and value.isascii() and value.isdigit():
                self.pause = min(int(value) / 1000, _LONGEST_PAUSE)
