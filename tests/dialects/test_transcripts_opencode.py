"""Sessions of OpenCode: the conversation across its compactions, and where each of them begins."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.messages import ReportedUsage
from context_compactor.dialects.transcripts import opencode
from context_compactor.dialects.transcripts.reader import parse_transcript
from context_compactor.dialects.transcripts.transcript import PastCompaction
from context_compactor.errors import BadTranscript, NoConversation

CREATED = 1_794_979_556_000


def message(name: str, role: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    time = {"created": CREATED} | ({"completed": CREATED + 1} if role == "assistant" else {})
    return {"info": {"id": name, "role": role, "time": time, **more}, "parts": list(parts)}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def call(name: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    state = {"status": status, "input": {"command": "ls"}, "output": "a.py", **more}
    return {"type": "tool", "tool": "bash", "callID": name, "state": state}


def session(*messages: dict[str, Any]) -> str:
    return json.dumps({"info": {"id": "ses_1", "directory": "/project"}, "messages": messages})


TOKENS = {"input": 20_000, "output": 60, "reasoning": 0, "cache": {"read": 500, "write": 0}}
WORK = (
    message("m1", "user", text("Fix it."), {"type": "file", "mime": "image/png", "filename": "a.png"}),
    message("m2", "assistant", {"type": "step-start"}, call("c1"), modelID="claude-x", tokens=TOKENS),
    message("m3", "assistant", text("I see."), call("c2", "error", error="no such file")),
)


def compaction(summary: str = "The summary.", **more: Any) -> tuple[dict[str, Any], ...]:
    return (
        message("m4", "user", {"type": "compaction", "auto": True, **more}),
        message("m5", "assistant", text(summary), parentID="m4", summary=True, finish="stop"),
        message(
            "m6", "user", text("Continue if you have next steps, or stop and ask for clarification", synthetic=True)
        ),
        message("m7", "assistant", text("Done.")),
    )


def test_a_session_is_one_conversation_with_calls_and_results():
    found = parse_transcript(session(*WORK))
    assert (found.source, found.session_id, found.cwd, found.model) == ("opencode", "ses_1", "/project", "claude-x")
    assert [each["role"] for each in found.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert found.messages[0]["content"][1]["text"] == "[Attached image/png: a.png]"
    assert found.messages[2]["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}]
    assert found.messages[4]["content"][0]["is_error"] is True
    assert found.usages == {1: ReportedUsage(input=20_000, cache_read=500, output=60)}


def test_a_compaction_stands_before_the_messages_that_were_kept_and_is_no_part_of_the_conversation():
    found = parse_transcript(session(*WORK, *compaction(tail_start_id="m3")))
    assert found.compactions == [PastCompaction(at=3, trigger="auto", summary="The summary.")]
    assert "The summary." not in json.dumps(found.messages)
    found = parse_transcript(session(*WORK, *compaction()))
    assert found.compactions == [PastCompaction(at=5, trigger="auto", summary="The summary.")]
    assert found.messages[-1]["content"] == [{"type": "text", "text": "Done."}]


def test_a_compaction_that_failed_is_none():
    failed = compaction()
    failed[1]["info"]["error"] = {"name": "ContextOverflowError"}
    assert parse_transcript(session(*WORK, *failed)).compactions == []


def test_an_answer_that_is_still_being_written_is_read_the_next_time():
    growing = message("m9", "assistant", text("Let me"))
    del growing["info"]["time"]["completed"]
    assert parse_transcript(session(*WORK, growing)).messages == parse_transcript(session(*WORK)).messages


def test_a_session_without_a_conversation_is_refused():
    with pytest.raises(NoConversation):
        parse_transcript(session(message("m1", "user")))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "state", "id"]), inner)
    ),
    max_leaves=8,
)
_parts = st.fixed_dictionaries({}, optional=dict.fromkeys(("type", "text", "callID", "tool", "state", "auto"), _json))
_heads = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("id", "role", "time", "tokens", "summary", "parentID", "modelID"), _json)
)
_messages = st.fixed_dictionaries({"info": _heads, "parts": st.lists(_parts | _json, max_size=3)})


@given(st.lists(_messages, min_size=1, max_size=4))
def test_whatever_stands_in_a_session_it_is_read_or_refused(messages):
    assert opencode.is_session({"messages": messages})
    try:
        parse_transcript(json.dumps({"info": None, "messages": messages}))
    except BadTranscript:
        return
