"""A compaction on a server can be cancelled: whoever waits for it is told, and everything is as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from context_compactor.client import Client
from context_compactor.errors import Cancelled, UnknownSession
from tests.cli.conftest import conversation
from tests.jobs.place import turn
from tests.llm.provider import Provider, Reply, failure
from tests.server.running import Running, running
from tests.waiting import PATIENCE, wait_for

SMALL = {"target_tokens": 9_000}
WORKER = [sys.executable, "-c", "from context_compactor.cli.main import main; main()", "worker", "--concurrency", "1"]


@pytest.fixture
def silent(monkeypatch) -> Iterator[Provider]:
    """A model that takes requests and says nothing; the server's own choice."""
    provider = Provider()
    provider.replies = [Reply(end="stall")]
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#silent")
    yield provider
    provider.close()


def _filled(server: Running) -> str:
    path = server.made()
    server.post(f"{path}/messages", {"messages": conversation()})
    return path


def _looks(server: Running, path: str) -> list[object]:
    found = [server.get(f"{path}/{look}").json for look in ("context", "history", "archive")]
    return [*found, server.get(f"{path}/compactions").json["compactions"]]


def test_whoever_waits_for_a_cancelled_compaction_is_told_and_nothing_is_changed(tmp_path, silent):
    with running(tmp_path) as server, ThreadPoolExecutor(1) as caller:
        path = _filled(server)
        before = _looks(server, path)
        waiting = caller.submit(server.post, f"{path}/compact", SMALL)
        wait_for(lambda: silent.bodies)
        cancelled = server.post(f"{path}/cancel").json
        assert cancelled == {"session_id": path.rpartition("/")[2], "cancelled": True, "elsewhere": False}
        waiting.result(PATIENCE)  # when a cancel is answered nothing goes on; its own answer is on its way
        assert waiting.result().problem == "cancelled"
        assert _looks(server, path) == before


def test_one_that_waits_for_its_turn_is_cancelled_too_and_the_next_one_is_not(tmp_path, silent):
    with running(tmp_path) as server, ThreadPoolExecutor(3) as callers:
        path = _filled(server)
        waiting = [callers.submit(server.post, f"{path}/compact", SMALL)]
        wait_for(lambda: silent.bodies)
        for verb, body in (("compact", SMALL), ("handoff", {"phase": "write"})):
            waiting.append(callers.submit(server.post, f"{path}/{verb}", body))
        wait_for(lambda: len(server.service.open_sessions.known(path.rpartition("/")[2])._pending) == 3)
        assert server.post(f"{path}/cancel").json["cancelled"]
        asked = len(silent.bodies)
        assert {each.result().problem for each in waiting} == {"cancelled"}
        assert len(silent.bodies) == asked  # the others were never begun
        silent.replies = [failure(400, {})]
        assert server.post(f"{path}/compact", SMALL).json["compacted"]


def test_a_cancel_when_nothing_is_under_way_cancels_nothing(server):
    path = _filled(server)
    assert server.post(f"{path}/cancel").json["cancelled"] is False
    assert server.post(f"{path}/compact", SMALL).json["compacted"]
    assert server.post(f"{path}/cancel").json["cancelled"] is False
    assert len(server.get(f"{path}/compactions").json["compactions"]) == 1
    assert server.post("/v1/sessions/nobody/cancel").problem == "unknown-session"


def test_a_cancel_does_not_touch_other_sessions_and_messages_can_still_be_appended(tmp_path, silent):
    with running(tmp_path) as server, ThreadPoolExecutor(2) as callers:
        mine, theirs = _filled(server), _filled(server)
        waiting = [callers.submit(server.post, f"{path}/compact", SMALL) for path in (mine, theirs)]
        wait_for(lambda: len(silent.bodies) > 4)  # both wait for answers
        assert server.post(f"{mine}/messages", {"messages": [{"role": "user", "content": "go on"}]}).status == 200
        assert server.post(f"{mine}/cancel").json["cancelled"]
        assert waiting[0].result().problem == "cancelled"
        assert not waiting[1].done()
        assert server.post(f"{theirs}/cancel").json["cancelled"]
        assert server.get(f"{mine}/history").json["total"] == len(conversation()) + 1


def _nearly_full(server: Running) -> str:
    """A session whose compaction waits for a worker."""
    path = server.made(window=6_000, settings={"idle_seconds": 0})
    for number in range(0, 200, 2):
        got = server.post(f"{path}/messages", {"messages": turn(number, 100)}).json
        if got["level"] is not None:
            return path
    raise AssertionError("it was never full")


def test_a_compaction_that_a_job_is_at_is_cancelled_and_not_tried_again_at_once(tmp_path, silent):
    with running(tmp_path, workers=1) as server:
        path = _nearly_full(server)
        wait_for(lambda: silent.bodies)
        cancelled = server.post(f"{path}/cancel").json
        assert (cancelled["cancelled"], cancelled["elsewhere"]) == (True, False)
        (job,) = server.service.service_store.jobs.newest(session_id=path.rpartition("/")[2])
        assert (job.state, job.reason) == ("dropped", "cancelled")
        assert server.service.engine.status().running == ()
        assert server.get(f"{path}/compactions").json["compactions"] == []


@contextmanager
def _worker(url: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*WORKER, "--store", url], stderr=subprocess.PIPE, text=True, env=environment) as run:
        try:
            assert run.stderr is not None
            assert run.stderr.readline().startswith("working on ")
            yield run
        finally:
            run.kill()


def test_a_compaction_in_another_process_hears_of_the_cancel_through_the_store(tmp_path, silent):
    with running(tmp_path, workers=0) as server:
        path = _nearly_full(server)
        name = path.rpartition("/")[2]
        with _worker(server.service.config.store):
            wait_for(lambda: silent.bodies)
            cancelled = server.post(f"{path}/cancel").json
            assert (cancelled["cancelled"], cancelled["elsewhere"]) == (False, True)
            wait_for(silent.gone.is_set)  # the worker has hung up on the model
            events = [
                kept.event.type
                for kept in server.service.service_store.events.after(0)
                if kept.event.session_id == name
            ]
            assert {"job.dropped", "compaction.refused"} <= set(events)
            assert server.get(f"{path}/compactions").json["compactions"] == []


def test_the_client_cancels_and_the_one_who_waits_gets_the_error_of_the_library(tmp_path, silent):
    with running(tmp_path) as server, Client(server.url) as client, ThreadPoolExecutor(1) as caller:
        client.create("run", window=200_000)
        client.append("run", conversation())
        waiting = caller.submit(client.compact, "run", target_tokens=9_000)
        wait_for(lambda: silent.bodies)
        assert client.cancel("run").cancelled
        with pytest.raises(Cancelled, match="cancelled"):
            waiting.result()
        assert not client.cancel("run").cancelled
        with pytest.raises(UnknownSession):
            client.cancel("nobody")


def test_a_checkpoint_is_written_with_a_note_and_kept(server):
    path = _filled(server)
    written = server.post(f"{path}/checkpoint", {"note": "mind the gap"}).json
    assert "mind the gap" in written["markdown"]
    assert written["checkpoint"]["session_id"] == path.rpartition("/")[2]
    kept = server.service.store.session(path.rpartition("/")[2])
    assert b"checkpoint" in kept.state
    assert "mind the gap" not in server.get(f"{path}/checkpoint").json["markdown"]
