"""Session logs: what of them is the conversation, and what is said about the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from context_compactor.dialects.messages import ReportedUsage
from context_compactor.dialects.transcripts.reader import parse_transcript, read_transcript
from context_compactor.dialects.transcripts.transcript import PastCompaction, Transcript
from context_compactor.errors import BadTranscript

FIXTURES = Path(__file__).parent.parent / "fixtures" / "transcripts"


def picture(messages: list[dict]) -> str:
    """A conversation with one line per message."""
    return "\n".join(f"{message.get('role', '-')}: {_content(message)}" for message in messages)


def _content(message: dict) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return " | ".join(_block(block) for block in content) if content else _block(message)


def _block(block: dict) -> str:
    match block["type"]:
        case "tool_use":
            return f"call {block['id']} {block['name']}"
        case "tool_result":
            return f"{'failed ' if block.get('is_error') else ''}result {block['tool_use_id']}"
        case "thinking":
            return f"thinking{' signed' if block.get('signature') else ''}"
        case "function_call" | "custom_tool_call" | "function_call_output" | "custom_tool_call_output":
            return f"{block['type']} {block['call_id']}"
    return block.get("text") or block["type"]


@pytest.fixture(scope="module")
def claude() -> Transcript:
    return read_transcript(FIXTURES / "claude_code.jsonl")


def test_a_claude_code_log_is_one_conversation(claude):
    assert (
        picture(claude.messages)
        == """\
user: The lamp test is red. Find out why.
assistant: thinking signed | I read both files. | call toolu_1 Read | call toolu_2 Read
user: result toolu_1 | result toolu_2
assistant: The code adds where it should multiply. Shall I rewrite the test?
user: No, leave the test. Correct the code.
assistant: call toolu_3 Task
user: result toolu_3 | and run the tests
assistant: call toolu_4 Bash
user: result toolu_4
assistant: Done: watts() multiplies and the test passes.
user: <command-name>/review</command-name> | Review the change and name what could break."""
    )


def test_a_claude_code_log_says_who_ran_where(claude):
    assert (claude.source, claude.dialect, claude.model) == ("claude-code", "anthropic", "claude-opus-4-6")
    assert (claude.session_id[:8], claude.cwd) == ("5e551011", "/home/ada/lamp")


def test_a_compaction_is_told_and_its_summary_is_no_message(claude):
    assert claude.compactions == [
        PastCompaction(
            9, "auto", 155000, "This session is being continued. Summary: watts() multiplies, the test passes."
        )
    ]


def test_the_usage_of_a_reply_is_the_one_its_last_line_tells(claude):
    assert sorted(claude.usages) == [1, 3, 5, 7, 9]
    assert claude.usages[1] == ReportedUsage(input=3, cache_write=500, cache_read=12000, output=90)


def test_side_chains_are_kept_apart_and_can_be_read(claude):
    assert picture(claude.side_chains["b0a7"]) == "user: Correct watts() in lamp.py\nassistant: It multiplies now."


def test_all_that_was_left_out_is_noted(claude):
    assert claude.notes == [
        "1 side chain of a sub-agent kept apart",
        "1 branch abandoned by a rewind (2 log lines) left out",
        "1 reply written by the client, not the model, left out",
        "1 attachment of the client left out",
    ]


def claude_line(kind: str, uuid: str, parent: str | None, content: object, **more: object) -> dict:
    message = {"role": kind, "content": content} | ({"id": f"msg_{uuid}"} if kind == "assistant" else {})
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **more}


def as_log(*lines: dict) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_the_log_of_a_sub_agent_is_its_own_conversation():
    side = {"isSidechain": True, "agentId": "b0a7"}
    log = as_log(
        claude_line("user", "1", None, "Look.", **side),
        claude_line("assistant", "2", "1", [{"type": "text", "text": "Seen."}], **side),
    )
    transcript = parse_transcript(log)
    assert picture(transcript.messages) == "user: Look.\nassistant: Seen."
    assert transcript.side_chains == {}


def test_side_chains_without_an_agent_are_told_apart_by_their_first_line():
    log = as_log(
        claude_line("user", "1", None, "Main."),
        claude_line("user", "s1", None, "Left.", isSidechain=True),
        claude_line("user", "s2", None, "Right.", isSidechain=True),
        claude_line("user", "s3", "s1", "Left again.", isSidechain=True),
    )
    assert {key: len(messages) for key, messages in parse_transcript(log).side_chains.items()} == {"s1": 1, "s2": 1}


def test_a_rewind_to_the_very_start_leaves_everything_before_it():
    log = as_log(
        claude_line("user", "1", None, "First try."),
        claude_line("assistant", "2", "1", "Answer."),
        claude_line("user", "3", None, "Second try."),
    )
    transcript = parse_transcript(log)
    assert picture(transcript.messages) == "user: Second try."
    assert transcript.notes == ["1 branch abandoned by a rewind (2 log lines) left out"]


def test_a_parent_that_was_never_logged_loses_nothing():
    log = as_log(
        claude_line("user", "1", None, "Before."),
        claude_line("assistant", "2", "1", "Answer."),
        claude_line("user", "3", "gone", "After."),
    )
    assert picture(parse_transcript(log).messages) == "user: Before.\nassistant: Answer.\nuser: After."


def test_a_compaction_whose_logical_parent_is_gone_keeps_what_came_before():
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None}
    log = as_log(
        claude_line("user", "1", None, "Before."),
        {**boundary, "logicalParentUuid": "gone", "compactMetadata": {"trigger": "manual", "preTokens": 7}},
        claude_line("user", "2", "b", "The summary.", isCompactSummary=True),
        claude_line("assistant", "3", "2", "After."),
    )
    transcript = parse_transcript(log)
    assert picture(transcript.messages) == "user: Before.\nassistant: After."
    assert transcript.compactions == [PastCompaction(1, "manual", 7, "The summary.")]


def test_an_old_log_marks_a_compaction_with_its_summary_alone():
    log = as_log(
        claude_line("user", "1", None, "Before."),
        claude_line("user", "2", None, "The summary.", isCompactSummary=True),
        claude_line("assistant", "3", "2", "After."),
    )
    assert parse_transcript(log).compactions == [PastCompaction(1, summary="The summary.")]


def test_words_that_an_older_client_logged_in_its_queue_alone_are_kept():
    queue = {"type": "queue-operation", "operation": "enqueue", "sessionId": "s"}
    log = as_log(
        claude_line("user", "1", None, "Start."),
        claude_line("assistant", "2", "1", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]),
        {**queue, "content": "It starts with an e."},
        {**queue, "content": "Start."},
        {**queue, "operation": "remove"},
        claude_line("user", "3", "2", [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]),
    )
    assert picture(parse_transcript(log).messages).endswith("user: result t | It starts with an e.")


def test_a_line_written_twice_counts_once():
    first = claude_line("user", "1", None, "Hello.")
    second = claude_line("assistant", "2", "1", [{"type": "text", "text": "Good day."}])
    assert (
        picture(parse_transcript(as_log(first, second, first, second)).messages) == "user: Hello.\nassistant: Good day."
    )


def test_lines_that_name_each_other_as_parents_end():
    log = as_log(claude_line("user", "1", "2", "Egg."), claude_line("assistant", "2", "1", "Hen."))
    assert len(parse_transcript(log).messages) == 2


def test_what_claude_code_streams_is_read_like_its_log():
    transcript = read_transcript(FIXTURES / "claude_stream.jsonl")
    assert (
        picture(transcript.messages) == "assistant: call toolu_1 Task\nuser: result toolu_1\nassistant: It is a lamp."
    )
    assert transcript.compactions == [PastCompaction(2, "manual", 900)]
    assert list(transcript.side_chains) == ["toolu_1"]


@pytest.fixture(scope="module")
def codex() -> Transcript:
    return read_transcript(FIXTURES / "codex.jsonl")


def test_a_codex_rollout_is_its_items_with_sealed_reasoning(codex):
    assert (
        picture(codex.messages)
        == """\
developer: Sandbox: read only.
user: <environment_context><cwd>/home/ada/clock</cwd></environment_context>
user: Why is the clock late?
-: reasoning
assistant: I look at the wheel.
-: function_call call_1
-: function_call call_2
-: function_call_output call_1
-: function_call_output call_2
assistant: The wheel has 59 teeth; it needs 60.
user: Correct the wheel.
-: custom_tool_call call_3
-: custom_tool_call_output call_3"""
    )
    assert codex.messages[3]["encrypted_content"] == "Z0FBQUE="


def test_a_codex_rollout_says_its_instructions_model_and_window(codex):
    assert (codex.source, codex.session_id, codex.model, codex.window) == ("codex", "c0de0001", "gpt-5.6", 258400)
    assert (codex.system, codex.cwd) == ("You are a careful coding agent.", "/home/ada/clock")


def test_a_token_count_belongs_to_the_last_item_the_model_wrote(codex):
    assert codex.usages == {
        6: ReportedUsage(input=1000, cache_read=8000, output=300),
        9: ReportedUsage(input=500, cache_read=9000, output=60),
        11: ReportedUsage(input=1500, output=80),
    }


def test_a_codex_compaction_tells_what_was_used_before_it(codex):
    assert codex.compactions == [PastCompaction(10, "auto", 9560, "The wheel needs 60 teeth.")]


def _rollout(*lines: tuple[str, dict[str, Any]]) -> Transcript:
    return parse_transcript("".join(json.dumps({"type": kind, "payload": payload}) + "\n" for kind, payload in lines))


def _said(role: str, text: str) -> tuple[str, dict[str, Any]]:
    block = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return "response_item", {"type": "message", "role": role, "content": [block]}


def _event(kind: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "event_msg", {"type": kind, **more}


_META = ("session_meta", {"id": "c0de0002"})
_SUMMARY = "We decided to use Oracle because it scales."
_COMPACTED = ("compacted", {"message": f"Another language model wrote this:\n{_SUMMARY}"})
_WAYS = {
    "within a turn": ((_said("user", "Go on."), _said("assistant", _SUMMARY), _COMPACTED), "auto"),
    "before a turn": ((_said("assistant", _SUMMARY), _COMPACTED, _said("user", "Go on.")), "auto"),
    "asked for": ((_said("assistant", _SUMMARY), _COMPACTED, _event("task_complete"), _said("user", "Go.")), "manual"),
    "nothing more": ((_said("assistant", _SUMMARY), _COMPACTED), ""),
}


@pytest.mark.parametrize("way", _WAYS)
def test_a_codex_compaction_is_automatic_unless_it_is_a_turn_of_its_own(way):
    """As Codex 0.169.0 writes it; its summary stands there as an answer, and is none."""
    lines, trigger = _WAYS[way]
    begun = (_META, _event("task_started"), _said("user", "Mend it."), _said("assistant", "Done."))
    found = _rollout(*begun, _event("task_complete"), _event("task_started"), *lines)
    (past,) = found.compactions
    assert past.trigger == trigger
    assert past.summary.endswith(_SUMMARY)
    assert "Oracle" not in json.dumps(found.messages)


def test_a_codex_rollback_is_read_where_prompts_are_items():
    item = {"type": "UserMessage"}
    turns = [(_said("user", text), _event("item_completed", item=item), _said("assistant", "Ok.")) for text in "abc"]
    found = _rollout(_META, *turns[0], *turns[1], *turns[2], _event("thread_rolled_back", num_turns=2))
    assert len(found.messages) == 2


def test_what_a_codex_rollback_took_back_is_left_out_and_noted(codex):
    assert codex.notes == ["2 items taken back by a rollback left out"]


def test_a_rollout_of_the_first_version_has_bare_items():
    transcript = read_transcript(FIXTURES / "codex_first_version.jsonl")
    assert picture(transcript.messages) == "user: What time is it?\nassistant: Late."
    assert (transcript.source, transcript.session_id, transcript.system) == ("codex", "c0de0000", "Be brief.")


def test_a_pi_log_is_the_branch_of_its_last_entry():
    transcript = read_transcript(FIXTURES / "pi.jsonl")
    assert (
        picture(transcript.messages).replace("\n\n", " ")
        == """\
user: Why does the kite fall?
assistant: thinking signed | I measure the tail. | call tc_1 bash | call tc_2 read
user: result tc_1 | failed result tc_2
assistant: Shall I cut the tail?
user: Summary of another branch that this conversation came back from: Cutting the tail made it fall faster. | \
The user ran `make fly`. ```
stall
``` Exit code 2.
user: Wind: 4 knots. | Make the tail longer. | image
assistant: thinking | It flies."""
    )


def test_a_pi_log_tells_its_compactions_usage_and_model():
    transcript = read_transcript(FIXTURES / "pi.jsonl")
    assert transcript.compactions == [PastCompaction(5, "", 50000, "The tail is too short.")]
    assert transcript.usages[1] == ReportedUsage(input=10, cache_write=300, cache_read=2000, output=40)
    assert (transcript.source, transcript.dialect, transcript.model) == ("pi", "anthropic", "gpt-5.5")
    assert transcript.notes == [
        "2 messages of abandoned branches left out",
        "1 command the user kept from the model left out",
    ]


def test_a_pi_log_of_the_first_version_has_no_tree():
    transcript = read_transcript(FIXTURES / "pi_first_version.jsonl")
    assert picture(transcript.messages) == "user: Does it fly?\nassistant: Not yet."
    assert (transcript.session_id, transcript.model) == ("9e551000", "claude-opus-4-5")


@pytest.mark.parametrize("name", ["claude_code.jsonl", "codex.jsonl", "pi.jsonl"])
def test_the_cut_last_line_of_a_running_session_is_left_out_and_noted(name):
    whole = (FIXTURES / name).read_bytes()
    transcript = parse_transcript(whole + whole.splitlines()[-1][:25])
    assert transcript.messages == parse_transcript(whole).messages
    assert transcript.notes[-1].endswith("is cut off, the log is still being written: left out")


@pytest.mark.parametrize("name", ["claude_code.jsonl", "codex.jsonl", "pi.jsonl"])
def test_another_broken_line_of_a_log_is_an_error_with_its_number(name):
    lines = (FIXTURES / name).read_text().splitlines()
    lines[4] = lines[4][:25]
    with pytest.raises(BadTranscript, match=r"line 5: not JSON: .* Try: correct or remove that line"):
        parse_transcript("\n".join(lines))


def test_a_log_without_a_conversation_is_an_error():
    with pytest.raises(BadTranscript, match="this log of codex holds no conversation"):
        parse_transcript(as_log({"type": "session_meta", "payload": {"id": "x"}}))


def test_system_messages_of_a_pi_log_become_its_system_prompt_and_tools():
    read, bash = {"name": "read", "parameters": {}}, {"name": "bash", "parameters": {}}
    systems = [
        {"role": "system", "content": "Be kind.", "toolsAdded": [read, bash]},
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "toolsRemoved": [{"name": "bash"}]},
        {"role": "user", "content": "Hello."},
    ]
    log = as_log({"type": "session", "id": "x"}, *({"type": "message", "message": message} for message in systems))
    transcript = parse_transcript(log)
    assert (transcript.system, transcript.tools) == ("Be kind.\n\nBe brief.", [read])
    assert picture(transcript.messages) == "user: Hello."


def test_a_compaction_of_pi_says_the_system_prompt_anew():
    log = as_log(
        {"type": "session", "id": "x"},
        {"type": "message", "message": {"role": "system", "content": "Old."}},
        {"type": "message", "message": {"role": "user", "content": "Hello."}},
        {"type": "compaction", "summary": "S", "systemMessage": {"role": "system", "content": "New."}},
    )
    assert parse_transcript(log).system == "New."
