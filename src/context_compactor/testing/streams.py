"""How an answer is streamed: as Server-Sent Events, with its texts in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

PIECE_CHARACTERS = 12


class StreamEvent(Struct, frozen=True):
    """One Server-Sent Event: a JSON value, or a text that is sent as it is. `name` is its `event:` line."""

    value: dict[str, Any] | str
    name: str | None = None

    def encode(self) -> bytes:
        """The lines of the event and the empty line behind it."""
        written = self.value if isinstance(self.value, str) else json.dumps(self.value)
        return (f"event: {self.name}\n" if self.name else "").encode() + f"data: {written}\n\n".encode()


def pieces(text: str) -> list[str]:
    """A text as a stream has it: cut anywhere, also inside of words and escapes. An empty text has no pieces."""
    return [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)]


def in_chunks(events: Iterable[StreamEvent]) -> bytes:
    """The events as HTTP/1.1 sends a body whose length was not known before."""
    written = [*(event.encode() for event in events), b""]
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in written)
