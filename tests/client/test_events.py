"""Events are read as they come, and after a break from where it broke."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.client import AsyncClient, Client
from context_compactor.client.responses import EventStream
from context_compactor.errors import ServerDenied, ServerError
from context_compactor.store.events import Event
from tests.waiting import PATIENCE, until


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


def _followers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "context-compactor events"]


async def _all_have_ended() -> None:
    await until(lambda: not _followers(), lambda: "a stream that nobody reads goes on")


async def _read(events: AsyncGenerator[Event, None], count: int = 1_000_000) -> list[Event]:
    read: list[Event] = []
    async for event in events:
        read.append(event)
        if len(read) == count:
            break
    return read


def test_a_cancelled_reader_ends_at_once_and_leaves_nothing_behind(shared):
    async def read() -> None:
        async with AsyncClient(shared.url) as client:
            reader = asyncio.create_task(_read(client.events()))
            await until(lambda: len(shared.service.readers) == 1)  # it waits for the first event
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(reader, PATIENCE)
            await _all_have_ended()

    asyncio.run(read())


def test_a_reader_who_has_enough_or_waits_for_a_server_that_is_gone_leaves_nothing_behind(script):
    script.steps = [_streaming(1, 2)]

    async def read() -> None:
        async with AsyncClient(script.url) as client:
            assert await _read(client.events(), 1) == [_event(1)]
            await _all_have_ended()

    asyncio.run(read())


def test_closing_the_client_ends_its_streams(shared):
    async def read() -> None:
        client = AsyncClient(shared.url)
        readers = [asyncio.create_task(_read(client.events())) for _ in range(3)]
        await until(lambda: len(_followers()) == 3)
        await client.close()
        assert await asyncio.wait_for(asyncio.gather(*readers), PATIENCE) == [[], [], []]
        await _all_have_ended()

    asyncio.run(read())


def test_any_number_of_readers_keeps_nobody_else_waiting(shared):
    async def read() -> None:
        async with AsyncClient(shared.url) as client:
            readers = [asyncio.create_task(_read(client.events())) for _ in range(40)]
            await until(lambda: len(_followers()) == 40)
            assert (await asyncio.wait_for(client.health(), PATIENCE)).status == "ok"
            for reader in readers:
                reader.cancel()
            await asyncio.wait(readers, timeout=PATIENCE)
            await _all_have_ended()

    asyncio.run(read())


def test_a_reader_who_is_slow_gets_all_the_same_events_in_order(script):
    script.steps = [_streaming(*range(1, 10)), _refusing]

    read: list[Event] = []

    async def slowly() -> None:
        async with AsyncClient(script.url) as client:
            async for event in client.events():
                await asyncio.sleep(0.001)
                read.append(event)

    with pytest.raises(ServerDenied):
        asyncio.run(slowly())
    assert read == [_event(number) for number in range(1, 10)]


def test_types_that_only_a_newer_server_knows_are_passed_over():
    newer = _frame(2).replace(b"job.queued", b"session.archived")
    stream = EventStream()
    lines = (_frame(1) + newer + _frame(3)).splitlines(keepends=True)
    assert list(stream.read(lines)) == [_event(1), _event(3)]
    assert stream.last_id == "e3"


def test_what_a_newer_server_adds_to_a_gap_does_no_harm():
    heard: list[str] = []
    gap = b'event: gap\ndata: {"reason": "gone", "missing": 3}\n\n'
    assert list(EventStream("", heard.append).read(gap.splitlines(keepends=True))) == []
    assert heard == ["gone"]


@pytest.mark.parametrize("told", [b"{", b"[]", b'{"id": 1}', b"\xff"])
def test_events_that_are_none_are_an_error_of_ours(told):
    lines = [b"event: job.queued\n", b"data: " + told + b"\n", b"\n"]
    with pytest.raises(ServerError, match="not from a compactor server"):
        list(EventStream().read(lines))


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
