"""Deleting over HTTP: a session is gone for everybody at once, whatever is under way in it, and only for its owners."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from context_compactor.client import AsyncClient, Client
from context_compactor.errors import ServerDenied, UnknownSession
from context_compactor.sessions.session import Session
from context_compactor.store.rows import Webhook
from tests.cli.conftest import conversation
from tests.jobs.place import turn
from tests.llm.provider import Provider
from tests.postgres import STORES
from tests.server.running import Running, running
from tests.server.test_auth import Guarded, guarded
from tests.server.test_cancel import silent
from tests.waiting import PATIENCE, wait_for

__all__ = ["guarded", "silent"]

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
PARTS = ("", "/context", "/history", "/compactions", "/archive", "/facts", "/checkpoint", "/search?q=a", "/plan")


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch):
    """A server over each kind of store."""
    monkeypatch.chdir(tmp_path)
    more = {"store": request.getfixturevalue("postgres_url")} if request.param == "postgres" else {}
    with running(tmp_path, **more) as made:
        yield made


def spoken(server: Running, name: str) -> str:
    path = server.made(name)
    assert server.post(f"{path}/messages", {"messages": conversation()}, Idempotency_Key="first").status == 200
    assert server.post(f"{path}/compact", {"target_tokens": 9_000}).json["compacted"]
    return path


def test_a_deletion_whose_answer_was_lost_is_answered_as_the_first_time(place: Running):
    gone = spoken(place, "gone")
    answers = [place.call("DELETE", gone, Idempotency_Key="k") for _ in range(2)]
    assert [(answer.status, answer.raw) for answer in answers] == [(204, b"")] * 2
    assert place.call("DELETE", gone, Idempotency_Key="other").status == 404


def test_a_deleted_session_is_answered_like_one_that_never_was(place: Running):
    gone, stays = spoken(place, "gone"), spoken(place, "stays")
    before = {part: place.get(f"{stays}{part}").raw for part in PARTS[1:6]}
    got = place.call("DELETE", gone)
    assert (got.status, got.raw) == (204, b"")
    for part in PARTS:
        assert place.get(f"{gone}{part}").json == place.get(f"/v1/sessions/never{part}").json | {
            "detail": "There is no session 'gone'. Try: GET /v1/sessions."
        }
    again = place.call("DELETE", gone)
    assert (again.status, again.problem) == (404, "unknown-session")
    assert place.post(f"{gone}/messages", HELLO).status == 404
    assert [each["id"] for each in place.get("/v1/sessions").json["sessions"]] == ["stays"]
    assert {part: place.get(f"{stays}{part}").raw for part in before} == before
    assert list(place.service.store.verify()) == []


def test_a_session_of_the_same_name_begins_empty_and_its_keys_are_new(place: Running):
    path = spoken(place, "run")
    place.call("DELETE", path)
    assert place.made("run") == path
    assert place.get(f"{path}/history").json["messages"] == []
    assert place.get(f"{path}/archive").json["originals"] == []
    assert place.post(f"{path}/messages", HELLO, Idempotency_Key="first").json["messages"] == 1
    (found,) = place.service.service_store.events.newest(session_id="run")
    assert (found.event.type, found.event.payload) == ("session.deleted", {"messages": len(conversation())})


def test_another_server_of_the_same_store_goes_on_with_the_new_session(tmp_path: Path, postgres_url: str, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(tmp_path, store=postgres_url) as one, running(tmp_path, store=postgres_url) as other:
        path = spoken(one, "run")
        assert other.post(f"{path}/messages", HELLO).status == 200
        one.call("DELETE", path)
        assert other.get(f"{path}/context").status == 404
        assert other.post(f"{path}/messages", HELLO).status == 404
        one.made("run")
        one.post(f"{path}/messages", HELLO)
        got = other.post(f"{path}/messages", HELLO)
        assert (got.status, got.json["messages"]) == (200, 2)
        one.call("DELETE", path)
        one.made("run")
        assert other.post(f"{path}/messages", HELLO).json["messages"] == 1
        assert other.get(f"{path}/context").json["messages"] == HELLO["messages"]


def test_a_session_of_another_namespace_cannot_be_deleted_nor_told_from_none(guarded: Guarded):
    for name in ("red", "blue", "plain"):
        guarded.post("/v1/sessions", {"id": "same", "window": 1000}, **guarded.as_(name))
    foreign = guarded.post("/v1/sessions", {"id": "theirs", "window": 1000}, **guarded.as_("blue"))
    assert foreign.status == 201
    got = guarded.call("DELETE", "/v1/sessions/theirs", **guarded.as_("red"))
    never = guarded.call("DELETE", "/v1/sessions/theirt", **guarded.as_("red"))
    assert (got.status, got.raw.replace(b"theirs", b"theirt")) == (404, never.raw)
    assert guarded.call("DELETE", "/v1/sessions/blue%2Ftheirs", **guarded.as_("plain")).status == 404
    assert guarded.call("DELETE", "/v1/sessions/same", **guarded.as_("watcher")).status == 403
    assert guarded.call("DELETE", "/v1/sessions/same").status == 401
    assert guarded.call("DELETE", "/v1/sessions/same", **guarded.as_("red")).status == 204
    for name, status in (("red", 404), ("blue", 200), ("plain", 200)):
        assert guarded.get("/v1/sessions/same", **guarded.as_(name)).status == status


def test_a_namespace_is_not_deleted_with_the_session_of_its_name(guarded: Guarded):
    guarded.post("/v1/sessions", {"id": "red", "window": 1000}, **guarded.as_("plain"))
    guarded.post("/v1/sessions", {"id": "inside", "window": 1000}, **guarded.as_("red"))
    assert guarded.call("DELETE", "/v1/sessions/red", **guarded.as_("plain")).status == 204
    assert guarded.get("/v1/sessions/inside", **guarded.as_("red")).status == 200


def test_what_a_session_leaves_behind_is_removed_though_nobody_waits_for_it(place: Running):
    for name in ("one", "two"):
        assert place.call("DELETE", spoken(place, name)).status == 204
    rows = place.service.store._database.rows
    wait_for(lambda: not any(rows(f"SELECT 1 FROM {table}") for table in ("contents", "entries", "deleted_sessions")))


# While something is under way


def test_a_compaction_that_somebody_waits_for_is_ended_and_the_session_is_gone(tmp_path: Path, silent: Provider):
    with running(tmp_path) as server, ThreadPoolExecutor(1) as caller:
        path = server.made("run")
        server.post(f"{path}/messages", {"messages": conversation()})
        waiting = caller.submit(server.post, f"{path}/compact", {"target_tokens": 9_000})
        wait_for(lambda: silent.bodies)
        assert server.call("DELETE", path).status == 204
        assert waiting.result().problem == "cancelled"
        assert server.get(path).status == 404
        assert told_of(server, "run") == ["session.deleted"]


def test_a_compaction_that_a_job_is_at_is_ended_without_a_word(tmp_path: Path, silent: Provider, caplog):
    with running(tmp_path, workers=1) as server:
        path = server.made("run", window=6_000, settings={"idle_seconds": 0})
        numbers = iter(range(0, 400, 2))
        while server.post(f"{path}/messages", {"messages": turn(next(numbers), 100)}).json["level"] is None:
            pass
        wait_for(lambda: silent.bodies)
        assert server.call("DELETE", path).status == 204
        engine = server.service.engine
        assert engine is not None
        wait_for(lambda: not engine.status().running)
        assert server.service.service_store.jobs.newest(session_id="run") == []
        assert told_of(server, "run") == ["session.deleted"]
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def told_of(server: Running, session_id: str) -> list[str]:
    """The types of the events that are kept of a session."""
    return [kept.event.type for kept in server.service.service_store.events.newest(session_id=session_id)]


def test_jobs_of_a_deleted_session_end_without_a_word(tmp_path: Path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    with running(tmp_path, workers=1) as server:
        path = server.made("run", window=20_000, settings={"idle_seconds": 0.0})
        for _ in range(3):
            server.post(f"{path}/messages", {"messages": conversation()})
        assert server.call("DELETE", path).status == 204
        engine = server.service.engine
        assert engine is not None
        assert engine.wait_idle(PATIENCE)
        assert server.service.service_store.jobs.newest(session_id="run") == []
        assert told_of(server, "run") == ["session.deleted"]
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_many_who_delete_and_append_at_once_get_an_answer_each_and_nothing_is_half_there(place: Running):
    path, statuses = place.made("run"), []

    def work(number: int) -> None:
        for _ in range(6):
            got = place.call("DELETE", path) if number % 2 else place.post(f"{path}/messages", HELLO)
            statuses.append(got.status)
            if number == 1:
                place.post("/v1/sessions", {"id": "run", "window": 1000})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 204, 404}
    assert statuses.count(204) >= 1
    assert list(place.service.store.verify()) == []


# Who is told


def test_a_webhook_is_told_of_the_deletion_and_of_nothing_else_of_the_session(server: Running):
    service_store = server.service.service_store
    service_store.webhooks.add(Webhook("wh_1", "", "https://127.0.0.1:1/", "s", (), "2026-01-01", disabled_at=""))
    path = spoken(server, "run")
    assert len(service_store.webhooks.waiting("wh_1")) > 1
    server.call("DELETE", path)
    assert [each.kept.event.type for each in service_store.webhooks.waiting("wh_1")] == ["session.deleted"]


def test_files_beside_the_store_go_with_a_session_of_a_server_too(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/.compactor/compactor.db"
    with Session.open("run", window=20_000, store=url) as session:
        session.append(conversation())
        session.compact(target_tokens=9_000)
    assert (tmp_path / ".tmp/context-archive/run/manifest.json").exists()
    with running(tmp_path, store=url) as server:
        assert server.call("DELETE", "/v1/sessions/run").status == 204
    assert not (tmp_path / ".tmp/context-archive/run").exists()
    assert not (tmp_path / ".compactor/progress-checkpoint.md").exists()


# Clients


def test_both_clients_delete_a_session_and_say_when_there_is_none(server: Running):
    spoken(server, "one")
    spoken(server, "two")
    with Client(server.url) as client:
        client.delete("one")
        with pytest.raises(UnknownSession, match="'one'"):
            client.delete("one")

    async def delete() -> None:
        async with AsyncClient(server.url) as client:
            await client.delete("two")
            with pytest.raises(UnknownSession):
                await client.delete("two")

    asyncio.run(delete())
    assert server.get("/v1/sessions").json["sessions"] == []


def test_a_client_that_may_only_read_is_denied(guarded: Guarded):
    with Client(guarded.url, guarded.secrets["watcher"]) as client, pytest.raises(ServerDenied):
        client.delete("anything")
