"""Many callers at once: order within a session, nothing lost between them, and a bounded number of open sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from context_compactor.archive import storage
from context_compactor.errors import StoreError
from context_compactor.protocols import ServiceStore
from context_compactor.sessions import append, compaction
from context_compactor.sessions.session import Session
from tests.cli.conftest import conversation
from tests.server.running import Running, running
from tests.waiting import PATIENCE, wait_for


def _say(text: str) -> dict:
    return {"messages": [{"role": "user", "content": text}]}


def _all_at_once(*works: Callable[[], None]) -> None:
    with ThreadPoolExecutor(len(works)) as threads:
        for done in [threads.submit(work) for work in works]:
            done.result()


def _appending(server: Running, path: str, who: str, count: int) -> Callable[[], None]:
    def work() -> None:
        for at in range(count):
            got = server.post(f"{path}/messages", _say(f"{who} {at}"))
            assert got.status == 200, got.raw

    return work


def _contents(server: Running, path: str) -> list[str]:
    return [message["content"] for message in server.get(f"{path}/history").json["messages"]]


def test_what_each_caller_says_stays_in_its_order(server):
    path = server.made()
    _all_at_once(*(_appending(server, path, f"caller {who}", 10) for who in range(6)))
    found = _contents(server, path)
    assert len(found) == 60
    for who in range(6):
        mine = [text for text in found if text.startswith(f"caller {who} ")]
        assert mine == [f"caller {who} {at}" for at in range(10)]


@pytest.mark.parametrize("headers", [{}, {"Idempotency_Key": "once"}])
@pytest.mark.parametrize("step", [(append, "shorten_outputs"), (storage, "_terms")], ids=["made ready", "indexed"])
def test_an_append_is_answered_while_a_large_result_of_another_session_is_being(server, monkeypatch, step, headers):
    large, small = server.made(), server.made()
    work, is_begun, may_go_on = getattr(*step), threading.Event(), threading.Event()

    def held(*given, **options):
        is_begun.set()
        wait_for(may_go_on)
        return work(*given, **options)

    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "make"}'}}
    shown = "\n".join(f"step {at} wrote object_{at}.o" for at in range(9_000))
    messages = [
        {"role": "user", "content": "Build it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": shown},
    ]
    monkeypatch.setattr(*step, held)
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(lambda: server.post(f"{large}/messages", {"messages": messages}, **headers))
        if step[0] is storage:
            assert sent.result().status == 200
            sent = threads.submit(lambda: server.get(f"{large}/search?q=object_8765.o"))
        try:
            wait_for(is_begun)
            for at in range(3):
                assert server.post(f"{small}/messages", _say(f"small {at}")).status == 200
            assert not sent.done()
        finally:
            may_go_on.set()
        assert sent.result().status == 200
    assert server.get(f"{large}/history").json["messages"] == messages
    assert "object_8765.o" in server.get(f"{large}/search?q=object_8765.o").json["hits"][0]["text"]


def test_many_sessions_at_once_keep_their_own(server):
    paths = [server.made() for _ in range(8)]
    _all_at_once(*(_appending(server, path, path, 10) for path in paths))
    for path in paths:
        assert _contents(server, path) == [f"{path} {at}" for at in range(10)]
    assert list(server.service.store.verify()) == []


def test_one_bad_append_takes_back_nothing_of_the_others(server):
    good, bad = [server.made() for _ in range(6)], server.made()

    def failing() -> None:
        for _ in range(20):
            assert server.post(f"{bad}/messages", {"messages": [{"role": "wizard"}]}).status == 422

    _all_at_once(failing, *(_appending(server, path, path, 10) for path in good))
    for path in good:
        assert _contents(server, path) == [f"{path} {at}" for at in range(10)]
    assert _contents(server, bad) == []


def test_messages_can_be_appended_while_a_session_is_compacted(server, monkeypatch):
    path = server.made(window=200_000)
    server.post(f"{path}/messages", {"messages": conversation()})
    commit, is_made, may_go_on = compaction.commit_compaction, threading.Event(), threading.Event()

    def held(*made):
        is_made.set()
        assert may_go_on.wait(PATIENCE)
        return commit(*made)

    monkeypatch.setattr(compaction, "commit_compaction", held)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(server.post, f"{path}/compact", {"target_tokens": 9_000})
        assert is_made.wait(PATIENCE)
        _appending(server, path, "meanwhile", 10)()
        assert not answer.done()
        may_go_on.set()
        assert answer.result().json["compacted"]
    found = server.get(f"{path}/context").json["messages"]
    assert [message["content"] for message in found[-10:]] == [f"meanwhile {at}" for at in range(10)]
    assert len(found) < len(conversation())
    assert len(_contents(server, path)) == len(conversation()) + 10


def test_two_compactions_at_once_come_one_after_the_other(server, monkeypatch):
    path = server.made("twice", window=200_000)
    server.post(f"{path}/messages", {"messages": conversation()})
    compact, under_way, seen = Session.compact, [], []

    def watched(session, *wanted, **more):
        under_way.append(session)
        seen.append(len(under_way))
        wait_for(lambda: len(seen) > 1 or server.service.open_sessions._known["twice"].users == 3)
        try:
            return compact(session, *wanted, **more)
        finally:
            under_way.remove(session)

    monkeypatch.setattr(Session, "compact", watched)
    answers = []
    _all_at_once(*[lambda: answers.append(server.post(f"{path}/compact", {"target_tokens": 9_000}))] * 3)
    assert {got.status for got in answers} == {200}
    assert [got.json["compacted"] for got in answers].count(True) == 1
    assert seen == [1, 1, 1]
    assert list(server.service.store.verify()) == []


def test_a_bounded_number_of_sessions_stays_open(tmp_path):
    with running(tmp_path, open_sessions=4) as server:
        paths = [server.made() for _ in range(12)]
        for path in paths * 2:
            assert server.post(f"{path}/messages", _say("x")).status == 200
        assert len(server.service.open_sessions) <= 4
        assert {len(_contents(server, path)) for path in paths} == {2}
        held = server.service.store.open_sessions()
        assert len(held) <= 4
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("context-compactor")]


def test_a_session_that_is_not_there_is_not_kept_open(server):
    for at in range(20):
        assert server.get(f"/v1/sessions/nobody-{at}").status == 404
    assert len(server.service.open_sessions) == 0


def test_two_servers_on_one_file_are_one(tmp_path):
    with running(tmp_path) as one, running(tmp_path) as two:
        path = one.made()
        _all_at_once(*(_appending(server, path, name, 15) for server, name in ((one, "one"), (two, "two"))))
        assert _contents(one, path) == _contents(two, path)
        assert len(_contents(one, path)) == 30
        for name in ("one", "two"):
            assert [text for text in _contents(one, path) if text.startswith(name)] == [
                f"{name} {at}" for at in range(15)
            ]
        one.post(f"{path}/messages", {"messages": conversation()})
        assert one.post(f"{path}/compact", {"target_tokens": 9_000}).json["compacted"]
        assert two.get(f"{path}/context").json["messages"] == one.get(f"{path}/context").json["messages"]
        assert two.post(f"{path}/undo").json["changed"]
        assert two.get(f"{path}/context").json["messages"] == one.get(f"{path}/context").json["messages"]
        assert list(one.service.store.verify()) == []


class _Refusing:
    """A service store on a disk that refuses: no transaction of it can be kept."""

    def __init__(self, service_store: ServiceStore) -> None:
        self.savepoint = service_store.savepoint
        self._service_store = service_store

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._service_store.writing():
            yield
            raise StoreError("the disk is full")


def test_a_disk_that_refuses_is_said_to_all_and_nothing_is_half_written(server, monkeypatch):
    paths = [server.made() for _ in range(4)]
    for path in paths:
        server.post(f"{path}/messages", _say("before"))
    first, appends = server.made("first"), server.service.appends
    write, batches = appends._write, []

    def held(works):
        if not batches:
            wait_for(lambda: len(appends._waiting) == 4)
        batches.append(len(works))
        return write(works)

    monkeypatch.setattr(appends, "_write", held)
    monkeypatch.setattr(appends, "_service_store", _Refusing(server.service.service_store))
    with ThreadPoolExecutor(5) as threads:
        alone = threads.submit(server.post, f"{first}/messages", _say("alone"))
        wait_for(lambda: appends._runner is not None and not appends._waiting)
        refused = [threads.submit(server.post, f"{path}/messages", _say("during")) for path in paths]
        assert alone.result().status == 200
        assert [got.result().status for got in refused] == [503] * 4
    monkeypatch.undo()
    assert batches == [1, 4]
    for path in paths:
        assert server.post(f"{path}/messages", _say("after")).status == 200
        shown = [message["content"] for message in server.get(f"{path}/context").json["messages"]]
        assert shown == _contents(server, path) == ["before", "after"]
    assert _contents(server, first) == ["alone"]


@pytest.mark.parametrize("level", ["soft", "emergency"])
def test_a_level_that_is_reached_is_answered_at_once_or_by_a_job(tmp_path, level):
    share = {"soft": 0.82, "emergency": 0.97}[level]
    with running(tmp_path, workers=2) as server:
        size = server.post("/v1/sessions", {"id": "size", "window": 10_000_000}).json
        server.post("/v1/sessions/size/messages", {"messages": conversation()})
        tokens = server.get("/v1/sessions/size").json["tokens"]
        assert size["level"] is None
        path = server.made(window=int(tokens / share * 1.16))
        got = server.post(f"{path}/messages", {"messages": conversation()}).json
        assert server.service.engine.wait_idle(PATIENCE)
        found = server.get(path).json
        assert found["totals"]["compactions"] == 1, (got, found)
        assert (got["report"] is not None) == (level == "emergency")
