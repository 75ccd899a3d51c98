"""Reading a stream of events by hand, frame by frame, on a socket that a test can leave alone or cut."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from context_compactor.sessions.core import wall_clock
from context_compactor.store.events import Event, EventType, make_event
from tests.server.running import Running
from tests.waiting import PATIENCE


def event(kind: EventType = "job.queued", session_id: str = "run", **payload: Any) -> Event:
    return make_event(kind, session_id, payload, wall_clock())


def tell(server: Running, *numbers: int, kind: EventType = "job.queued", session_id: str = "run") -> list[str]:
    """Have a server tell events with these numbers; their ids."""
    events = [event(kind, session_id, number=number) for number in numbers]
    for each in events:
        server.service.bus.emit(each)
    return [each.id for each in events]


class Frame:
    """One frame: its fields by name; comments are under ""."""

    def __init__(self, lines: list[str]) -> None:
        self.fields = dict(line.split(": ", 1) if line[0] != ":" else ("", line[2:]) for line in lines)

    @property
    def kind(self) -> str:
        return self.fields.get("event", "")

    @property
    def json(self) -> Any:
        return json.loads(self.fields["data"])


class Stream:
    """What a server sends, frame by frame."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response

    def frame(self) -> Frame | None:
        """The next frame; None at the end."""
        lines: list[str] = []
        while line := self.response.readline():
            if line == b"\n":
                return Frame(lines)
            lines.append(line.decode().rstrip("\n"))
        return None

    def told(self, count: int = 1) -> list[Frame]:
        """The next frames that tell something, with comments and places left out."""
        found: list[Frame] = []
        while len(found) < count:
            frame = self.frame()
            assert frame is not None, "the stream has ended"
            if "data" in frame.fields:
                found.append(frame)
        return found

    def numbers(self, count: int) -> list[int]:
        return [frame.json["payload"]["number"] for frame in self.told(count)]

    def until_end(self) -> list[Frame]:
        return [frame for frame in iter(self.frame, None) if "data" in frame.fields]


@contextmanager
def following(server: Running, query: str = "", **headers: str) -> Iterator[Stream]:
    """A reader that the server knows of."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("GET", f"/v1/events{query}", headers=given)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.getheader("Content-Type", "").startswith("text/event-stream")
        stream = Stream(response)
        first = stream.frame()
        assert first is not None
        assert first.fields["retry"] == "1000"
        yield stream
    finally:
        connection.close()
