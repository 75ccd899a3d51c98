"""D, and all rows that need a session or a store: concurrency, resume, undo, and what a crash must not do."""

from __future__ import annotations

import sqlite3

import pytest

from context_compactor import BadInput, Session, Settings, UnknownReference
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import find_violations
from context_compactor.facts.fact import Fact
from tests.engine import promises
from tests.engine.talks import DIALECT_NAMES, bash, read, talk_in
from tests.failures.scenarios import code, fill, listing, seen, working

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)
QUIET = Settings(idle_seconds=0)
ASKED = Settings(idle_seconds=0, automatic=False)


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path}/.compactor/compactor.db"


def opened(store, name="run", window=16_000, **options):
    return Session.open(name, window=window, store=store, settings=options.pop("settings", QUIET), **options)


def heard(session):
    events = []
    session.bus.subscribe(events.append)
    return events


def types(events):
    return [event.type for event in events]


# A


def test_what_cannot_be_made_smaller_is_tried_once_and_again_only_when_it_has_grown(store):
    """Row 11."""
    with opened(store, window=6_000) as session:
        typed = "Please look at the billing module with me and tell me what you would change about it first.\n\n" * 80
        tried = [session.append([{"role": "user", "content": f"{number}. {typed}"} for number in range(3)])]
        for number in range(12):
            tried.append(session.append({"role": "assistant", "content": f"Noted {number}."}))
            tried.append(session.append({"role": "user", "content": f"Go on {number}."}))
        assert [report.status for report in tried if report] == ["partial"]
        grown = [fill(talk_in("anthropic"), 1, number).messages for number in range(6)]
        later = [session.append(step) for step in grown]
        assert 1 <= len([report for report in later if report]) <= 3
        assert promises.tokens_of(session.context(), "anthropic") < 6_000


def test_a_failed_compaction_is_not_tried_again_while_nothing_has_changed(store):
    """Row 12."""
    calls = []

    def count(text):
        calls.append(text)
        if len(text) > 300 and breaks[0]:
            raise RuntimeError("the counter is down")
        return len(text) // 4 + 1

    breaks = [False]
    with opened(store, count_tokens=count) as session:
        watched = session.record(fill(working("anthropic", 4), 40).messages)
        assert watched.trigger
        breaks[0] = True
        events = heard(session)
        first, second = session.answer(watched), session.answer(watched)
    assert first.status == "failed"
    assert "counter is down" in first.reason
    assert second.status == "unchanged"
    assert "has not changed since" in second.reason
    tried = [each for each in types(events) if each in ("compaction.failed", "compaction.refused")]
    assert tried == ["compaction.failed", "compaction.refused"]


# B


def test_what_a_provider_can_no_longer_read_is_left_out_and_the_rest_is_rebuilt(store):
    """Rows 29 and 30."""
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix src/a.py."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA" * 40},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I will read it."}]},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA" * 400},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ]
    with opened(store) as session:
        session.append(items)
        assert session.context() == items
        rebuilt = session.context(sealed=False)
        assert session.history() == items
    assert [item["type"] for item in rebuilt] == ["message", "message", "message"]
    assert "gAAAA" not in str(rebuilt)
    responses = DIALECTS["openai-responses"]
    assert find_violations(responses.parse(rebuilt), responses) == []


def test_signed_reasoning_is_left_out_for_another_model_and_comes_back_for_the_first(store):
    """Row 30: A, then B, then A again."""
    signed = {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk" * 20}
    messages = [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": [signed, {"type": "text", "text": "Done."}]},
        {"role": "user", "content": "And the test?"},
    ]
    with opened(store, dialect="anthropic") as session:
        session.append(messages)
        assert session.context() == messages
        assert "signature" not in str(session.context(sealed=False))
        assert session.context() == messages


def test_a_compaction_reads_every_message_of_the_store(store):
    """Row 37."""
    talk = fill(talk_in("openai-chat").user("Look into all folders."), 700)
    with opened(store, window=1_000_000, settings=ASKED) as session:
        session.append(talk.messages)
        report = session.compact(target_tokens=20_000)
        assert report.messages_before == len(talk.messages)
        assert all(session.recall(f"turn_{number:03d}") for number in (*range(1, 690, 23), 689))
        assert session.history() == talk.messages


def test_the_stored_transcript_is_never_rewritten(store, tmp_path):
    """Row 38."""

    def rows():
        with sqlite3.connect(tmp_path / ".compactor/compactor.db") as database:
            return database.execute("SELECT position, content, hex(chain) FROM entries ORDER BY position").fetchall()

    with opened(store) as session:
        session.append(working("anthropic", 20).messages)
        before = rows()
        session.compact(level="emergency")
        session.undo()
        session.redo()
        session.compact(level="emergency")
        assert rows()[: len(before)] == before
        assert session.verify() == []


@every_dialect
def test_what_is_saved_and_opened_again_is_the_request_that_was_live(dialect, store):
    """Row 40."""
    talk = fill(working(dialect, 10), 40, 10)
    with opened(store, dialect=dialect) as session:
        for message in talk.messages:
            session.append(message)
        live = session.context()
        assert session.totals().compactions > 0
    with opened(store) as again:
        assert again.context() == live


# D


def test_running_sub_agents_are_registered_beside_the_conversation(store):
    """Row 57."""
    with opened(store) as session:
        session.append(working("anthropic", 20).messages)
        request = session.handoff("research", task="Find all callers of rotate().", task_id="research-1")
        session.compact(level="emergency")
    with opened(store) as session:
        assert [agent.id for agent in session.orchestrator().subagents.running] == [request.task_id]
        with pytest.raises(BadInput, match="running with another task"):
            session.handoff("research", task="Something else.", task_id="research-1")


def test_messages_that_come_during_a_compaction_stay_once_and_in_order_behind_it(store):
    """Row 59."""
    late = [{"role": "user", "content": f"By the way, number {number}."} for number in range(3)]
    waiting = list(late)

    def count(text):
        if waiting and is_compacting[0]:
            other.append(waiting.pop(0))
        return len(text) // 4 + 1

    is_compacting = [False]
    talk = fill(working("anthropic", 12), 20, 12)
    with opened(store, settings=ASKED) as other, opened(store, settings=ASKED, count_tokens=count) as session:
        session.append(talk.messages)
        is_compacting[0] = True
        report = session.compact(level="emergency")
        assert report.changed
        assert not waiting
        assert session.context()[-3:] == late
        assert session.history() == [*talk.messages, *late]


def test_a_compaction_of_a_context_that_is_no_longer_there_is_dropped_and_its_archive_kept(store):
    """Row 60."""
    again = []

    def count(text):
        if again:
            again.pop()
            other.compact(level="emergency")
        return len(text) // 4 + 1

    with opened(store, settings=ASKED) as other, opened(store, settings=ASKED, count_tokens=count) as session:
        session.append(fill(working("anthropic", 12), 20, 12).messages)
        events = heard(session)
        again.append(1)
        report = session.compact(level="aggressive")
        assert report.status == "unchanged"
        assert "another process" in report.reason
        assert types(events) == ["compaction.refused"]
        assert session.totals().compactions == 1
        assert session.recall("turn_002")


def test_every_path_tells_the_same_events(store):
    """Row 61."""
    paths = []
    for name, act in {
        "manual": lambda session: session.compact(level="emergency"),
        "handoff": lambda session: session.handoff("write"),
        "automatic": lambda session: session.append({"role": "user", "content": "Now, please."}),
    }.items():
        with opened(store, name, window=1_000_000) as session:
            session.append(fill(working("anthropic", 12), 30, 12).messages)
            session.append({"role": "assistant", "content": "There."})
        with opened(store, name, window=9_000) as session:
            session._is_checked = name != "automatic"
            events = heard(session)
            act(session)
            paths.append([kind for kind in types(events) if kind != "threshold.crossed"])
    assert paths == [["summary.applied", "session.compacted"]] * 3


def test_a_setting_of_one_session_does_not_change_another(store):
    """Row 66."""
    talk = fill(working("anthropic", 8), 40, 8)
    off, on = Settings(enabled=False, idle_seconds=0), QUIET
    with opened(store, "off", settings=off) as first, opened(store, "on", settings=on) as second:
        for message in talk.messages:
            first.append(message)
            second.append(message)
        assert first.totals().compactions == 0
        assert first.context() == talk.messages
        assert second.totals().compactions > 0
    with opened(store, "off", settings=None) as first:
        assert not first.settings.enabled


def test_a_recall_sees_only_its_own_session(store):
    """Row 67."""
    for name, secret in (("mine", "alpha_secret_value"), ("theirs", "omega_secret_value")):
        with opened(store, name) as session:
            talk = talk_in("anthropic").user("Read it.").step(read("src/a.py", f"{secret}\n{code('load', 60)}"))
            session.append(fill(talk, 30).messages)
            session.compact(level="emergency")
    with opened(store, "mine") as session:
        assert "alpha_secret_value" in session.recall("file_001")
        assert not [hit for hit in session.search("omega_secret_value") if "omega" in hit.text]
        with pytest.raises(UnknownReference, match="'mine'"):
            session.recall("turn_999")


def test_references_live_on_after_a_restart(store):
    """Row 68."""
    text = code("load", 80)
    with opened(store) as session:
        session.append(fill(talk_in("anthropic").user("Read it.").step(read("src/a.py", text)), 30).messages)
        session.compact(level="emergency")
    with opened(store) as session:
        assert session.recall("file_001") == text


# E


def test_the_first_request_after_a_resume_is_checked(store):
    """Row 76."""
    talk = fill(working("anthropic", 10), 30, 10)
    with opened(store, window=1_000_000) as session:
        session.append(talk.messages)
        assert session.totals().compactions == 0
    with opened(store, window=12_000) as session:
        sent = session.context()
        assert session.totals().compactions == 1
        assert promises.tokens_of(sent, "anthropic") < 0.8 * 12_000
        session.append({"role": "assistant", "content": "Yes."})
        assert session.context()[:-1] == sent


def test_a_tool_loop_is_checked_before_every_request(store):
    """Row 76."""
    with opened(store, window=12_000) as session:
        session.append({"role": "user", "content": "Look into all folders."})
        for number in range(60):
            step = fill(talk_in("anthropic"), 1, number).messages
            session.append(step[0])
            session.append(step[1:])
            assert promises.tokens_of(session.context(), "anthropic") < 12_000
        assert session.totals().compactions > 1


def test_a_compaction_amid_a_step_comes_back_to_the_same_step(store):
    """Row 80: while a call waits for its result nothing is compacted, and then the step goes on."""
    talk = fill(talk_in("anthropic").user("Look into all folders."), 60)
    with opened(store, window=9_000) as session:
        for message in talk.messages[:-1]:
            session.append(message)
        waiting = session.context()
        assert waiting[-1] == talk.messages[-2]
        before = session.totals().compactions
        session.append(talk.messages[-1])
        assert session.context()[-2:] == talk.messages[-2:] or session.totals().compactions > before
        assert "Look into all folders." in seen(session.context(), "anthropic")


def test_compactions_can_be_undone_shown_and_compared(store):
    """Row 83."""
    talk = fill(working("anthropic", 10), 80, 10)
    with opened(store) as session:
        contexts = []
        for message in talk.messages:
            before = session.context()
            if session.append(message):
                contexts.append([*before, message])
        made = len(contexts)
        assert made >= 3
        tail = talk.messages[-1]
        for _ in range(made):
            assert session.undo() is not None
        assert session.undo() is None
        assert session.context() == talk.messages
        assert session.context()[-1] == tail
        while session.redo():
            pass
        assert session.totals().undone == 0
        diff = session.diff()
        assert diff.counts()["removed"] > 0
        assert "before cmp_" in diff.to_text()
        assert len(session.context(at=len(talk.messages))) == len(session.context())


def test_a_denial_survives_as_a_fact_with_its_source(store):
    """Row 48 in a session."""
    with opened(store) as session:
        talk = talk_in("anthropic").user("Never push to main. Fix src/a.py.")
        session.append(fill(talk, 40).messages)
        session.compact(level="emergency")
        facts = session.facts("constraint")
    assert [(fact.content, fact.role, fact.turn) for fact in facts] == [("Never push to main.", "user", 1)]
    assert all(isinstance(fact, Fact) for fact in facts)


def test_a_long_output_is_cut_at_once_and_can_be_recalled_whole(store):
    """Row 21 in a session."""
    output = listing(3_000)
    with opened(store, window=200_000) as session:
        session.append(talk_in("anthropic").user("Look.").step(bash("ls -R", output)).messages)
        assert promises.tokens_of(session.context(), "anthropic") < 3_000
        assert session.recall("tool_001") == output
        assert session.history()[-1]["content"][0]["content"] == output
