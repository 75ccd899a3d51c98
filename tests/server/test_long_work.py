"""What waits for a model keeps nobody else waiting, and has an end when the server stops."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.conftest import conversation
from tests.llm.provider import Provider, Reply
from tests.server.running import running
from tests.waiting import PATIENCE, wait_for

SMALL = {"target_tokens": 9_000}


@pytest.fixture
def silent(monkeypatch) -> Iterator[Provider]:
    """A model that takes requests and says nothing; the server's own choice."""
    provider = Provider()
    provider.replies = [Reply(end="stall")]
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#silent")
    yield provider
    provider.close()


def test_many_compactions_that_wait_for_a_model_keep_nobody_else_waiting(tmp_path, silent):
    with running(tmp_path, threads=2) as server, ThreadPoolExecutor(8) as callers:
        paths = [server.made() for _ in range(8)]
        for path in paths:
            server.post(f"{path}/messages", {"messages": conversation()})
        waiting = [callers.submit(server.post, f"{path}/compact", SMALL) for path in paths]
        wait_for(lambda: silent.bodies)
        assert server.get("/healthz").status == 200
        assert server.get(f"{paths[0]}/context").status == 200
        assert server.post(f"{paths[0]}/messages", {"messages": [{"role": "user", "content": "go on"}]}).status == 200
        assert not any(each.done() for each in waiting)
        server.service.long_work.cancel()
        wait_for(lambda: all(each.done() for each in waiting))
        assert {each.result().problem for each in waiting} == {"stopped"}


def test_a_compaction_that_waits_for_a_model_is_broken_off_when_the_server_stops(tmp_path, silent):
    with running(tmp_path, stop_seconds=6) as server, ThreadPoolExecutor(1) as caller:
        path = server.made()
        server.post(f"{path}/messages", {"messages": conversation()})
        waiting = caller.submit(server.post, f"{path}/compact", SMALL)
        wait_for(lambda: silent.bodies)
        server.listener.should_exit = True
        got = waiting.result(PATIENCE)
    assert (got.status, got.problem) == (503, "stopped")
    with running(tmp_path) as server:
        assert server.get(f"{path}/compactions").json["compactions"] == []
        assert len(server.get(f"{path}/history").json["messages"]) == len(conversation())
