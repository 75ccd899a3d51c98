"""A request that is sent again does nothing again."""

from __future__ import annotations

import threading

import pytest

from tests.server.running import running

ASK = {"role": "user", "content": "Hello"}
OTHER = {"role": "user", "content": "Something else"}


@pytest.fixture
def server(shared):
    return shared


def test_the_second_time_is_answered_as_the_first_and_appends_nothing(server):
    path = server.made()
    first = server.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="k-1")
    second = server.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="k-1")
    assert (second.status, second.raw) == (first.status, first.raw)
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert server.get(f"{path}/history").json["messages"] == [ASK]


def test_without_a_key_the_same_message_is_appended_twice(server):
    path = server.made()
    for _ in range(2):
        server.post(f"{path}/messages", {"messages": [ASK]})
    assert server.get(f"{path}/history").json["total"] == 2


def test_a_key_belongs_to_its_session(server):
    for path in (server.made(), server.made()):
        server.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="same")
        assert server.get(f"{path}/history").json["total"] == 1


def test_a_key_cannot_be_used_for_another_body(server):
    path = server.made()
    server.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="k")
    got = server.post(f"{path}/messages", {"messages": [OTHER]}, Idempotency_Key="k")
    assert (got.status, got.problem) == (422, "key-reused")
    assert server.get(f"{path}/history").json["messages"] == [ASK]


def test_a_request_that_was_refused_leaves_its_key_free(server):
    path = server.made()
    bad = server.post(f"{path}/messages", {"messages": [{"role": "wizard"}]}, Idempotency_Key="k")
    good = server.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="k")
    assert (bad.status, good.status) == (422, 200)
    assert server.get(f"{path}/history").json["messages"] == [ASK]


@pytest.mark.parametrize("key", ["x" * 201, "tab\tkey"])
def test_a_key_that_cannot_be_one_is_refused(server, key):
    path = server.made()
    assert server.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key=key).status == 400
    assert server.get(f"{path}/history").json["total"] == 0


def test_many_at_once_with_one_key_append_once(server):
    path = server.made()
    answers = []

    def send() -> None:
        answers.append(server.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="race"))

    threads = [threading.Thread(target=send) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(got.status, got.raw) for got in answers} == {(200, answers[0].raw)}
    assert sum("idempotency-replayed" not in got.headers for got in answers) == 1
    assert server.get(f"{path}/history").json["messages"] == [ASK]


def test_a_key_is_known_to_another_server_and_after_a_restart(tmp_path):
    with running(tmp_path) as one, running(tmp_path) as two:
        path = one.made()
        first = one.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="k")
        second = two.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="k")
    with running(tmp_path) as three:
        third = three.post(f"{path}/messages", {"messages": [ASK]}, Idempotency_Key="k")
        assert first.raw == second.raw == third.raw
        assert three.get(f"{path}/history").json["total"] == 1
