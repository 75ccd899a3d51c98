"""Events over HTTP: all of them, in order, once each, for as long as somebody reads, and from where it broke."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from context_compactor.client import AsyncClient, Client
from context_compactor.errors import ServerDenied
from context_compactor.server import event_feed as readers_module
from context_compactor.server import events as following_module
from context_compactor.server.tokens import add_token, remove_token
from context_compactor.store.connect import connect
from context_compactor.store.event_log import EventTable
from context_compactor.store.service_store import service_store_of
from tests.cli.conftest import conversation
from tests.server.running import running
from tests.server.streams import event, following, tell
from tests.waiting import PATIENCE, wait_for


def test_what_happens_is_told_as_it_happens(server):
    path = server.made("run")
    with following(server) as stream:
        server.post(f"{path}/messages", {"messages": conversation()})
        assert server.post(f"{path}/compact", {"target_tokens": 9_000}).json["compacted"]
        frame = next(each for each in iter(lambda: stream.told()[0], None) if each.kind == "session.compacted")
        found = frame.json
        assert frame.fields["id"] == found["id"]
        assert set(found) == {"id", "type", "session_id", "created_at", "payload"}
        assert found["session_id"] == "run"
        assert found["payload"]["tokens_after"] < found["payload"]["tokens_before"]


def test_one_session_and_some_types_can_be_followed_alone(server):
    with (
        following(server, "?session_id=a") as one,
        following(server, "?types=job.dropped,job.retried") as some,
        following(server, "?session_id=a&types=job.dropped") as both,
    ):
        tell(server, 1, session_id="b")
        tell(server, 2, session_id="a")
        tell(server, 3, kind="job.dropped", session_id="b")
        tell(server, 4, kind="job.dropped", session_id="a")
        assert one.numbers(2) == [2, 4]
        assert some.numbers(2) == [3, 4]
        assert both.numbers(1) == [4]


def test_an_unknown_type_and_an_unknown_wish_are_refused(shared):
    assert shared.get("/v1/events?types=job.dropped,nothing").problem == "bad-setting"
    assert shared.get("/v1/events?nothing=1").status == 422


@pytest.mark.parametrize("where", ["header", "query"])
def test_behind_the_last_event_known_the_missed_ones_come_first(server, where):
    ids = tell(server, 1, 2, 3, 4)
    headers, query = ({"Last_Event_ID": ids[1]}, "") if where == "header" else ({}, f"?last_event_id={ids[1]}")
    with following(server, query, **headers) as stream:
        tell(server, 5)
        assert stream.numbers(3) == [3, 4, 5]


def test_without_a_last_event_only_new_ones_come(server):
    tell(server, 1, 2)
    wait_for(lambda: server.service.feed.position == server.service.service_store.events.last())
    with following(server) as stream:
        tell(server, 3)
        assert stream.numbers(1) == [3]


def test_all_that_is_kept_can_be_asked_for(server):
    tell(server, *range(450))
    with following(server, "?last_event_id=0") as stream:
        assert stream.numbers(450) == list(range(450))


def test_a_reader_that_breaks_before_its_first_event_misses_nothing(server):
    tell(server, 1)
    wait_for(lambda: server.service.feed.position == server.service.service_store.events.last())
    with following(server) as stream:
        place = stream.frame()
        assert place is not None
    tell(server, 2)
    with following(server, Last_Event_ID=place.fields["id"]) as stream:
        assert stream.numbers(1) == [2]


def test_a_gap_is_told_when_the_last_event_is_no_longer_kept(server):
    server.service.service_store.events = EventTable(server.service.service_store.events._database, most=100)
    ids = tell(server, *range(600))
    with following(server, Last_Event_ID=ids[0]) as stream:
        first = stream.told()[0]
        assert first.kind == "gap"
        assert "missing" in first.json["reason"]
        assert "id" not in first.fields
        assert stream.numbers(100)[-1] <= 599


def test_an_id_that_never_was_is_a_gap_and_no_failure(server):
    tell(server, 1)
    with following(server, Last_Event_ID="what ' \" ; is this") as stream:
        assert stream.told()[0].kind == "gap"


def test_nothing_comes_twice_when_another_server_was_ahead(server):
    ids = tell(server, 1, 2)
    server.service.feed.position -= 2  # as if this server had not looked yet
    with following(server, Last_Event_ID=ids[1]) as stream:
        tell(server, 3)
        assert stream.numbers(1) == [3]


def test_a_quiet_stream_gives_signs_of_life(server, monkeypatch):
    monkeypatch.setattr(following_module, "_KEEP_ALIVE_SECONDS", 0.01)
    with following(server) as stream:
        frames = [stream.frame() for _ in range(3)]
        assert [each.fields.get("") for each in frames if each][1:] == ["alive", "alive"]


def test_a_namespace_sees_its_own_events_under_its_own_names(tmp_path):
    tokens = tmp_path / "tokens"
    mine, theirs = (add_token(tokens, name, name, read_only=True) for name in ("mine", "theirs"))
    with running(tmp_path, token_file=tokens) as server:
        assert server.get("/v1/events").status == 401
        with (
            following(server, Authorization=f"Bearer {mine}") as stream,
            following(server, Authorization=f"Bearer {theirs}") as other,
        ):
            tell(server, 1, session_id="theirs/run")
            events = event(session_id="mine/run", reason="there is no mine/run", number=2)
            server.service.bus.emit(events)
            tell(server, 3, session_id="mine/run")
            first, second = stream.told(2)
            assert first.json["session_id"] == "run"
            assert first.json["payload"] == {"reason": "there is no run", "number": 2}
            assert second.json["payload"] == {"number": 3}
            assert other.numbers(1) == [1]
        with following(server, "?last_event_id=0&session_id=run", Authorization=f"Bearer {mine}") as stream:
            assert stream.numbers(2) == [2, 3]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_reader_misses_nothing_and_is_told_of_no_gap_however_much_happens_elsewhere(tmp_path, request, kind):
    tokens = tmp_path / "tokens"
    mine = f"Bearer {add_token(tokens, 'mine', 'mine', read_only=True)}"
    theirs = f"Bearer {add_token(tokens, 'theirs', 'theirs', read_only=True)}"
    store = {"store": request.getfixturevalue("postgres_url")} if kind == "postgres" else {}
    with running(tmp_path, token_file=tokens, **store) as server:
        server.service.service_store.events = EventTable(server.service.service_store.events._database, most=100)
        (first,) = tell(server, 1, session_id="mine/run")
        (other,) = tell(server, 1, session_id="theirs/run")
        wait_for(lambda: server.service.feed.position == server.service.service_store.events.last())
        with following(server, Authorization=mine) as stream:
            assert stream.frame().fields["id"] == first  # though the newest of all is another namespace's
        tell(server, *range(600), session_id="theirs/run")
        tell(server, 2, 3, session_id="mine/run")
        for place, wanted in ((first, [2, 3, 8]), ("0", [1, 2, 3, 8, 9])):
            with following(server, Authorization=mine, Last_Event_ID=place) as stream:
                tell(server, wanted[-1], session_id="mine/run")
                read: list[object] = []
                while wanted[-1] not in read:
                    frame = stream.told()[0]
                    read.append(frame.json["payload"]["number"] if frame.kind == "job.queued" else frame.kind)
                assert read == wanted
        with following(server, Authorization=theirs, Last_Event_ID=other) as stream:
            assert stream.told()[0].kind == "gap"
        with following(server, Authorization=mine, Last_Event_ID=other) as stream:
            assert stream.told()[0].kind == "gap"  # it is none of this namespace


def test_where_the_store_is_stays_the_servers_business(server):
    with following(server) as stream:
        server.service.bus.emit(event("job.dropped", reason=f"{server.service.store.path} is full"))
        assert stream.told()[0].json["payload"] == {"reason": "the store is full"}


def test_a_token_that_is_taken_away_ends_its_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(following_module, "_KEEP_ALIVE_SECONDS", 0.05)
    tokens = tmp_path / "tokens"
    add_token(tokens, "stays", "", read_only=True)
    token = add_token(tokens, "wall", "", read_only=True)
    with (
        running(tmp_path, token_file=tokens) as server,
        following(server, Authorization=f"Bearer {token}") as stream,
    ):
        remove_token(tokens, "wall")
        assert stream.until_end()[-1].kind == "end"


def test_a_reader_that_is_too_slow_is_let_go_and_others_are_not(server, monkeypatch):
    monkeypatch.setattr(readers_module, "MAX_BYTES", 100_000)
    with following(server) as quick, following(server) as slow:
        for first in range(0, 600, 5):  # so many fit into its buffer, however they are given out
            for number in range(first, first + 5):
                server.service.bus.emit(event(number=number, text="x" * 15_000))
            assert quick.numbers(5) == list(range(first, first + 5))
        frames = slow.until_end()
        assert frames[-1].kind == "end"
        assert "Last-Event-ID" in frames[-1].json["reason"]
        seen = [frame.json["payload"]["number"] for frame in frames[:-1]]
        assert seen == list(range(len(seen)))
        assert server.service.readers.dropped == 1
    with following(server, Last_Event_ID=frames[-2].fields["id"]) as again:
        assert again.numbers(600 - len(seen)) == list(range(len(seen), 600))


def test_a_reader_that_never_reads_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(readers_module, "MAX_BYTES", 100_000)
    monkeypatch.setattr(following_module, "_SEND_TIMEOUT_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", server.port)) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: len(server.service.readers) == 1)
        while len(server.service.readers):
            server.service.bus.emit(event(text="x" * 15_000))
    assert server.service.readers.dropped == 1


def test_readers_that_have_gone_are_forgotten(server):
    for _ in range(5):
        with following(server):
            assert len(server.service.readers) >= 1
    wait_for(lambda: len(server.service.readers) == 0)


def test_more_readers_than_the_server_takes_are_told_so(tmp_path):
    with running(tmp_path, event_readers=2) as server, following(server), following(server):
        got = server.get("/v1/events")
        assert (got.status, got.problem) == (503, "busy")
        assert got.headers["retry-after"]


def test_the_readers_of_one_namespace_leave_room_for_those_of_others(tmp_path):
    tokens = tmp_path / "tokens"
    mine, theirs = (f"Bearer {add_token(tokens, name, name, read_only=True)}" for name in ("mine", "theirs"))
    with (
        running(tmp_path, event_readers=4, token_file=tokens) as server,
        following(server, Authorization=mine),
        following(server, Authorization=mine),
    ):
        assert server.get("/v1/events", Authorization=mine).problem == "busy"
        with following(server, Authorization=theirs):
            assert len(server.service.readers) == 3


def test_a_server_that_stops_lets_its_readers_go(tmp_path):
    with running(tmp_path) as server, following(server) as stream:
        tell(server, 1)
        server.listener.should_exit = True
        frames = stream.until_end()
        assert [frame.kind for frame in frames] == ["job.queued", "end"]
        assert "stops" in frames[-1].json["reason"]


def test_many_readers_cost_one_look_at_the_store(server):
    looks = []
    events = server.service.service_store.events
    after = events.after

    def counted(number, **wanted):
        looks.append(number)
        return after(number, **wanted)

    events.after = counted
    connections = []
    for _ in range(100):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("GET", "/v1/events")
        connections.append((connection, connection.getresponse()))
    before = len(looks)
    tell(server, 1)
    for _, response in connections:
        while not response.readline().startswith(b"data"):
            pass
    assert len(looks) - before < 50  # the poll looks too
    for connection, _ in connections:
        connection.close()


# Several servers on one store


def test_two_servers_on_one_file_tell_each_others_events(tmp_path):
    with running(tmp_path) as one, running(tmp_path) as two, following(one) as first, following(two) as second:
        tell(one, 1)
        assert first.numbers(1) == second.numbers(1) == [1]
        tell(two, 2)
        assert first.numbers(1) == second.numbers(1) == [2]


def test_two_servers_on_one_postgresql_tell_each_others_events_in_the_same_order(tmp_path, postgres_url):
    with (
        running(tmp_path, store=postgres_url) as one,
        running(tmp_path, store=postgres_url) as two,
        following(one) as first,
        following(two) as second,
    ):
        for server in (one, two):
            server.service.feed.idle_poll_seconds = 3600.0  # so that only a notice can have told it
            wait_for(lambda: server.service.notices.is_listening)  # noqa: B023
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda at: tell((one, two)[at % 2], at), range(40)))
        order = first.numbers(40)
        assert sorted(order) == list(range(40))
        assert second.numbers(40) == order


def test_notices_are_heard_again_after_postgresql_was_restarted(tmp_path, own_postgres):
    from tests.postgres import new_schema

    url = own_postgres.url(schema=new_schema())
    with running(tmp_path, store=url) as server, following(server) as stream:
        wait_for(lambda: server.service.notices.is_listening)
        own_postgres.restart()
        wait_for(lambda: server.service.notices.is_listening)
        service_store = service_store_of(store := connect(url))
        service_store.record_event(event(number=1))
        store.close()
        assert stream.numbers(1) == [1]


def test_a_job_of_one_server_wakes_the_engine_of_another_at_once(tmp_path, postgres_url):
    with running(tmp_path, store=postgres_url) as one, running(tmp_path, store=postgres_url, workers=1) as two:
        wait_for(lambda: two.service.notices.is_listening)
        woken = threading.Event()
        two.service.engine.wake = woken.set
        tell(one, 1)
        assert woken.wait(PATIENCE)


# The Python client


def test_the_client_follows_a_server_through_its_restarts_without_loss_or_doubles(tmp_path):
    with running(tmp_path) as server:
        port = server.port
        client = Client(server.url)
        events = client.events(types=["job.queued"])
        got: list[int] = []
        reader = threading.Thread(target=lambda: got.extend(each.payload["number"] for each in islice(events, 9)))
        reader.start()
        wait_for(lambda: len(server.service.readers) == 1)
        tell(server, 1, 2, 3)
    with running(tmp_path, port=port) as server:
        tell(server, 4, 5, 6)
    with running(tmp_path, port=port) as server:
        tell(server, 7, 8, 9)
        reader.join(PATIENCE)
    client.close()
    assert got == list(range(1, 10))


def test_async_callers_follow_the_same(server):
    async def read() -> list[int]:
        async with AsyncClient(server.url) as client:
            events = client.events("run", after="0")
            return [(await anext(events)).payload["number"] for _ in range(3)]

    tell(server, 1, 2, 3)
    assert asyncio.run(read()) == [1, 2, 3]


def test_a_client_is_told_of_a_gap(server):
    gaps: list[str] = []
    tell(server, 1)
    with Client(server.url) as client:
        events = client.events(after="gone", on_gap=gaps.append)
        reader = threading.Thread(target=lambda: next(events))
        reader.start()
        wait_for(lambda: bool(gaps))
        tell(server, 2)
        reader.join(PATIENCE)
        events.close()
    assert "'gone' is no longer kept" in gaps[0]


def test_a_client_that_may_not_is_told_so(tmp_path):
    tokens = tmp_path / "tokens"
    add_token(tokens, "mine", "", read_only=True)
    with running(tmp_path, token_file=tokens) as server, Client(server.url) as client, pytest.raises(ServerDenied):
        next(client.events())


def test_a_server_that_is_killed_and_comes_back_has_lost_and_doubled_nothing(tmp_path):
    """Another process writes events all the while; the reader follows whichever server is there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = connect(f"sqlite:///{tmp_path}/own.db")
    service_store = service_store_of(store)
    client = Client(f"http://127.0.0.1:{port}")
    got: list[int] = []
    events = client.events(after="0")
    reader = threading.Thread(target=lambda: got.extend(each.payload["number"] for each in islice(events, 300)))
    first = _serve(tmp_path, port)
    reader.start()
    for number in range(150):
        service_store.record_event(event(number=number))
    first.send_signal(signal.SIGKILL)
    first.communicate()
    for number in range(150, 225):
        service_store.record_event(event(number=number))
    second = _serve(tmp_path, port)
    for number in range(225, 300):
        service_store.record_event(event(number=number))
    reader.join(PATIENCE)
    second.terminate()
    second.communicate()
    client.close()
    store.close()
    assert got == list(range(300))


def _serve(folder, port: int) -> subprocess.Popen:
    code = f"from context_compactor.cli.main import main; main(['serve', '--port', '{port}', '--store', 'sqlite:///own.db'])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert "listening" in process.stderr.readline()
    return process
