"""Rows to which a server adds a way to fail: jobs, several programs, restarts, and models that hang behind HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from context_compactor.sessions import compaction
from tests.failures.served import WIRES, serving
from tests.llm.provider import Reply
from tests.server.filling import WIDE, Held, Raw, Talk, before_jobs, idle, told, turn
from tests.server.running import Running, running
from tests.sessions.summarizing import FIRST, steps
from tests.sessions.talk import illegal
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow

OPENAI = next(wire for wire in WIRES if wire.name == "openai")
DONE = ["summary.applied", "session.compacted"]
STEPS = [*FIRST, *steps(0, 56)]
LATE = [{"role": "user", "content": f"By the way, number {number}."} for number in range(3)]

Serve = Callable[..., Any]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def served(**options: Any) -> Iterator[Running]:
        with running(tmp_path, **{"workers": 2} | options) as server:
            yield server

    return served


@pytest.fixture
def server(serve: Serve) -> Iterator[Running]:
    with serve() as made:
        yield made


@contextmanager
def with_model(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Iterator[Any]:
    """A server's own model, at an address of its own."""
    with serving(answer) as provider:
        monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#small")
        monkeypatch.setenv("COMPACTOR_SUMMARIZER_WINDOW", "100000")
        yield provider


# D


def after_the_engine(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Something happens once when a compaction is made and not yet committed."""
    run, left = compaction.run_engine, [meanwhile]

    def made(*given: Any, **more: Any) -> Any:
        result = run(*given, **more)
        while left:
            left.pop()()
        return result

    monkeypatch.setattr(compaction, "run_engine", made)


def test_messages_that_come_while_a_job_compacts_are_there_once_in_order_and_behind_the_record(
    server: Running, monkeypatch: pytest.MonkeyPatch
):
    """Row 59: when it begins, before it commits, and when it has committed and is not yet done."""
    talk = Talk(server)
    late = list(LATE)
    talk.fill(0.78)

    def come(_: object = None) -> None:
        if late:
            assert talk.say(late.pop(0))["appended"] == 1

    after_the_engine(monkeypatch, come)
    server.service.bus.subscribe(come, types=("session.compacted",))
    with before_jobs(server, come):
        talk.fill(0.82)
        idle(server)
    assert late == []
    assert talk.history == talk.said
    assert talk.context[-2:] == LATE[1:]
    assert len(talk.compactions) == 1
    assert illegal(talk.context) == []
    assert list(server.service.store.verify()) == []


def test_a_summary_of_a_context_that_was_changed_meanwhile_is_dropped_and_its_archive_kept(
    server: Running, monkeypatch: pytest.MonkeyPatch
):
    """Row 60: a caller compacts by hand while a job is about to commit."""
    talk = Talk(server)
    talk.fill(0.78)
    after_the_engine(monkeypatch, lambda: by_hand(talk, "emergency"))
    talk.fill(0.82)
    idle(server)
    assert [report["level"] for report in talk.compactions] == ["emergency"]
    assert talk.history == talk.said
    assert talk.types() == ["threshold.crossed", "job.queued", *DONE, "compaction.refused"]
    assert server.get(f"{talk.path}/archive/turn_001").status == 200
    assert {job.state for job in talk.jobs} == {"done"}


def by_hand(talk: Talk, level: str = "soft") -> None:
    assert talk.compact(level=level).json["compacted"]


def by_handoff(talk: Talk) -> None:
    assert talk.server.post(f"{talk.path}/handoff", {"phase": "write"}).status == 200


def by_button(talk: Talk) -> None:
    body = b"level=soft"
    headers = {"Content_Type": "application/x-www-form-urlencoded", "Origin": talk.server.url}
    assert talk.server.call("POST", f"/sessions/{talk.name}/compact", body, **headers).status in (200, 303)


def by_job(talk: Talk) -> None:
    talk.fill(0.82)
    idle(talk.server)


def by_emergency(talk: Talk) -> None:
    assert talk.fill(0.97)["report"] is not None


@pytest.mark.parametrize("path", [by_hand, by_handoff, by_button, by_job, by_emergency])
def test_every_path_over_http_tells_the_same_events(server: Running, path: Callable[[Talk], None]):
    """Row 61."""
    talk = Talk(server)
    talk.fill(0.70)
    path(talk)
    before = {by_job: ["threshold.crossed", "job.queued"], by_emergency: ["threshold.crossed"]}
    assert talk.types() == [*before.get(path, []), *DONE]
    payloads = [each["payload"] for each in talk.told(*DONE)]
    assert payloads[0] == payloads[1]
    (report,) = talk.compactions
    assert payloads[0]["compaction_id"] == report["compaction_id"]
    assert payloads[0]["tokens_saved"] == report["tokens_saved"]


def test_a_crossing_whose_job_never_came_to_its_end_is_taken_up_by_the_next_server(serve: Serve):
    """Row 64: it was told that a compaction comes, and then the server was stopped."""
    with serve() as server:
        talk, held = Talk(server), Held()
        with before_jobs(server, held):
            talk.fill(0.82)
            wait_for(held.begun.is_set)
            server.service.engine.stop(finish=False)
        assert [job.state for job in talk.jobs] == ["waiting"]
        assert talk.types() == ["threshold.crossed", "job.queued"]
    with serve() as server:
        idle(server)
        types = [each["type"] for each in told(server)]
    assert types == ["threshold.crossed", "job.queued", *DONE]


def test_two_servers_and_a_caller_who_compact_one_session_at_once_leave_one_context(serve: Serve):
    """Row 65: each compaction is whole, and was made from what the one before it had left."""
    with serve() as one, serve() as two, ThreadPoolExecutor(6) as callers:
        talk = Talk(one, window=8_000)
        for _ in range(3):
            talk.fill(0.84)
            asks = [callers.submit(server.post, f"{talk.path}/compact", {}) for server in (one, two) * 2]
            assert {ask.result().status for ask in asks} <= {200, 409}
            idle(one)
        assert talk.context == two.get(f"{talk.path}/context").json["messages"]
        assert talk.history == talk.said
        assert illegal(talk.context) == []
        applied = [each["payload"]["compaction_id"] for each in talk.told("summary.applied")]
        assert applied == [report["compaction_id"] for report in talk.compactions]
        assert len(set(applied)) == len(applied)
        assert list(one.service.store.verify()) == []


def test_a_setting_of_one_session_does_not_change_another_that_is_served_at_the_same_time(server: Running):
    """Row 66."""
    chosen: dict[str, dict[str, Any]] = {
        "off": {"enabled": False},
        "asked": {"automatic": False},
        "early": {"levels": [{"level": "soft", "threshold": 0.5, "target": 0.3}]},
        "plain": {},
    }
    talks = {name: Talk(server, name, WIDE, **settings) for name, settings in chosen.items()}
    with ThreadPoolExecutor(4) as callers:
        for _ in range(9):
            list(callers.map(lambda talk: talk.turns(10), talks.values()))
    idle(server)
    counts = {name: len(talk.compactions) for name, talk in talks.items()}
    assert counts == {"off": 0, "asked": 0, "early": 1, "plain": 0}
    for name, settings in chosen.items():
        assert talks[name].seen["settings"].items() >= settings.items()
        assert talks[name].history == talks[name].said


def test_references_live_on_after_a_restart_of_the_server(serve: Serve):
    """Row 68."""
    with serve() as server:
        talk = Talk(server)
        talk.fill(0.70)
        refs = [item["id"] for item in talk.compact(level="emergency").json["report"]["archived"]]
        before = {ref: server.get(f"{talk.path}/archive/{ref}").json["text"] for ref in refs}
    assert before
    with serve() as server:
        assert {ref: server.get(f"{talk.path}/archive/{ref}").json["text"] for ref in refs} == before


# E


def test_the_first_request_after_a_restart_with_a_smaller_window_is_checked(serve: Serve):
    """Row 76."""
    with serve() as server:
        talk = Talk(server, window=60_000)
        for _ in range(10):
            talk.turns(10)
        assert talk.compactions == []
    with serve() as server:
        talk.server = server
        assert server.post("/v1/sessions", {"id": talk.name, "window": 12_000}).status == 200
        idle(server)
        assert len(talk.compactions) == 1
        assert talk.seen["tokens"] < 0.8 * 12_000


def test_off_means_that_no_route_changes_anything(server: Running):
    """Row 78."""
    talk = Talk(server, enabled=False)
    talk.fill(0.97)
    before = talk.context
    assert before == talk.said
    assert not talk.compact(level="emergency").json["compacted"]
    server.post(f"{talk.path}/handoff", {"phase": "write"})
    server.post(f"{talk.path}/undo")
    idle(server)
    assert talk.context == talk.said == talk.history
    assert talk.compactions == []
    assert not set(talk.types()) & {*DONE, "job.queued"}


def test_a_model_that_hangs_is_ended_by_the_deadline_and_keeps_neither_the_session_nor_the_server_waiting(
    server: Running, monkeypatch: pytest.MonkeyPatch
):
    """Row 82: the digest stands, and meanwhile everybody is served."""
    monkeypatch.setenv("COMPACTOR_DEADLINE_SECONDS", "6")
    with with_model(monkeypatch, Reply(pieces=OPENAI.text("Well"), end="stall")) as provider:
        talk, other = Talk(server, window=60_000), Talk(server, "other")
        talk.say(*STEPS)
        with ThreadPoolExecutor(1) as caller:
            asked = caller.submit(talk.compact)
            wait_for(lambda: provider.bodies)
            assert other.say(LATE[0])["appended"] == 1
            assert server.post(f"{talk.path}/messages", {"messages": [LATE[0]]}).json["appended"] == 1
            assert server.get(f"{talk.path}/context").status == 200
            done = asked.result().json
    assert done["compacted"]
    assert "deadline" in done["reason"]
    assert talk.context[-1] == LATE[0]
    assert talk.history == [*talk.said, LATE[0]]


def test_what_waits_for_a_model_when_a_server_is_told_to_stop_is_left_as_it_was_and_done_by_the_next(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    """Row 82: in a job."""
    with with_model(monkeypatch, Reply(pieces=OPENAI.text("Well"), end="stall")) as provider:
        with serve(stop_seconds=1) as server:
            talk = Talk(server, window=32_000)
            said: list[Raw] = []
            for raws in ([*FIRST, *steps(0, 44)], *(steps(at, at + 1) for at in range(44, 80))):
                if talk.jobs:
                    break
                said += raws
                talk.say(*raws)
            assert talk.jobs
            wait_for(lambda: provider.bodies)
            before = talk.context
        assert before == said
    monkeypatch.delenv("COMPACTOR_SUMMARIZER")
    with serve() as server:
        talk.server = server
        idle(server)
        assert talk.history == said
        assert len(talk.compactions) == 1
        assert json.dumps(talk.compactions[0]["model_calls"]) == "[]"


def test_a_caller_who_leaves_amid_a_compaction_leaves_no_half_of_it(server: Running, monkeypatch: pytest.MonkeyPatch):
    """Row 82: it is done or it is not."""
    talk = Talk(server)
    talk.fill(0.70)
    begun, go_on = Event(), Event()
    archive = server.service.store.archive

    def slow(*given: Any) -> list[str]:
        begun.set()
        assert go_on.wait(PATIENCE)
        return archive(*given)

    monkeypatch.setattr(server.service.store, "archive", slow)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request("POST", f"{talk.path}/compact", b"{}", {"Content-Type": "application/json"})
    wait_for(begun.is_set)
    connection.close()
    go_on.set()
    wait_for(lambda: talk.compactions)
    assert talk.say(*turn(900))["appended"] == 2
    assert talk.types() == DONE
    assert illegal(talk.context) == []
