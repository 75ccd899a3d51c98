"""An emergency is answered in the request that brings it, and when that fails, by whoever comes next."""

from __future__ import annotations

import pytest

from context_compactor.errors import StoreLocked
from context_compactor.server.open_sessions import SessionHandle
from tests.jobs.place import turn
from tests.server.running import running

WINDOW = 14_000
LOUD = {"messages": [message for number in range(0, 84, 2) for message in turn(number, 400)]}
QUIET = {"messages": [{"role": "user", "content": "and now?"}]}


@pytest.fixture
def broken_once(monkeypatch):
    """The store is locked by somebody else, once, when an append has written its messages and looks again."""
    look, fails = SessionHandle.session, [True]

    def busy(opened: SessionHandle):
        if fails:
            fails.pop()
            raise StoreLocked("the store was locked by another process")
        return look(opened)

    return lambda: monkeypatch.setattr(SessionHandle, "session", busy)


def test_an_emergency_is_answered_in_the_request(server):
    path = server.made(window=WINDOW)
    got = server.post(f"{path}/messages", LOUD).json
    assert got["report"]["level"] == "emergency"
    assert got["share"] < 0.8


def test_a_replay_is_answered_as_the_first_time_with_the_report_too(server):
    path = server.made(window=WINDOW)
    first = server.post(f"{path}/messages", LOUD, Idempotency_Key="k")
    assert first.json["report"]["level"] == "emergency"
    again = server.post(f"{path}/messages", LOUD, Idempotency_Key="k")
    assert (again.status, again.raw) == (200, first.raw)
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("key", [{}, {"Idempotency_Key": "k"}])
def test_messages_that_are_written_are_said_to_be_whatever_follows_from_them(server, broken_once, key):
    path = server.made(window=WINDOW)
    broken_once()
    got = server.post(f"{path}/messages", LOUD, **key)
    assert (got.status, got.json["appended"], got.json["report"]) == (200, len(LOUD["messages"]), None)
    assert server.get(f"{path}/history").json["total"] == len(LOUD["messages"])


def test_messages_that_are_written_are_said_to_be_though_the_session_cannot_be_closed_either(
    server, broken_once, monkeypatch
):
    def stuck(opened: SessionHandle) -> None:
        raise StoreLocked("the store is still locked")

    path = server.made(window=WINDOW)
    broken_once()
    with monkeypatch.context() as patch:
        patch.setattr(SessionHandle, "close", stuck)
        assert server.post(f"{path}/messages", LOUD).status == 200


def test_an_emergency_that_nobody_answered_is_answered_by_the_next_message(server, broken_once):
    path = server.made(window=WINDOW)
    broken_once()
    assert server.post(f"{path}/messages", LOUD).json["report"] is None
    assert server.post(f"{path}/messages", QUIET).json["report"]["level"] == "emergency"


def test_an_emergency_that_nobody_answered_is_answered_by_the_next_look_at_the_context(server, broken_once):
    path = server.made(window=WINDOW)
    broken_once()
    assert server.post(f"{path}/messages", LOUD, Idempotency_Key="k").json["report"] is None
    assert server.post(f"{path}/messages", LOUD, Idempotency_Key="k").json["report"] is None
    assert server.get(f"{path}/context").json["tokens"] < 0.8 * WINDOW
    assert len(server.get(f"{path}/compactions").json["compactions"]) == 1


def test_an_emergency_is_answered_after_the_server_was_killed_before_it_could(tmp_path, monkeypatch):
    def killed(opened: SessionHandle):
        raise StoreLocked("as if the process had ended here")

    with running(tmp_path) as server:
        path = server.made("run", window=WINDOW)
        with monkeypatch.context() as patch:
            patch.setattr(SessionHandle, "session", killed)
            server.post(f"{path}/messages", LOUD)
    with running(tmp_path) as server:
        assert server.get(f"{path}/context").json["tokens"] < 0.8 * WINDOW


def test_an_emergency_that_cannot_be_helped_is_not_tried_again_with_every_message(server):
    path = server.made(window=WINDOW, settings={"overhead_tokens": WINDOW})
    first = server.post(f"{path}/messages", QUIET).json
    assert first["report"]["status"] in ("partial", "unchanged")
    later = [server.post(f"{path}/messages", QUIET).json["report"] for _ in range(5)]
    assert later == [None] * 5
