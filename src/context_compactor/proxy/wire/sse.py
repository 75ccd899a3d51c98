"""Server-Sent Events: read from chunks that are cut anywhere, each with its exact bytes, and written."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from context_compactor.json_values import json_text

EVENT_STREAM = "text/event-stream; charset=utf-8"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True):
    """One event. `raw` is all of it with the empty line behind it, `value` its `data:` lines, `name` its `event:`.

    A comment or an empty line alone is an event without a value.
    """

    raw: bytes
    name: str = ""
    value: str = ""

    def rewritten(self, value: Any) -> bytes:
        """The event with another value as JSON. Its other lines and its line ends stay."""
        lines: list[bytes] = []
        is_written = False
        for line in self.raw.splitlines(keepends=True):
            field, _ = _field(line.rstrip(b"\r\n"))
            if field != b"data":
                lines.append(line)
            elif not is_written:
                end = line[len(line.rstrip(b"\r\n")) :]
                lines.append(b"data: " + json_text(value).encode() + end)
                is_written = True
        return b"".join(lines)


class SseParser:
    """Takes a stream in chunks, as they come, and gives each event as soon as the empty line behind it is there."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._line_at = 0
        self._searched = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that end in this chunk."""
        self._pending += chunk
        events: list[SseEvent] = []
        begin = 0
        while (found := _LINE_END.search(self._pending, self._searched)) is not None:
            if found.end() == len(self._pending) and found.group() == b"\r":
                self._searched = found.start()  # the line feed of this line end may be in the next chunk
                break
            is_empty = found.start() == self._line_at
            self._line_at = self._searched = found.end()
            if is_empty:
                events.append(_event(bytes(self._pending[begin : found.end()])))
                begin = found.end()
        else:
            self._searched = len(self._pending)
        del self._pending[:begin]
        self._line_at -= begin
        self._searched -= begin
        return events

    def close(self) -> list[SseEvent]:
        """What is left when the stream has ended: an event without the empty line, whole or broken off, or nothing."""
        rest = bytes(self._pending)
        self._pending.clear()
        self._line_at = self._searched = 0
        return [_event(rest)] if rest else []


def write_event(value: Any, name: str = "") -> bytes:
    """An event with a JSON value, or with a text that is sent as it is."""
    text = value if isinstance(value, str) else json_text(value)
    return (f"event: {name}\n" if name else "").encode() + b"data: " + text.encode() + b"\n\n"


def read_events(content: bytes) -> list[SseEvent]:
    """The events of a whole stream."""
    parser = SseParser()
    return [*parser.feed(content), *parser.close()]


def _event(raw: bytes) -> SseEvent:
    name = b""
    values: list[bytes] = []
    for line in raw.removeprefix(_BYTE_ORDER_MARK).splitlines():
        field, value = _field(line)
        if field == b"data":
            values.append(value)
        elif field == b"event":
            name = value
    return SseEvent(raw, name.decode(errors="replace"), b"\n".join(values).decode(errors="replace"))


def _field(line: bytes) -> tuple[bytes, bytes]:
    field, _, value = line.removeprefix(_BYTE_ORDER_MARK).partition(b":")
    return field, value.removeprefix(b" ")
