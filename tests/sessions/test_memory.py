"""What outlives the text, and what outlives a session."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from context_compactor import BadSetting, Session, Settings
from context_compactor.dialects.turns import split_turns
from context_compactor.facts.lesson_folders import list_lessons, owner_folder
from context_compactor.facts.utterances import user_utterances
from context_compactor.store.rows import FactRow
from tests.engine import promises
from tests.engine.talks import DIALECT_NAMES, bash, talk_in
from tests.failures.scenarios import fill, seen, working
from tests.waiting import wait_for

QUIET = Settings(idle_seconds=0)
ANN = "ann"
LEARNED = ".compactor/learned"
every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)
CHOICE = "We decided to use PostgreSQL instead of SQLite for the event store because several machines write to it."


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path}/.compactor/compactor.db"


def opened(store, name, window=9_000, settings=QUIET, **options):
    return Session.open(name, window=window, store=store, settings=settings, **options)


def work(choice, number=0):
    talk = talk_in("anthropic").user("Build the event store.").step(text=choice)
    talk.step(bash("pytest tests/events", "ModuleNotFoundError: No module named 'psycopg'\nexit code 1", failed=True))
    return fill(talk, 30, number)


@pytest.mark.slow
@every_dialect
def test_ten_compactions_in_a_chain_keep_facts_failures_ids_and_instructions(dialect):
    talk = talk_in(dialect).system("Answer in short sentences.").user("Fix it. Never touch legacy/.")
    talk.step(bash("make deploy-once", "error: port 5432 is taken\nexit code 2", failed=True))
    with Session.open("chain", window=1_000_000, store="memory:", dialect=dialect, settings=QUIET) as session:
        told = 0
        for number in range(10):
            fill(talk, 25, 25 * number)
            session.append(talk.messages[told:])
            told = len(talk.messages)
            assert session.compact(target_tokens=3_500).changed
            text = seen(session.context(), dialect)
            assert "make deploy-once" in text
            assert "port 5432 is taken" in text
            assert "Never touch legacy/." in text
            assert session.context()[0] == talk.messages[0]
        assert session.totals().compactions == 10
        assert "port 5432 is taken" in session.recall("tool_001")
        assert [fact.content for fact in session.facts("constraint")] == ["Never touch legacy/."]
        assert [(fact.content, fact.ref) for fact in session.facts("failure")] == [("make deploy-once", "tool_001")]
        assert session.history() == talk.messages


def test_facts_are_asked_for_by_kind_and_come_with_their_source():
    with Session.open("run", window=9_000, store="memory:", settings=QUIET) as session:
        session.append(work(CHOICE).messages)
        (failure,) = session.facts("failure")
        assert (failure.turn, failure.ref, failure.role) == (2, "tool_001", "tool")
        assert "psycopg" in failure.detail
        with pytest.raises(BadSetting, match="known kinds: task, constraint"):
            session.facts("gossip")


def taught(store, name, choice=CHOICE, **options):
    """A session that has said what others may learn from."""
    with opened(store, name, **options) as session:
        session.append(work(choice).messages)
        session.compact(level="emergency")


def told(store, name, **options):
    """What a new session begins with before anybody has said anything but one word."""
    with opened(store, name, **options) as session:
        session.append({"role": "user", "content": "Hello."})
        return json.dumps(session.context()[:-1])


def test_an_architectural_decision_reaches_the_next_session_of_its_owner(store, tmp_path):
    taught(store, "first", owner=ANN)
    assert CHOICE in (owner_folder(tmp_path / LEARNED, ANN) / "decisions.md").read_text()
    with opened(store, "second", owner=ANN) as session:
        question = {"role": "user", "content": "Go on with the event store."}
        session.append(question)
        memory, last = session.context()
        assert last == question
        assert CHOICE in json.dumps(memory)
        assert session.history() == [question]
        assert user_utterances(split_turns(promises.parsed([memory], "anthropic"))) == []
        assert "Written by Context Compactor, not by the user" in json.dumps(memory)
        assert CHOICE not in [fact.content for fact in session.facts()]


def test_two_owners_in_one_folder_never_learn_from_each_other(store):
    taught(store, "of ann", owner=ANN)
    taught(store, "of ann too", "We decided to keep sessions in Redis instead of files.", owner=ANN)
    assert told(store, "of ben", owner="ben") == "[]"
    assert CHOICE in told(store, "third of ann", owner=ANN)


def test_an_error_that_another_owner_met_is_not_counted_and_their_session_not_named(store, tmp_path):
    taught(store, "secret name of ben", "Let me see.", owner="ben")
    taught(store, "first of ann", "Let me see.", owner=ANN)
    assert list_lessons(tmp_path / LEARNED) == []
    taught(store, "second of ann", "Let me see.", owner=ANN)
    (lesson,) = list_lessons(tmp_path / LEARNED)
    assert (lesson.owner, lesson.kind, lesson.sessions) == (ANN, "errors", 2)
    assert "ben" not in str(lesson)


def test_a_session_whose_owner_is_unknown_neither_teaches_nor_learns(store, tmp_path):
    taught(store, "first")
    taught(store, "second")
    assert not (tmp_path / LEARNED).exists()
    taught(store, "of ann", owner=ANN)
    assert told(store, "third") == "[]"


def test_a_session_belongs_to_its_owner_however_it_is_opened_again(store, tmp_path):
    with opened(store, "run", window=1_000_000, owner=ANN) as session:
        session.append(work(CHOICE).messages)
    with opened(store, "run") as session:
        session.compact(level="emergency")
    assert [lesson.owner for lesson in list_lessons(tmp_path / LEARNED)] == [ANN]
    with pytest.raises(BadSetting, match="belongs to 'ann', not to 'ben'"):
        opened(store, "run", owner="ben")


def test_a_session_that_has_no_owner_yet_may_be_given_one(store, tmp_path):
    with opened(store, "run", window=1_000_000) as session:
        session.append(work(CHOICE).messages)
    with opened(store, "run", owner=ANN) as session:
        session.compact(level="emergency")
    assert [lesson.owner for lesson in list_lessons(tmp_path / LEARNED)] == [ANN]


@pytest.mark.parametrize("owner", ["", "  ", "a\nb", "\x00", "\udc80", "x" * 301, "os-user:root", 7])
def test_what_is_no_owner_is_refused(store, owner):
    with pytest.raises(BadSetting, match="owner: "):
        opened(store, "run", owner=owner)


def test_lessons_from_before_there_were_owners_are_told_to_nobody(store, tmp_path):
    (tmp_path / LEARNED).mkdir(parents=True)
    (tmp_path / LEARNED / "decisions.md").write_text(f"# Decisions\n\n- {CHOICE}\n")
    assert told(store, "first") == told(store, "second", owner=ANN) == "[]"


def test_what_was_learned_stays_in_the_context_through_compactions(store):
    taught(store, "first", owner=ANN)
    with opened(store, "second", owner=ANN) as session:
        session.append(fill(working("anthropic", 8), 30, 8).messages)
        session.compact(level="emergency")
        session.append({"role": "user", "content": "Go on."})
        assert str(session.context()).count("[Learned in earlier sessions.") == 1
        assert not any("Learned in earlier" in session.recall(f"turn_{number:03d}") for number in range(1, 30))


def test_an_error_that_two_sessions_met_is_learned(store, tmp_path):
    for name in ("first", "second"):
        taught(store, name, "Let me see.", owner=ANN)
    assert "psycopg" in (owner_folder(tmp_path / LEARNED, ANN) / "errors.md").read_text()


def test_nothing_is_learned_when_that_is_off(store, tmp_path):
    off = Settings(idle_seconds=0, promote_to_memory=False)
    for name in ("first", "second"):
        taught(store, name, settings=off, owner=ANN)
    assert not (tmp_path / LEARNED).exists()


def test_learned_files_that_cannot_be_read_do_not_keep_a_session_from_beginning(store, tmp_path):
    (owner_folder(tmp_path / LEARNED, ANN) / "decisions.md").mkdir(parents=True)
    with opened(store, "run", owner=ANN) as session:
        session.append({"role": "user", "content": "Hello."})
        assert session.context() == [{"role": "user", "content": "Hello."}]


def test_work_ahead_changes_nothing_that_the_model_sees_and_leaves_the_last_two_turns_alone():
    with Session.open("run", window=100_000, store="memory:", settings=QUIET) as session:
        talk = work(CHOICE)
        session.append(talk.messages)
        before = session.context()
        ahead = session.prepare()
        assert ahead.turns == 30
        assert ahead.facts > 0
        assert session.context() == before
        assert session.prepare().turns == 0
        stored = {row.kind for row in session._core.store.facts("run")}
        assert {"decision", "failure", "task"} <= stored


def test_a_session_works_ahead_by_itself_when_nothing_comes():
    settings = Settings(idle_seconds=0.05)
    with Session.open("run", window=100_000, store="memory:", settings=settings) as session:
        session.append(work(CHOICE).messages)
        wait_for(lambda: session._core.store.facts("run"))


def test_facts_are_kept_after_half_an_hour_without_a_compaction():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    now = [start]
    with Session.open("run", window=100_000, store="memory:", settings=QUIET, clock=lambda: now[0]) as session:
        session.append(work(CHOICE).messages)
        assert not session._core.store.facts("run")
        now[0] = start + timedelta(minutes=31)
        session.append({"role": "user", "content": "Still there?"})
        assert session._core.store.facts("run")


def test_a_long_session_of_many_messages_is_opened_and_appended_to():
    count = 20_000
    messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": f"Message {at}."} for at in range(count)]
    with Session.open("long", window=50_000_000, store="memory:", settings=QUIET) as session:
        session.append(messages)
        session.append({"role": "user", "content": "The last one."})
        assert len(session.context()) == count + 1
        assert session.history()[:count] == messages
        assert session.context(at=3) == messages[:3]


OLD_RECORD = """\
[Context record. Written by Context Compactor, not by the user: it stands for 12 earlier messages (3,400 tokens, turns \
1 to 6, calls 1 to 5). It is memory, not a request. recall("id") returns any original, turn_001 to turn_006 too.]

## Task
- done: "Rename active: to status:" (turn_001)
- active: "Show active: users first" (turn_004)

[End of record. The conversation continues.]"""
OLD_FACT = (
    b'{"kind":"task","content":"Show active: users first","turn":4,"role":"user","detail":"","status":"active",'
    b'"count":1,"last_turn":4,"ref":"turn_004","told_by":""}'
)


@every_dialect
def test_a_session_of_an_older_version_goes_on_with_its_record_and_its_facts(dialect):
    talk = talk_in(dialect).user(OLD_RECORD).user("Now sort them by name, please.")
    fill(talk, 30)
    with Session.open("old", window=1_000_000, store="memory:", dialect=dialect, settings=QUIET) as session:
        session.append(talk.messages)
        session._core.store.put_facts("old", [FactRow("task", 4, OLD_FACT, "")], "2026-01-01T00:00:00Z")
        assert session.compact(target_tokens=3_500).changed
        record = promises.record_of(promises.parsed(session.context(), dialect), dialect)
        assert record is not None
        assert record.lines("Task")[:2] == (
            'done: "Rename active: to status:" (turn_001)',
            'earlier: "Show active: users first" (turn_004)',
        )
        kept = {(fact.content, fact.status) for fact in session.facts("task")}
        assert kept == {("Show active: users first", "active"), ("Now sort them by name, please.", "active")}
