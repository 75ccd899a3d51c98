"""An agent asks us for a compaction: our record stands for its summary, and the session follows what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_compactor.dialects.record import parse_record, record_span
from tests.hooks.place import Place, Talk, worked

RULE = "Never touch the file config/secrets.yaml"
FAILED = "KeyError: 'exp'"


def worked_long(talk: Talk, steps: int = 30, first: int = 0) -> None:
    """Work that a record is much shorter than."""
    worked(talk)
    work_on(talk, steps, first)


def work_on(talk: Talk, steps: int, first: int = 0) -> None:
    for number in range(first, first + steps):
        call = talk.ask("Bash", {"command": f"./measure --step {number}"})
        talk.result(call, "\n".join(f"step {number} line {line}: {number * line * 7919}" for line in range(40)))


def compact(talk: Talk, trigger: str = "auto", **more: Any) -> dict[str, Any]:
    answer = talk.hook("Compact", "compact --agent claude-code", trigger=trigger, **more)
    assert isinstance(answer, dict)
    return answer


def take(talk: Talk, record: str, *kept: str) -> None:
    """What Claude Code logs when a plugin has answered: a boundary, the text as a plain row, and kept rows again."""
    metadata = {"trigger": "auto", "preTokens": talk.tokens, "postTokens": 3_000}
    talk.write({"type": "system", "subtype": "compact_boundary", "compactMetadata": metadata})
    talk.user(record)
    for text in kept:
        talk.user(text)


def context_text(place: Place, talk: Talk) -> str:
    with place.session(talk.id) as session:
        return json.dumps(session.context(), ensure_ascii=False)


def assert_whole(context: str, last: str) -> None:
    assert "[Context record." not in context
    assert RULE in context
    assert "step 29 line 39" in context
    assert last in context


def test_the_answer_is_a_record_of_the_size_that_is_set_and_everything_is_archived_first(talk: Talk, place: Place):
    worked_long(talk)
    answer = compact(talk)
    record = answer["record"]
    assert record.startswith("[Context record.")
    assert RULE in record
    assert FAILED in record
    assert answer["tokens_after"] <= 6_000
    assert answer["tokens_before"] == talk.tokens
    with place.session(talk.id) as session:
        assert FAILED in session.recall("tool_007")
        (report,) = session.compactions()
        assert (report.status, report.trigger) == ("success", "threshold")
    (entry,) = [line for line in place.hook_log() if line["event"] == "compact"]
    assert (entry["what"], entry["tokens"]) == ("record given", answer["tokens_after"])


def test_an_agent_in_the_middle_of_its_work_is_told_to_go_on_and_one_that_has_answered_is_not(talk: Talk):
    worked_long(talk)
    assert "go on with the work" in compact(talk)["record"]
    talk.answer("All of it is measured.")
    assert "go on with the work" not in compact(talk)["record"]


def test_an_open_question_is_left_to_the_agent_and_not_repeated_in_the_record(talk: Talk, place: Place):
    worked_long(talk)
    talk.answer("All of it is measured.")
    talk.user("Now measure the whole of it again, please.")
    answer = compact(talk)
    assert "measure the whole of it again" not in answer["record"]
    take(talk, answer["record"], "Now measure the whole of it again, please.")
    talk.answer("I am on it.")
    talk.hook("SessionStart", "session-start", source="compact")
    assert context_text(place, talk).count("measure the whole of it again") == 1


def test_a_record_that_was_taken_is_the_context_of_the_session_and_brings_no_brief(talk: Talk, place: Place):
    worked_long(talk)
    record = compact(talk)["record"]
    take(talk, record)
    assert talk.hook("SessionStart", "session-start", source="compact") is None
    talk.answer("I go on.")
    assert talk.hook("PostCompact", "post-compact", trigger="auto", compact_summary="") is None
    with place.session(talk.id) as session:
        assert len(session.compactions()) == 1
        first, *rest = session.context()
        assert first["content"].startswith("[Context record.")
        assert [message["role"] for message in rest] == ["assistant"]


def test_a_brief_is_not_given_either_before_the_log_shows_the_compaction(talk: Talk):
    worked_long(talk)
    compact(talk)
    assert talk.hook("SessionStart", "session-start", source="compact") is None


def test_ids_rules_and_failures_live_through_a_chain_of_compactions(talk: Talk, place: Place):
    worked_long(talk)
    for number in range(5):
        answer = compact(talk)
        assert RULE in answer["record"]
        assert FAILED in answer["record"]
        assert answer["tokens_after"] <= 6_000
        take(talk, answer["record"])
        work_on(talk, 20, 100 * (number + 1))
    talk.hook("Stop", "stop")
    with place.session(talk.id) as session:
        assert len(session.compactions()) == 5
        assert FAILED in session.recall("tool_007")
        assert "step 0 line 39" in session.recall("tool_008")
        assert any("404" in hit.text for hit in session.search("measure step 404"))


def test_an_agent_that_goes_on_without_the_record_finds_its_session_as_it_was(talk: Talk, place: Place):
    worked_long(talk)
    compact(talk)
    talk.answer("I have not been compacted.")
    talk.hook("Stop", "stop")
    assert_whole(context_text(place, talk), "I have not been compacted.")


def test_an_own_compaction_of_the_agent_after_all_is_adopted_as_one(talk: Talk, place: Place):
    worked_long(talk)
    compact(talk)
    metadata = {"trigger": "auto", "preTokens": talk.tokens}
    talk.write({"type": "system", "subtype": "compact_boundary", "compactMetadata": metadata})
    summary = {"role": "user", "content": "This session is being continued. We measured things."}
    talk.write({"type": "user", "isCompactSummary": True, "message": summary})
    answer = talk.hook("SessionStart", "session-start", source="compact")
    assert "compactor-brief-" in answer["hookSpecificOutput"]["additionalContext"]
    with place.session(talk.id) as session:
        assert "itself" in session.compactions()[-1].reason
    assert "We measured things." in context_text(place, talk)


def test_whoever_asks_twice_gets_the_same_record(talk: Talk):
    worked_long(talk)
    assert compact(talk)["record"] == compact(talk)["record"]


@pytest.mark.parametrize("value", ["beside", "steered"])
def test_another_setting_gives_no_record(talk: Talk, place: Place, value: str):
    worked_long(talk)
    out = place.call("compact", talk.said("Compact", trigger="auto"), COMPACTOR_AGENT_COMPACTION=value)
    assert "record" not in json.loads(out)


def test_a_compaction_that_is_turned_off_answers_nothing(talk: Talk, place: Place):
    worked_long(talk)
    assert place.call("compact", talk.said("Compact", trigger="auto"), COMPACTOR_ENABLED="false") == ""


def test_no_model_is_asked_even_where_a_summarizer_is_set(talk: Talk, place: Place):
    worked_long(talk)
    out = place.call("compact", talk.said("Compact", trigger="auto"), COMPACTOR_SUMMARIZER="http://127.0.0.1:9/v1#none")
    assert "record" in json.loads(out)
    with place.session(talk.id) as session:
        assert session.compactions()[-1].model_calls == ()


def test_a_size_that_is_set_is_kept(talk: Talk, place: Place):
    worked_long(talk)
    out = place.call("compact", talk.said("Compact", trigger="auto"), COMPACTOR_AGENT_RECORD_TOKENS="3000")
    assert json.loads(out)["tokens_after"] <= 3_000


def test_without_a_log_the_agent_compacts_by_itself_and_the_hook_log_says_why(talk: Talk, place: Place):
    answer = json.loads(place.call("compact", talk.said("Compact") | {"transcript_path": "/nowhere.jsonl"}))
    assert "no log at /nowhere.jsonl" in answer["pass"]
    assert place.hook_log()[-1]["what"] == "passed"


def test_a_conversation_of_a_few_words_is_left_to_the_agent(talk: Talk):
    talk.user("Hello.")
    talk.answer("Hello, what can I do?")
    assert "record" not in compact(talk, "manual")


def test_a_sub_agent_is_compacted_apart_from_its_caller(talk: Talk, place: Place):
    worked_long(talk)
    child = Talk(place)
    child.path = talk.path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    child.path.parent.mkdir(parents=True)
    child.user("Measure everything.")
    work_on(child, 30)
    record = compact(talk, agent_id="a1")["record"]
    assert "Measure everything." in record
    assert RULE not in record
    with place.session(talk.id) as session:
        assert session.compactions() == []


def test_the_messages_before_a_compaction_come_back_as_rows_with_all_that_came_since(talk: Talk, place: Place):
    worked_long(talk)
    take(talk, compact(talk)["record"])
    talk.user("Say more.")
    talk.answer("More.")
    answer = talk.hook("Undo", "undo")
    rows = answer["rows"]
    assert rows[0]["text"].startswith("Fix") or RULE in rows[0]["text"]
    assert (rows[-1]["role"], rows[-1]["text"]) == ("assistant", "More.")
    called = [use["tool_use_id"] for row in rows for use in row.get("toolUses", ())]
    answered = [use["tool_use_id"] for row in rows for use in row.get("toolResults", ())]
    assert called == answered
    metadata = {"trigger": "manual", "preTokens": talk.tokens}
    talk.write({"type": "system", "subtype": "compact_boundary", "compactMetadata": metadata})
    assert talk.hook("SessionStart", "session-start", source="compact") is None
    talk.answer("Back again.")
    talk.hook("Stop", "stop")
    assert_whole(context_text(place, talk), "Back again.")


def test_rows_that_are_logged_again_after_an_undo_are_the_messages_that_were_there(talk: Talk, place: Place):
    typed(talk, "Measure it, and be exact.", "first")
    talk.answer("I begin.")
    worked_long(talk)
    take(talk, compact(talk)["record"])
    typed(talk, "Say more.", "second")
    talk.answer("More.")
    rows = talk.hook("Undo", "undo")["rows"]
    metadata = {"trigger": "manual", "preTokens": talk.tokens}
    talk.write({"type": "system", "subtype": "compact_boundary", "compactMetadata": metadata})
    for row in rows:
        log_again(talk, row)
    typed(talk, "Say more.", "third")
    talk.answer("Back again.")
    talk.hook("Stop", "stop")
    context = context_text(place, talk)
    assert_whole(context, "Back again.")
    assert (context.count("Measure it"), context.count("Say more.")) == (1, 2)


def test_an_undo_after_two_compactions_goes_back_to_the_first_record_and_all_that_came_behind_it(
    talk: Talk, place: Place
):
    worked_long(talk)
    take(talk, compact(talk)["record"])
    work_on(talk, 30, first=30)
    take(talk, compact(talk)["record"])
    talk.answer("Done.")
    rows = talk.hook("Undo", "undo")["rows"]
    talk.write({"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "manual"}})
    for row in rows:
        log_again(talk, row)
    talk.answer("Back again.")
    talk.hook("Stop", "stop")
    context = context_text(place, talk)
    assert context.count("[Context record.") == 1
    assert all(text in context for text in ("step 59 line 39", "Done.", "Back again."))


def typed(talk: Talk, text: str, prompt_id: str) -> None:
    """A prompt as newer versions of Claude Code log it."""
    message = {"role": "user", "content": text}
    talk.write({"type": "user", "promptId": prompt_id, "promptSource": "typed", "message": message})


def log_again(talk: Talk, row: dict[str, Any]) -> None:
    """What Claude Code logs of a row that a plugin has put back: all under one new id of a prompt."""
    uses = [
        {"type": "tool_use", "id": use["tool_use_id"], "name": use["tool"], "input": use["input"]}
        for use in row["toolUses"]
    ]
    results = [
        {"type": "tool_result", "tool_use_id": use["tool_use_id"], "content": use["text"]}
        for use in row.get("toolResults", ())
    ]
    content = [{"type": "text", "text": row["text"]}] * bool(row["text"] and row["role"] == "assistant")
    message = {"role": row["role"], "content": [*content, *uses, *results] or row["text"]}
    talk.write({"type": row["role"], "promptId": "again", "message": message})


def test_without_a_compaction_there_is_nothing_to_undo(talk: Talk):
    worked_long(talk)
    assert talk.hook("Undo", "undo") == {"pass": "there is no compaction to undo"}


def test_a_conversation_that_filled_the_window_is_not_put_back(talk: Talk, place: Place):
    worked_long(talk)
    take(talk, compact(talk)["record"])
    (place.project / ".compactor/config.toml").write_text("window = 12000\n")
    assert "would be compacted again" in talk.hook("Undo", "undo")["pass"]
    assert context_text(place, talk).count("[Context record.") == 1


def test_an_image_before_a_compaction_keeps_it_from_being_undone(talk: Talk, place: Place):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    talk.write({"type": "user", "message": {"role": "user", "content": [image, {"type": "text", "text": "See."}]}})
    worked_long(talk)
    take(talk, compact(talk)["record"])
    assert "image" in talk.hook("Undo", "undo")["pass"]
    assert context_text(place, talk).count("[Context record.") == 1


def test_a_prompt_right_behind_a_result_leaves_nothing_out_and_stops_the_work(talk: Talk, place: Place):
    worked_long(talk)
    talk.run("./deploy prod", "deployed v9 to prod")
    talk.user("Stop. Look at the docs instead.")
    text = compact(talk, open_prompts=["Stop. Look at the docs instead."])["record"]
    assert "deployed v9 to prod" in text
    assert "Look at the docs" not in text
    assert "go on with the work" not in text
    assert "Look at the docs" in compact(talk, open_prompts=[])["record"]


def test_what_the_user_types_while_the_agent_works_is_not_lost(talk: Talk, place: Place):
    worked_long(talk)
    queued = {"type": "queued_command", "prompt": "From now on never use port 4711."}
    talk.write({"type": "attachment", "attachment": queued})
    answer = compact(talk, open_prompts=[])
    take(talk, answer["record"])
    work_on(talk, 20, 100)
    assert "never use port 4711" in answer["record"]
    assert "never use port 4711" in compact(talk)["record"]


def test_a_prompt_behind_a_record_that_was_taken_is_the_users_whatever_the_log_says_of_it(talk: Talk, place: Place):
    worked_long(talk)
    take(talk, compact(talk)["record"])
    talk.user("Now rename the module, and keep its tests.")
    talk.answer("I am on it.")
    talk.hook("Stop", "stop")
    assert "rename the module" in context_text(place, talk)


def test_rules_that_have_no_room_in_the_record_are_counted_behind_it(talk: Talk, place: Place):
    for number in range(80):
        talk.user(f"Never touch the folder legacy_{number}_of_department_{number * 7}, whatever happens there.")
        talk.answer("Understood.")
    work_on(talk, 10)
    said = talk.said("Compact", trigger="auto")
    text = json.loads(place.call("compact", said, COMPACTOR_AGENT_RECORD_TOKENS="1000"))["record"]
    assert "more rules than had room" in text


def test_who_goes_back_to_before_a_compaction_has_the_whole_conversation_again(talk: Talk, place: Place):
    worked_long(talk)
    last = talk.answer("All of it is measured.")
    take(talk, compact(talk)["record"])
    talk.hook("SessionStart", "session-start", source="compact")
    talk.rewind(last)
    talk.user("Take another way.")
    talk.answer("Another way it is.")
    talk.hook("Stop", "stop")
    assert_whole(context_text(place, talk), "Another way it is.")
    assert "record" in compact(talk)


def test_a_record_that_came_too_late_is_withdrawn_and_the_brief_is_given(talk: Talk, place: Place):
    worked_long(talk)
    compact(talk)
    talk.hook("Failed", "failed --agent claude-code", reason="still running after 20000 ms", trigger="auto")
    talk.compact("We measured things.")
    answer = talk.hook("SessionStart", "session-start", source="compact")
    assert "compactor-brief-" in answer["hookSpecificOutput"]["additionalContext"]


def test_a_plan_says_what_a_compaction_would_do_and_does_nothing(talk: Talk, place: Place):
    worked_long(talk)
    text = talk.hook("Plan", "plan")["text"]
    assert "messages → one record" in text
    assert "What saves most:" in text
    with place.session(talk.id) as session:
        assert session.compactions() == []


def test_a_long_text_that_an_agent_is_about_to_keep_is_replaced_by_a_shorter_one_with_a_reference(
    talk: Talk, place: Place
):
    worked(talk)
    report = " ".join(f"Finding {number} is about src/file_{number}.py." for number in range(3_000))
    more = {"tool_name": "Agent", "tool_use_id": "toolu_a/report", "tool_response": report}
    text = talk.hook("Shorten", "shorten", **more)["text"]
    assert len(text) < 4_000
    ref = text.rpartition('recall("')[2].partition('"')[0]
    with place.session(talk.id) as session:
        assert session.recall(ref) == report
    assert talk.hook("Shorten", "shorten", **more | {"tool_response": "Short."}) is None


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=400)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=6))
def test_whatever_is_said_the_answer_is_a_readable_record_or_a_pass(tmp_path_factory, said):
    talk = Talk(Place(tmp_path_factory.mktemp("place")))
    for user, tool, answer in said:
        talk.user(user or "x")
        call = talk.ask("Bash", {"command": tool})
        talk.result(call, answer * 20)
        talk.answer(answer or "y")
    found = compact(talk, "manual")
    if "record" in found:
        span = record_span(found["record"])
        assert span
        assert parse_record(found["record"][slice(*span)])
    else:
        assert found["pass"]
