"""Promises of a session that are easy to break by small changes, each as one small story."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from context_compactor import BadMessage, BadSetting, Session, Settings, UnknownSession
from context_compactor.sessions import state as gauging
from context_compactor.sessions.state import read_session_state
from context_compactor.store.sqlite import SqliteStore
from tests.engine import promises
from tests.engine.talks import bash, read, talk_in
from tests.failures.scenarios import code, fill, listing, working

ASKED = Settings(idle_seconds=0, automatic=False)
QUIET = Settings(idle_seconds=0)
SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(str(tmp_path / "store.db"))
    yield store
    store.close()


def opened(store, name="run", settings=ASKED, window=200_000, **options):
    return Session.open(name, window=window, store=store, settings=settings, **options)


def recounted(session):
    """What the context weighs, counted afresh, and what the session believes."""
    core = session._core
    dialect = core.dialect()
    counter = core.counter(dialect)
    believed = read_session_state(core.store.session(core.id).state).gauge.tokens
    return gauging.measure_messages(dialect.parse(core.current_context().raws), counter).tokens, believed


def test_a_restored_original_leaves_with_the_next_compaction_and_the_gauge_is_right(store):
    talk = talk_in("anthropic").user("Read them all.")
    for number in range(12):
        talk.step(read(f"src/part_{number}.py", code(f"part_{number}", 40)))
    with opened(store) as session:
        session.append(talk.messages)
        session.compact(target_tokens=9_000)
        before = session.context()
        session.restore("file_001")
        assert session.context() != before
        session.append({"role": "user", "content": "And now?"})
        report = session.compact(target_tokens=8_000)
        assert report.changed
        assert promises.tokens_of(session.context(), "anthropic") == report.tokens_after
        counted, believed = recounted(session)
        assert counted == believed


def test_an_undo_takes_what_was_restored_under_the_compaction_with_it(store):
    with opened(store) as session:
        talk = fill(working("anthropic", 12), 20, 12)
        session.append(talk.messages)
        session.compact(target_tokens=3_000)
        session.restore("turn_002")
        session.undo()
        assert session.context() == talk.messages
        session.redo()
        assert "put back by Context Compactor" in str(session.context())


def test_usage_of_a_reply_says_nothing_of_what_came_with_it(store):
    with opened(store) as session:
        session.append({"role": "user", "content": "Look."})
        step = talk_in("openai-chat").step(bash("ls -R", listing(150))).messages
        session.append(step, usage={"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})
        assert session.usage().tokens > 2_000


def test_usage_may_be_the_object_of_a_providers_library(store):
    class Reported:
        def model_dump(self):
            return {"input_tokens": 5_000, "output_tokens": 20}

    with opened(store) as session:
        session.append({"role": "user", "content": "Hello."})
        session.append({"role": "assistant", "content": "Hello!"}, usage=Reported())
        assert session.usage().tokens == 5_020
        with pytest.raises(BadSetting, match="usage"):
            session.append({"role": "user", "content": "x"}, usage=object())
        assert len(session.history()) == 2


def test_what_fails_after_a_message_was_written_does_not_look_as_if_it_was_not(store):
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    events = []
    with opened(store, clock=lambda: now[0]) as session:
        session.bus.subscribe(events.append)
        session.append(fill(talk_in("anthropic").user("Look."), 10).messages)
        now[0] += timedelta(minutes=31)
        session._core.store = Refusing(store)
        assert session.append({"role": "user", "content": "Once."}) is None
        session._core.store = store
        assert session.history()[-1] == {"role": "user", "content": "Once."}
    assert [event.type for event in events] == ["job.dropped"]


class Refusing:
    """A store that takes messages and refuses facts."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        from context_compactor.errors import StoreError

        if name == "put_facts":
            raise StoreError("locked")
        return getattr(self._store, name)


def test_a_checkpoint_file_that_cannot_be_written_stops_no_compaction(tmp_path):
    (tmp_path / ".compactor/progress-checkpoint.md").mkdir(parents=True)
    events = []
    with opened(f"sqlite:///{tmp_path}/.compactor/compactor.db") as session:
        session.bus.subscribe(events.append)
        session.append(fill(working("anthropic", 12), 20, 12).messages)
        assert session.compact(target_tokens=3_000).changed
    assert "checkpoint file" in [event.payload.get("what") for event in events]


def test_secrets_are_replaced_wherever_something_is_written(store):
    settings = Settings(idle_seconds=0, redact_secrets=True)
    answer = {"task_id": "r1", "phase": "research", "status": "complete", "decision": "PROCEED"}
    answer |= {"findings": {"token": SECRET}, "context_summary": f"The token is {SECRET}."}
    with opened(store, settings=settings) as session:
        session.append({"role": "user", "content": "Look."})
        request = session.handoff("research", task=f"Use {SECRET}.", task_id="r1")
        taken = session.receive(answer)
        checkpoint = session.checkpoint(note=f"Mind {SECRET}.")
        assert SECRET not in session.recall(taken.original.id)
        assert SECRET not in f"{request} {checkpoint} {session.orchestrator()}"


def test_after_an_undo_and_a_message_the_first_request_is_checked_again(store):
    with opened(store, settings=QUIET, window=1_000_000) as session:
        session.append(fill(working("anthropic", 12), 30, 12).messages)
        session.compact(target_tokens=3_000)
        session.undo()
        session.append({"role": "user", "content": "Go on."})
    with opened(store, settings=QUIET, window=9_000) as session:
        assert promises.tokens_of(session.context(), "anthropic") < 9_000


def test_a_killed_process_does_not_block_a_resume_for_ever(store):
    with opened(store) as session:
        session.append({"role": "user", "content": "Hello."})
        for holder in ("otherhost:7:1:dead", f"{_host()}:{_pid()}:1:dead"):
            store.hold("run", holder, "2020-01-01T00:00:00.000+00:00")
        assert session.resume().status != "blocked"


def _host():
    import socket

    return socket.gethostname()


def _pid():
    import os

    return os.getpid()


def test_another_session_that_is_open_in_the_project_is_told(tmp_path):
    address = f"sqlite:///{tmp_path}/.compactor/compactor.db"
    with opened(address) as session, opened(address, "other") as other:
        session.append({"role": "user", "content": "Hello."})
        other.append({"role": "user", "content": "Hello."})
        assert any("other" in reason.what for reason in session.resume().reasons)


def test_verify_misses_nothing_that_a_compaction_needs(store):
    with opened(store) as session:
        session.append(fill(working("anthropic", 12), 20, 12).messages)
        session.compact(target_tokens=3_000)
        assert session.verify() == []
        items = session._core.context_reader.log_state().last.note.items
        store._database.write("DELETE FROM contents WHERE hash = ?", [bytes.fromhex(items)])
        assert any("compaction cmp_" in problem for problem in session.verify())


def test_a_turn_that_is_still_there_is_recalled_with_its_outputs_whole(store):
    talk = talk_in("anthropic").user("Look.").step(bash("ls -R", listing(3_000)))
    with opened(store) as session:
        session.append(talk.messages)
        assert "folder_2999" in session.recall("turn_002")
        assert "folder_1500" in session.recall("turn_002")


def test_two_processes_that_begin_a_session_at_once_speak_one_dialect(store):
    anthropic = talk_in("anthropic").user("Look.").step(bash("ls", "a")).messages
    chat = talk_in("openai-chat").step(bash("ls", "a")).messages
    with opened(store) as one, opened(store) as two:
        one.append(anthropic)
        with pytest.raises(BadMessage):
            two.append(chat)
        assert one.context() == two.context() == anthropic


def test_retention_deletes_neither_what_is_open_nor_what_is_only_looked_at(store):
    old, new = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
    keep_a_month = Settings(idle_seconds=0, retention_days=30)
    for name in ("held", "looked at", "gone"):
        with opened(store, name, clock=lambda: old) as session:
            session.append({"role": "user", "content": "Hello."})
    held = opened(store, "held", clock=lambda: old)
    held.append({"role": "user", "content": "Still here."})
    with opened(store, "looked at", settings=keep_a_month, clock=lambda: new) as session:
        assert len(session.history()) == 1
        assert {row.id for row in store.sessions()} == {"held", "looked at", "gone"}
        session.append({"role": "user", "content": "And I."})
        assert {row.id for row in store.sessions()} == {"held", "looked at"}
    held.append({"role": "user", "content": "And still."})
    held.close()
    with pytest.raises(UnknownSession):
        store.session("gone")


@pytest.mark.parametrize("name", ["👨‍👩‍👧", "日本語", "a/b", "x" * 300, "ä ö"])
def test_a_session_may_have_any_name_that_can_be_seen(store, name):
    with opened(store, name) as session:
        session.append({"role": "user", "content": "Hello."})
        assert session.id == name


@pytest.mark.parametrize("name", ["", "  ", "x" * 301, "a\nb", "a\0b", "\ud800", 7, None])
def test_a_name_that_cannot_be_is_refused_in_words(store, name):
    with pytest.raises(BadSetting, match="session id"):
        opened(store, name)
    assert store.sessions() == []


@pytest.mark.parametrize("at", ["x", 1.5, True, -1, 99])
def test_a_message_number_that_is_none_is_refused_in_words(store, at):
    with opened(store) as session:
        session.append({"role": "user", "content": "Hello."})
        with pytest.raises(BadSetting, match="has 1 messages"):
            session.context(at=at)


def test_a_dry_run_changes_nothing_not_even_what_is_too_old(store):
    old, new = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
    with opened(store, "old", clock=lambda: old) as session:
        session.append({"role": "user", "content": "Hello."})
    with opened(store, "new", clock=lambda: new) as session:
        session.append(fill(working("anthropic", 12), 20, 12).messages)
    settings = Settings(idle_seconds=0, retention_days=30)
    with opened(store, "new", settings=settings, clock=lambda: new) as session:
        assert session.compact(target_tokens=3_000, dry_run=True).status == "success"
        assert store.holders("new") == {}
        assert session.totals().compactions == 0
    assert {row.id for row in store.sessions()} == {"old", "new"}


def test_an_undo_above_a_token_limit_is_left_alone_until_the_context_has_grown(store):
    limited = Settings(idle_seconds=0, model_auto_compact_token_limit=3_000)
    with opened(store, settings=limited) as session:
        session.append(fill(talk_in("anthropic").user("Look."), 40).messages)
        assert session.totals().compactions == 1
        session.undo()
        assert session.append({"role": "user", "content": "Go on."}) is None
        assert session.totals().undone == 1
