"""A request that is sent again does nothing again."""

from __future__ import annotations

import threading

import pytest

from tests.cli.conftest import conversation
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


# Everything that writes


def _compacted(server) -> str:
    path = server.made()
    server.post(f"{path}/messages", {"messages": conversation()})
    assert server.post(f"{path}/compact", {"target_tokens": 9_000}).json["compacted"]
    return path


@pytest.mark.parametrize("verb", ["undo", "compact", "checkpoint", "handoff"])
def test_whatever_writes_is_done_once_and_answered_as_the_first_time(server, verb):
    path = _compacted(server)
    body = {"target_tokens": 4_000} if verb == "compact" else None
    first, second = (server.post(f"{path}/{verb}", body, Idempotency_Key=f"{path}{verb}") for _ in range(2))
    assert first.status == 200
    assert (second.status, second.raw) == (first.status, first.raw)
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    if verb == "undo":
        assert server.post(f"{path}/redo").json["changed"]  # the second one would have found nothing to take back


def test_a_session_without_a_name_and_a_webhook_are_made_once(tmp_path):
    with running(tmp_path, allow_private_webhooks=True) as server:
        for path, body in (("/v1/sessions", {"window": 8_000}), ("/v1/webhooks", {"url": "http://127.0.0.1:1/a"})):
            first, second = (server.post(path, body, Idempotency_Key=path) for _ in range(2))
            assert (first.status, second.status, second.raw) == (201, 201, first.raw)
        assert len(server.get("/v1/sessions").json["sessions"]) == 1
        hooks = server.get("/v1/webhooks").json["webhooks"]
        assert len(hooks) == 1
        gone = [server.call("DELETE", f"/v1/webhooks/{hooks[0]['id']}", Idempotency_Key="d") for _ in range(2)]
        assert [got.status for got in gone] == [200, 200]


def test_a_key_cannot_be_used_for_something_else(server):
    path = _compacted(server)
    assert server.post(f"{path}/undo", Idempotency_Key="one for two").status == 200
    assert server.post(f"{path}/redo", Idempotency_Key="one for two").problem == "key-reused"


def test_what_was_refused_leaves_its_key_free(server):
    path = _compacted(server)
    assert server.post(f"{path}/restore", {"ref": "tool_999"}, Idempotency_Key="free").status == 404
    ref = server.get(f"{path}/archive").json["originals"][0]["id"]
    assert server.post(f"{path}/restore", {"ref": ref}, Idempotency_Key="free").status == 200


def test_what_was_begun_and_never_finished_is_not_done_again_by_itself(server, monkeypatch):
    """As when a server is killed between what it did and the note of it."""
    path = _compacted(server)
    with monkeypatch.context() as patch:
        patch.setattr(server.service.service_store.answers, "keep", lambda *_: None)
        assert server.post(f"{path}/undo", Idempotency_Key="killed").json["changed"]
    again = server.post(f"{path}/undo", Idempotency_Key="killed")
    assert (again.status, again.problem, again.headers["retry-after"]) == (503, "busy", "1")
    assert "broken off" in again.json["detail"]
