"""When facts were seen, and the errors among them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from context_compactor import BadSetting, Session
from context_compactor.agents.sync import sync_transcript
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.dialects.transcripts.transcript import utc_time
from context_compactor.sessions.facts import stored_facts
from tests.engine.talks import DIALECT_NAMES, Talk, bash, read, talk_in
from tests.failures.scenarios import fill
from tests.sessions.talk import opened

FIXTURES = Path(__file__).parents[1] / "fixtures" / "transcripts"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


class Hours:
    """A clock that goes on by an hour when it is told to."""

    def __init__(self) -> None:
        self.passed = 0

    def __call__(self) -> datetime:
        return START + timedelta(hours=self.passed)


def failing(dialect: str) -> Talk:
    talk = talk_in(dialect).user("Deploy it. Never touch legacy/.")
    return talk.step(bash("make deploy", "error: port 5432 is taken\nexit code 2", failed=True))


def hour(number: int) -> str:
    return (START + timedelta(hours=number)).isoformat(timespec="milliseconds")


@every_dialect
def test_a_fact_tells_when_it_was_first_and_last_seen(dialect, tmp_path):
    clock, talk = Hours(), failing(dialect)
    with opened(tmp_path, clock=clock, dialect=dialect, automatic=False) as session:
        session.append(talk.messages)
        clock.passed, found = 5, len(talk.messages)
        session.append(
            talk.step(bash("make deploy", "error: port 5432 is taken\nexit code 2", failed=True)).messages[found:]
        )
        (failure,) = session.facts("failure")
        assert (failure.first_seen, failure.last_seen) == (hour(0), hour(5))


@every_dialect
def test_the_times_outlive_a_compaction(dialect, tmp_path):
    clock, talk = Hours(), failing(dialect)
    with opened(tmp_path, clock=clock, dialect=dialect, automatic=False) as session:
        session.append(talk.messages)
        clock.passed, found = 3, len(talk.messages)
        session.append(fill(talk, 20).messages[found:])
        clock.passed = 9
        assert session.compact(target_tokens=2_000).changed
        (rule,) = session.facts("constraint")
        assert (rule.first_seen, rule.last_seen) == (hour(0), hour(0))
    with opened(tmp_path, clock=clock, dialect=dialect, automatic=False) as again:
        assert again.facts("constraint") == [rule]


@pytest.mark.parametrize("name", ["claude_code.jsonl", "codex.jsonl", "pi.jsonl"])
def test_the_times_of_a_log_are_those_of_its_lines(name):
    log = read_transcript(FIXTURES / name)
    assert len(log.times) >= len(log.messages) / 2
    with Session.open("followed", store="memory:", window=200_000) as session:
        sync_transcript(session._core, log, is_closed=True)
        times = [fact.first_seen for fact in session.facts() if fact.first_seen]
        assert times
        assert set(times) <= set(log.times.values())


def test_a_list_of_messages_may_say_when_each_was_written(tmp_path):
    file = tmp_path / "talk.json"
    file.write_bytes(msgspec.json.encode([{"role": "user", "content": "Hello", "timestamp": "2026-01-02T03:04:05Z"}]))
    assert read_transcript(file).times == {0: "2026-01-02T03:04:05.000+00:00"}


def test_a_fact_of_an_earlier_version_has_no_time(tmp_path):
    with opened(tmp_path, automatic=False) as session:
        session.append(fill(failing("openai-chat"), 20).messages)
        session.compact(target_tokens=2_000)
        core = session._core
        rows = core.store.facts(core.id)
        core.store.drop_facts(core.id, 1)
        old = [
            msgspec.structs.replace(row, body=msgspec.json.encode(_without_times(msgspec.json.decode(row.body))))
            for row in rows
        ]
        core.store.put_facts(core.id, old, core.now())
        assert {fact.first_seen for fact in stored_facts(core)} == {None}
        assert {fact.first_seen for fact in session.facts("constraint")} == {None}


def _without_times(fact: dict) -> dict:
    return {name: value for name, value in fact.items() if name not in ("first_seen", "last_seen")}


def test_who_asks_for_errors_gets_the_failed_attempts(tmp_path):
    with opened(tmp_path, automatic=False) as session:
        session.append(failing("openai-chat").messages)
        assert [fact.content for fact in session.facts("error")] == ["make deploy"]
        assert session.facts("error") == session.facts("failure")


def test_an_unknown_kind_is_refused_with_the_known_ones(tmp_path):
    with opened(tmp_path) as session, pytest.raises(BadSetting, match="known kinds: task, constraint"):
        session.facts("mistake")


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678+00:00"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000+00:00"),
        (1_767_323_045, "2026-01-02T03:04:05.000+00:00"),
        (1_767_323_045_000, "2026-01-02T03:04:05.000+00:00"),
        ("yesterday", ""),
        (None, ""),
        (True, ""),
        (1e300, ""),
    ],
)
def test_a_time_is_read_in_any_form_or_not_at_all(value, time):
    assert utc_time(value) == time


def test_facts_of_one_turn_come_back_in_the_same_order_whenever_it_was(tmp_path):
    files = [f"src/part_{number}.py" for number in range(12)]
    talk = talk_in("anthropic").user("Look at all of it.").step(*(read(path, f"x = {path!r}") for path in files))
    fill(talk.user("Thank you. And now?"), 60)
    orders = []
    for hours in range(4):
        clock = Hours()
        clock.passed = hours
        with opened(tmp_path / str(hours), clock=clock, dialect="anthropic", automatic=False) as session:
            session.append(talk.messages)
            assert session.compact(target_tokens=2_000).changed
            orders.append([fact.content for fact in session.facts("file_state") if fact.content in files])
    assert orders == [files] * 4
