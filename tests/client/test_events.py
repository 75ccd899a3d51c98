"""Events are read as they come, and after a break from where it broke."""

from __future__ import annotations

import asyncio
import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.client import AsyncClient, Client
from context_compactor.client.sse import EventStream
from context_compactor.errors import ServerDenied
from context_compactor.events.event import Event


def _event(number: int) -> Event:
    return Event(f"e{number}", "job.queued", "run", "2026-01-01T00:00:00+00:00", {"number": number})


def _frame(number: int) -> bytes:
    event = _event(number)
    body = {name: getattr(event, name) for name in event.__struct_fields__}
    return f"id: {event.id}\nevent: {event.type}\ndata: {json.dumps(body)}\n\n".encode()


def _streaming(*numbers: int, cut: bytes = b""):
    def step(server) -> None:
        server.send_response(200)
        server.send_header("Content-Type", "text/event-stream")
        server.end_headers()
        server.wfile.write(b"retry: 1\n\n: a sign of life\n\n" + b"".join(map(_frame, numbers)) + cut)

    return step


def _refusing(server) -> None:
    server.send_response(401)
    server.send_header("Content-Length", "0")
    server.end_headers()


def test_a_break_is_bridged_from_the_last_event(script):
    script.steps = [_streaming(1, 2, cut=_frame(3)[:20]), _streaming(3)]
    with Client(script.url) as client:
        assert list(islice(client.events("run"), 3)) == [_event(1), _event(2), _event(3)]
    assert [headers.get("last-event-id") for _, _, headers, _ in script.asked] == [None, "e2"]
    assert script.asked[0][1] == "/v1/events?session_id=run"


def test_it_can_begin_behind_a_known_event(script):
    script.steps = [_streaming(8)]
    with Client(script.url) as client:
        assert next(client.events(after="e7")) == _event(8)
    assert script.asked[0][2]["last-event-id"] == "e7"


def test_async_callers_read_the_same(script):
    script.steps = [_streaming(1, 2)]

    async def read() -> list[Event]:
        async with AsyncClient(script.url) as client:
            events = client.events()
            return [await anext(events), await anext(events)]

    assert asyncio.run(read()) == [_event(1), _event(2)]


def test_a_reader_who_may_not_is_told_so(script):
    script.steps = [_refusing]
    with Client(script.url) as client, pytest.raises(ServerDenied):
        next(client.events())


@given(st.lists(st.integers(1, 9), max_size=5), st.sampled_from([b"\n", b"\r\n"]))
def test_any_stream_of_whole_events_is_read_whole(numbers, ending):
    stream = EventStream()
    lines = b"".join(map(_frame, numbers)).replace(b"\n", ending).splitlines(keepends=True)
    assert list(stream.read(lines)) == [_event(number) for number in numbers]
    assert stream.last_id == (f"e{numbers[-1]}" if numbers else "")


def test_what_is_cut_off_was_never_sent():
    stream = EventStream()
    assert list(stream.read([b"id: e1\n", b'data: {"id"'])) == []
    assert stream.last_id == ""
