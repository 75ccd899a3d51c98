"""Many callers at once: order within a session, nothing lost between them, and a bounded number of open sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from context_compactor.errors import StoreError
from tests.cli.conftest import conversation
from tests.server.running import Running, running


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


def test_messages_can_be_appended_while_a_session_is_compacted(server):
    path = server.made(window=200_000)
    server.post(f"{path}/messages", {"messages": conversation()})
    answers = []

    def compact() -> None:
        answers.append(server.post(f"{path}/compact", {"target_tokens": 9_000}))

    _all_at_once(compact, _appending(server, path, "meanwhile", 10))
    assert answers[0].status == 200
    found = server.get(f"{path}/context").json["messages"]
    assert [message["content"] for message in found[-10:]] == [f"meanwhile {at}" for at in range(10)]
    assert len(_contents(server, path)) == len(conversation()) + 10


def test_two_compactions_at_once_come_one_after_the_other(server):
    path = server.made(window=200_000)
    server.post(f"{path}/messages", {"messages": conversation()})
    answers = []
    _all_at_once(*[lambda: answers.append(server.post(f"{path}/compact", {"target_tokens": 9_000}))] * 3)
    assert {got.status for got in answers} == {200}
    assert sum(got.json["compacted"] for got in answers) >= 1
    assert list(server.service.store.verify()) == []


def test_a_bounded_number_of_sessions_stays_open(tmp_path):
    with running(tmp_path, open_sessions=4) as server:
        paths = [server.made() for _ in range(12)]
        for path in paths * 2:
            assert server.post(f"{path}/messages", _say("x")).status == 200
        assert len(server.service.opened) <= 4
        assert {len(_contents(server, path)) for path in paths} == {2}
        held = server.service.store.open_sessions()
        assert len(held) <= 4
    assert threading.active_count() < 20


def test_a_session_that_is_not_there_is_not_kept_open(server):
    for at in range(20):
        assert server.get(f"/v1/sessions/nobody-{at}").status == 404
    assert len(server.service.opened) == 0


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


def test_a_disk_that_refuses_is_said_to_all_and_nothing_is_half_written(server, monkeypatch):
    paths = [server.made() for _ in range(4)]
    for path in paths:
        server.post(f"{path}/messages", _say("before"))
    desk = server.service.desk
    whole = desk.writing

    class Refusing:
        """A transaction that cannot be kept."""

        def __init__(self) -> None:
            self.inner = whole()

        def __enter__(self) -> None:
            self.inner.__enter__()

        def __exit__(self, *_: object) -> None:
            error = StoreError("the disk is full")
            with suppress(StoreError):
                self.inner.__exit__(StoreError, error, None)
            raise error

    monkeypatch.setattr(server.service.appends, "_together", Refusing)
    statuses = []
    _all_at_once(
        *(
            lambda path=path: statuses.append(server.post(f"{path}/messages", _say("during")).status)
            for path in paths * 5
        )
    )
    monkeypatch.undo()
    assert set(statuses) <= {200, 503}
    for path in paths:
        server.post(f"{path}/messages", _say("after"))
    found = [text for path in paths for text in _contents(server, path)]
    assert found.count("during") == statuses.count(200)
    assert (found.count("before"), found.count("after")) == (4, 4)
    for path in paths:
        shown = [message["content"] for message in server.get(f"{path}/context").json["messages"]]
        assert shown == _contents(server, path)


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
        assert server.service.engine.wait_idle(30)
        told = server.get(path).json
        assert told["totals"]["compactions"] == 1, (got, told)
        assert (got["report"] is not None) == (level == "emergency")
