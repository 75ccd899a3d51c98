"""What is promised of the whole service, sentence by sentence, over HTTP and on every store.

`tests/jobs/README.md` is the map from the sentences to the tests here and elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import pytest

from context_compactor.server import metrics as metrics_module
from context_compactor.store.rows import Job
from tests.postgres import STORES
from tests.server.filling import WIDE, Held, Raw, Talk, before_jobs, idle, told, turn
from tests.server.receivers import receiving
from tests.server.running import Running, running
from tests.server.streams import following
from tests.sessions.talk import illegal
from tests.waiting import PATIENCE, wait_for

Serve = Callable[..., Any]


@pytest.fixture(params=STORES)
def serve(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Begins a server on the store of the test; a second time on the same one."""
    monkeypatch.chdir(tmp_path)
    is_sqlite = request.param == "sqlite"
    store = f"sqlite:///{tmp_path}/compactor.db" if is_sqlite else request.getfixturevalue("postgres_url")

    @contextmanager
    def served(**options: Any) -> Iterator[Running]:
        with running(tmp_path, **{"store": store, "workers": 3} | options) as server:
            yield server

    return served


@pytest.fixture
def server(serve: Serve) -> Iterator[Running]:
    """A server that does its jobs."""
    with serve() as made:
        yield made


@pytest.fixture
def slow(serve: Serve) -> Iterator[Running]:
    """A server whose jobs nobody does, so that they wait."""
    with serve(workers=0) as made:
        yield made


def failing(times: int) -> tuple[list[int], Callable[[Job], None]]:
    """Jobs that fail so many times, and the attempts that were made."""
    attempts: list[int] = []

    def before(job: Job) -> None:
        attempts.append(job.attempts)
        if len(attempts) <= times:
            raise TimeoutError("the model call times out")

    return attempts, before


def step(number: int) -> list[Raw]:
    """What an agent does by itself: it reads a file and goes on."""
    function = {"name": "read_file", "arguments": f'{{"path": "src/part_{number}.py"}}'}
    lines = "\n".join(f"def part_{number}_{line}(value): return value + {line * number}" for line in range(18))
    return [
        {
            "role": "assistant",
            "content": f"Reading part {number}.",
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"call_{number}", "content": lines},
    ]


# Why it matters


def test_at_the_right_moment_it_summarizes_into_a_compact_digest_preserving_what_matters_and_freeing_up_space(
    server: Running,
):
    talk = Talk(server)
    talk.say(
        {"role": "system", "content": "You are a careful engineer. Never touch legacy/."},
        {"role": "user", "content": "We decided to use SQLite for the store. Do not use an ORM."},
        {"role": "assistant", "content": "Agreed: SQLite, and no ORM."},
    )
    talk.fill(0.60)
    talk.fill(0.82)
    idle(server)
    assert talk.share <= 0.40
    seen = "\n".join(str(message["content"]) for message in talk.context)
    assert "Never touch legacy/." in seen
    assert "SQLite" in seen
    assert "ORM" in seen
    assert talk.history == talk.said
    assert talk.say(*turn(1_000))["share"] < 0.45  # there is room for the conversation to continue
    assert talk.context[-2:] == turn(1_000)


def test_without_compaction_a_long_conversation_would_hit_the_limit_and_with_it_nobody_has_to_ask(server: Running):
    off, on = Talk(server, "off", window=8_000, enabled=False), Talk(server, "on", window=8_000)
    for talk in (off, on):
        for _ in range(30):
            talk.turns(4)
            idle(server)
    assert off.seen["tokens"] > 8_000
    assert on.seen["tokens"] < 8_000
    assert on.seen["totals"]["compactions"] >= 1
    assert {report["trigger"] for report in on.compactions} == {"threshold"}


def test_it_is_proactive_it_summarizes_before_things_become_critical(server: Running):
    talk = Talk(server, window=12_000)
    highest = 0.0
    for _ in range(150):
        highest = max(highest, talk.turns(1)["share"])
        idle(server)
    assert {report["level"] for report in talk.compactions} == {"soft"}
    assert len(talk.compactions) >= 2
    assert 0.80 <= highest < 0.85


def test_it_compacts_more_aggressively_if_the_situation_is_urgent(server: Running):
    left = {}
    for name, share in (("soft", 0.82), ("aggressive", 0.88), ("emergency", 0.97)):
        talk = Talk(server, name)
        talk.fill(0.60)
        talk.fill(share)
        idle(server)
        assert [report["level"] for report in talk.compactions] == [name]
        left[name] = talk.share
    assert left["soft"] > left["aggressive"] > left["emergency"]


def test_agents_running_long_autonomous_tasks_never_hit_the_limit_not_over_days_and_restarts(serve: Serve):
    """Nothing waits for the jobs: whatever they have not done when the next message comes must not matter."""
    window, number, name = 6_000, 0, "days"
    task = {"role": "user", "content": "Read every part of src/ and keep a list. Never touch legacy/."}
    said: list[Raw] = []
    for day in range(4):
        with serve() as server:
            path = f"/v1/sessions/{name}" if day else Talk(server, name, window).path
            for raws in [[task]] * (not day) + [step(number + at) for at in range(30)]:
                got = server.post(f"{path}/messages", {"messages": raws}).json
                said += raws
                assert got["share"] < 1.0
                assert got["tokens"] < window
            number += 30
            sent = server.get(f"{path}/context").json
            assert illegal(sent["messages"]) == []
            assert "Never touch legacy/." in str(sent["messages"])
    with serve() as server:
        assert server.get(f"/v1/sessions/{name}/history").json["messages"] == said
        totals = server.get(f"/v1/sessions/{name}").json["totals"]
        assert totals["compactions"] >= 4
        assert list(server.service.store.verify()) == []


# How it works


def test_after_every_message_it_checks_how_full_the_context_is(slow: Running):
    talk = Talk(slow)
    talk.fill(0.70)
    while talk.share < 0.80:
        assert talk.jobs == []
        told_share = talk.say(*turn(len(talk.said)))["share"]
        assert told_share == talk.share
    assert talk.levels == [("soft", "waiting")]


def test_utilization_is_estimated_from_the_length_of_the_history_relative_to_the_models_token_budget(slow: Running):
    small, large = Talk(slow, "small", window=20_000), Talk(slow, "large", window=40_000)
    shares = []
    for _ in range(5):
        answers = [talk.turns(8) for talk in (small, large)]
        assert answers[0]["tokens"] == answers[1]["tokens"]
        shares.append([answer["share"] for answer in answers])
        for talk, answer in zip((small, large), answers, strict=True):
            usage = talk.seen["usage"]
            assert answer["share"] == pytest.approx(usage["tokens"] / usage["budget_tokens"], abs=1e-3)
    assert shares == sorted(shares)
    assert all(half > whole for half, whole in shares)
    budgets = [talk.seen["usage"]["budget_tokens"] for talk in (small, large)]
    assert budgets[0] < 20_000
    assert budgets[1] < 40_000


def test_when_a_threshold_is_crossed_a_job_is_scheduled_for_that_session(slow: Running):
    full, other = Talk(slow, "full"), Talk(slow, "other")
    other.fill(0.60)
    full.fill(0.82)
    assert full.levels == [("soft", "waiting")]
    assert other.jobs == []
    assert full.compactions == []  # nobody has waited for it


@pytest.mark.parametrize(("share", "level", "target"), [(0.82, "soft", 0.40), (0.87, "aggressive", 0.25)])
def test_soft_is_triggered_at_80_and_aggressive_at_85_percent_and_each_does_its_own_amount(
    server: Running, share: float, level: str, target: float
):
    talk = Talk(server)
    talk.fill(0.60)
    talk.fill(share)
    idle(server)
    (report,) = talk.compactions
    assert (report["level"], report["trigger"]) == (level, "threshold")
    assert talk.share <= target


def test_emergency_is_triggered_at_95_percent_at_once_in_the_request(slow: Running):
    talk = Talk(slow)
    talk.fill(0.60)
    answer = talk.fill(0.97)
    assert answer["report"]["level"] == "emergency"
    assert answer["share"] <= 0.15
    assert answer["share"] == talk.share
    assert [job for job in talk.jobs if job.kind == "compact"] == []
    assert "job.queued" not in talk.types()


def test_each_level_is_triggered_at_most_once_per_session_until_it_has_been_left(server: Running):
    talk = Talk(server, window=WIDE)
    held = Held()
    with before_jobs(server, held):
        talk.fill(0.82)
        for _ in range(3):
            talk.turns(1)
        assert [each["payload"]["level"] for each in talk.told("threshold.crossed")] == ["soft"]
        held.go_on.set()
        idle(server)
    assert [each["payload"]["level"] for each in talk.told("threshold.crossed")] == ["soft"]
    talk.fill(0.82)  # it was left: the next natural crossing counts again
    idle(server)
    assert [each["payload"]["level"] for each in talk.told("threshold.crossed")] == ["soft", "soft"]


def test_if_context_jumps_directly_from_60_to_88_percent_only_the_aggressive_job_is_scheduled(slow: Running):
    talk = Talk(slow)
    talk.fill(0.60)
    assert talk.jobs == []
    talk.fill(0.88)
    assert talk.levels == [("aggressive", "waiting")]
    assert [each["payload"]["level"] for each in talk.told("threshold.crossed")] == ["aggressive"]


# Deduplication and ordering


def test_the_same_level_never_runs_twice_for_the_same_session_at_the_same_time(serve: Serve):
    """Two servers with three hands each, and an agent that crosses again and again."""
    lock, under_way, most = Lock(), [0], [0]

    def begin(job: Job) -> None:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])

    def end(job: Job) -> None:
        with lock:
            under_way[0] -= 1

    with serve() as one, serve() as two, before_jobs(one, begin, end), before_jobs(two, begin, end):
        talk = Talk(one, window=8_000)
        for _ in range(60):
            talk.turns(2)
        idle(one)
        idle(two)
        assert len(talk.compactions) >= 2
    assert most == [1]


@pytest.mark.parametrize("is_active", [False, True], ids=["queued", "active"])
def test_if_a_job_is_already_active_or_queued_new_trigger_events_are_silently_dropped(
    server: Running, serve: Serve, is_active: bool
):
    held = Held()
    with before_jobs(server, held):
        talk, other = Talk(server, window=WIDE), Talk(server, "other")
        if not is_active:
            server.service.engine.stop(finish=False)
        talk.fill(0.81)
        if is_active:
            wait_for(held.begun.is_set)
        for _ in range(3):
            assert talk.turns(1)["report"] is None
        with serve(workers=0) as second:  # another server has no memory of what has fired here
            second.get(f"{talk.path}/context")
            second.post(f"{talk.path}/messages", {"messages": turn(2_000)})
        assert [job.state for job in talk.jobs] == ["running" if is_active else "waiting"]
        assert [each for each in talk.types() if each != "compaction.suggested"] == ["threshold.crossed", "job.queued"]
        assert other.jobs == []
        held.go_on.set()


def test_when_multiple_messages_arrive_in_quick_succession_near_a_threshold_nothing_is_summarized_twice(
    server: Running,
):
    talk = Talk(server, window=WIDE)
    talk.fill(0.79)
    with ThreadPoolExecutor(6) as callers:
        raws = [turn(number) for number in range(1_000, 1_012, 2)]
        answers = list(callers.map(lambda each: server.post(f"{talk.path}/messages", {"messages": each}), raws))
    assert {got.status for got in answers} == {200}
    idle(server)
    assert len(talk.compactions) == 1
    told = [each["type"] for each in talk.told("job.queued", "summary.applied")]
    assert sorted(told) == ["job.queued", "summary.applied"]  # a quick worker may be done before the job is told
    history = talk.history
    assert len(history) == len(talk.said) + 12
    assert all(history.count(message) == 1 for each in raws for message in each)


def test_jobs_within_a_session_are_always_done_one_at_a_time_in_order(server: Running):
    held = Held()
    with before_jobs(server, held):
        talk = Talk(server)
        talk.fill(0.82)
        wait_for(held.begun.is_set)
        talk.fill(0.88)
        assert talk.levels == [("soft", "running"), ("aggressive", "waiting")]
        assert [job.level for job in held.jobs] == ["soft"]
        held.go_on.set()
        idle(server)
    assert [job.id for job in held.jobs] == sorted(job.id for job in held.jobs)
    assert [job.level for job in held.jobs] == ["soft", "aggressive"]
    assert {job.state for job in talk.jobs} == {"done"}


def test_multiple_sessions_are_served_independently_and_in_parallel(server: Running):
    together = Barrier(3)

    def before(job: Job) -> None:
        together.wait(PATIENCE)  # nobody comes through unless all three are at work at the same time

    with before_jobs(server, before):
        talks = [Talk(server, name) for name in "abc"]
        for talk in talks:
            talk.fill(0.82)
        idle(server)
    assert [talk.levels for talk in talks] == [[("soft", "done")]] * 3


def test_a_session_whose_job_hangs_keeps_no_other_session_waiting(server: Running):
    held = Held("stuck")

    with before_jobs(server, held):
        stuck, free = Talk(server, "stuck"), Talk(server, "free")
        stuck.fill(0.82)
        wait_for(held.begun.is_set)
        free.fill(0.82)
        wait_for(lambda: free.levels == [("soft", "done")])
        assert stuck.levels == [("soft", "running")]
        assert stuck.say(*turn(500))["appended"] == 2  # nor the agent itself
        held.go_on.set()
        idle(server)


# Reliability


def test_failed_jobs_are_retried_automatically_up_to_three_times_with_a_short_growing_delay(server: Running):
    attempts, before = failing(2)
    with before_jobs(server, before):
        talk = Talk(server, retry_delay_seconds=0.2)
        talk.fill(0.82)
        idle(server)
    assert attempts == [1, 2, 3]
    assert talk.levels == [("soft", "done")]
    assert len(talk.compactions) == 1
    retried = talk.told("job.retried")
    assert [each["payload"]["attempt"] for each in retried] == [1, 2]
    assert {each["payload"]["reason"] for each in retried} == {"TimeoutError: the model call times out"}
    waits = [moment(each["payload"]["due_at"]) - moment(each["created_at"]) for each in retried]
    assert all(0.1 < first < second < 2.0 for first, second in pairwise(waits))
    assert talk.told("job.dropped", "compaction.failed") == []


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_after_three_failures_the_job_is_dropped_and_the_next_natural_crossing_schedules_a_fresh_one(server: Running):
    attempts, before = failing(3)
    with before_jobs(server, before):
        talk = Talk(server)
        talk.fill(0.82)
        idle(server)
        assert attempts == [1, 2, 3]
        assert talk.levels == [("soft", "dropped")]
        assert talk.compactions == []
        assert talk.history == talk.said
        (dropped,) = talk.told("job.dropped")
        assert dropped["payload"]["reason"] == "TimeoutError: the model call times out"
        talk.turns(1)  # that is no crossing
        assert len(talk.jobs) == 1
        talk.fill(0.88)
        idle(server)
    assert talk.levels == [("soft", "dropped"), ("aggressive", "done")]
    assert attempts == [1, 2, 3, 1]
    assert len(talk.compactions) == 1


# What gets published


def test_threshold_crossed_is_fired_when_a_level_has_been_reached_and_a_job_has_been_created(slow: Running):
    talk = Talk(slow)
    with following(slow, f"?session_id={talk.name}") as stream:
        talk.fill(0.82)
        crossed, queued = stream.told(2)
        assert (crossed.kind, queued.kind) == ("threshold.crossed", "job.queued")
        assert crossed.json["payload"]["level"] == "soft"
        assert 0.80 <= crossed.json["payload"]["share"] < 0.85
        assert crossed.json["payload"]["tokens"] <= crossed.json["payload"]["budget"]
        (job,) = talk.jobs  # whoever hears of it finds it
        assert queued.json["payload"] == {"job": job.id, "what": "compact", "level": "soft"}


def test_summary_applied_is_fired_when_a_compaction_job_completes_successfully_and_never_else(server: Running):
    attempts, before = failing(3)
    talk = Talk(server)
    with before_jobs(server, before):
        talk.fill(0.82)
        idle(server)
    assert attempts == [1, 2, 3]
    assert talk.told("summary.applied") == []
    talk.fill(0.88)
    idle(server)
    (applied,) = talk.told("summary.applied")
    (report,) = talk.compactions
    assert applied["payload"]["compaction_id"] == report["compaction_id"]
    assert applied["payload"]["tokens_saved"] == report["tokens_saved"] > 0
    assert not talk.compact(dry_run=True).json["compacted"]
    assert not talk.compact(target_tokens=11_500).json["compacted"]
    assert len(talk.told("summary.applied")) == 1


def test_these_events_can_be_used_by_dashboards_webhooks_and_monitoring_integrations(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(metrics_module, "_CACHE_SECONDS", 0.0)
    wanted = ["threshold.crossed", "summary.applied"]
    with serve(allow_private_webhooks=True) as server, receiving() as receiver:
        server.service.sender.poll_seconds = 0.02
        assert server.post("/v1/webhooks", {"url": receiver.url, "types": wanted}).status == 201
        talk = Talk(server)
        talk.fill(0.82)
        idle(server)
        wait_for(lambda: len(receiver.requests) == 2)
        assert [each["type"] for each in told(server, *wanted)] == wanted
        assert [b"threshold.crossed" in request.body for request in receiver.requests] == [True, False]
        assert b"summary.applied" in receiver.requests[1].body

        def counted() -> bool:
            text = server.get("/metrics").raw.decode()
            return all(f'compactor_events_total{{type="{kind}"}} 1.0' in text for kind in wanted)

        wait_for(counted)
        page = server.get("/activity").raw.decode()
        assert all(kind in page for kind in wanted)
