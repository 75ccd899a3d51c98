"""Who compacts is not the user: what a plugin leaves in a log is no task, no rule, no decision and no failure."""

from __future__ import annotations

import json

import pytest

from context_compactor.agents.sync import open_agent_session, sync_transcript
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.repair import repair
from context_compactor.dialects.transcripts.reader import parse_transcript
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.engine.classify import parse_context
from context_compactor.facts.fact import Fact
from context_compactor.sessions.facts import all_facts
from context_compactor.sessions.views import history
from context_compactor.settings import Settings
from context_compactor.store.connect import connect
from tests.agents.plugin_log import DECIDED, DIGEST, FIRST, KEPT, SECOND, THIRD, Log, plugin_log

SPOKEN = ("task", "constraint", "decision", "failure", "denial", "approval", "blocker")


def read(log: Log) -> Transcript:
    return parse_transcript(b"".join(log.lines()))


def facts_of(transcript: Transcript) -> list[Fact]:
    dialect = DIALECTS["anthropic"]
    return parse_context(repair(dialect.parse(transcript.messages), dialect)[0], dialect).facts


def spoken(facts: list[Fact]) -> set[tuple[str, str, int]]:
    return {(fact.kind, fact.content, fact.count) for fact in facts if fact.kind in SPOKEN}


EXPECTED = {
    ("task", FIRST, 1),
    ("task", SECOND, 1),
    ("task", THIRD, 1),
    ("constraint", "Never touch config/secrets.yaml.", 1),
    ("decision", DECIDED, 1),
}


@pytest.mark.parametrize("kept", KEPT)
def test_a_digest_by_a_plugin_and_the_rows_it_kept_say_nothing_new(kept):
    transcript = read(plugin_log(kept))
    assert spoken(facts_of(transcript)) == EXPECTED
    (past,) = transcript.compactions
    assert (past.at, past.trigger, past.summary) == (5, "auto", DIGEST)


@pytest.mark.parametrize("kept", [kept for kept in KEPT if not kept.startswith("a ")])
def test_rows_that_were_kept_are_in_the_conversation_once(kept):
    assert read(plugin_log(kept)).messages == read(plugin_log("nothing")).messages


def test_a_prompt_that_was_kept_behind_a_call_nobody_has_seen_is_not_asked_again():
    assert json.dumps(read(plugin_log("a call of its own")).messages).count(SECOND) == 1


def test_what_was_left_out_is_noted():
    assert "3 rows that a compaction kept and logged again left out" in read(plugin_log("new ids")).notes


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("step", [1, 3, 100])
def test_a_session_that_follows_such_a_log_knows_only_what_was_said(kept, step):
    lines = plugin_log(kept).lines()
    store = connect("memory:")
    for end in (*range(step, len(lines), step), len(lines)):
        transcript = parse_transcript(b"".join(lines[:end]))
        core = open_agent_session("s", transcript, Settings(), store=store)
        sync_transcript(core, transcript, is_closed=end == len(lines))
    assert history(core) == transcript.messages
    assert {(kind, content) for kind, content, _ in spoken(all_facts(core))} == {pair[:2] for pair in EXPECTED}
    said = [str(message) for message in history(core)]
    assert not any("Rust" in message for message in said)


def test_a_digest_without_a_parent_is_no_new_beginning():
    log = plugin_log()
    digest = next(row for row in log.rows if row.get("message", {}).get("content") == DIGEST)
    digest["parentUuid"] = None
    assert spoken(facts_of(read(log))) == EXPECTED


def test_a_digest_in_several_rows_is_one_summary():
    log = Log()
    log.typed(FIRST)
    log.reply({"type": "text", "text": "Done."})
    log.boundary()
    log.plain("Always deploy.")
    log.plain("Never test.", isMeta=True)
    log.reply({"type": "text", "text": "Going on."})
    transcript = read(log)
    assert [past.summary for past in transcript.compactions] == ["Always deploy.\n\nNever test."]
    assert len(transcript.messages) == 3


@pytest.mark.parametrize("summary", [True, False])
def test_what_is_typed_after_a_compaction_is_the_users_though_it_was_typed_before(summary):
    log = Log()
    log.typed("Continue.")
    log.reply({"type": "text", "text": "Done."})
    log.boundary()
    log.plain("The summary.", **({"isCompactSummary": True} if summary else {}))
    log.typed("Continue.")
    log.reply({"type": "text", "text": "Done."})
    transcript = read(log)
    assert [message["role"] for message in transcript.messages] == ["user", "assistant", "user", "assistant"]
    assert [past.summary for past in transcript.compactions] == ["The summary."]


def test_prompts_of_a_client_that_marks_none_are_the_users_behind_its_own_summary():
    log = Log("1.0.80")
    for text in ("Begin.", "Continue."):
        log.add({"type": "user", "message": {"role": "user", "content": text}})
        log.reply({"type": "text", "text": f"Did: {text}"})
    log.boundary()
    log.add({"type": "user", "message": {"role": "user", "content": "Summary."}, "isCompactSummary": True})
    log.add({"type": "user", "message": {"role": "user", "content": "Continue."}})
    log.add({"type": "user", "message": {"role": "user", "content": "And mind the tests."}})
    log.reply({"type": "text", "text": "Yes."})
    said = json.dumps(read(log).messages)
    assert said.count("Continue.") == 3
    assert "And mind the tests." in said


def test_a_slash_command_after_a_compaction_stays_what_it_is():
    log = Log()
    log.typed(FIRST)
    log.reply({"type": "text", "text": "Done."})
    log.boundary()
    log.plain(DIGEST)
    log.plain("<command-name>/compact</command-name>\n<command-args>keep the login</command-args>")
    log.plain("<local-command-stdout>Compacted</local-command-stdout>")
    log.plain("Here is what else I found.")
    log.plain("<command-name>/review</command-name>\n<command-args>the header</command-args>")
    log.plain("# Review\n\nName what could break.", isMeta=True)
    transcript = read(log)
    said = json.dumps(transcript.messages[-1])
    assert [word in said for word in ("/compact", "/review", "Name what could break", "Rust", "what else")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert transcript.compactions[0].summary == f"{DIGEST}\n\nHere is what else I found."
