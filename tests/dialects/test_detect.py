"""Which dialect a list of messages speaks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor import compact
from context_compactor.dialects.detection import DIALECTS, detect, find_dialect, likely_dialect
from context_compactor.dialects.messages import Opaque, Text, Thinking, ToolCall
from context_compactor.errors import BadMessage
from tests.dialects.shapes import BUILDERS
from tests.dialects.strategies import DIALECT_NAMES, legal_histories

HI = {"role": "user", "content": "hi"}
THOUGHT = {"type": "thinking", "thinking": "two files to read", "signature": "c2lnbmVk"}
SEALED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
CHAT_WITH_THINKING = [
    HI,
    {"role": "assistant", "content": [THOUGHT, SEALED, {"type": "text", "text": "ok"}], "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "1"},
]
USES_TOOL = {"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "read", "input": {}}]}
TOOL_RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "1"}]}


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_conversation_with_calls_tells_its_dialect(name):
    build = BUILDERS[name]
    assert detect([HI, *build.calls("a"), *build.results(("a", "1"))]).name == name
    assert find_dialect("auto", [HI, *build.calls("a")]).name == name


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ([], "openai-chat"),
        ([HI, {"role": "assistant", "content": "ok"}], "openai-chat"),
        ([{"role": "developer", "content": "x"}, HI], "openai-chat"),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}], "anthropic"),
        ([{"role": "system", "content": [{"type": "text", "text": "a", "cache_control": {}}]}, HI], "openai-chat"),
        ([HI, {"role": "assistant", "content": None, "refusal": None, "tool_calls": None}], "openai-chat"),
        ([HI, {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]}], "anthropic"),
        ([HI, {"type": "message", "role": "assistant", "content": "a"}], "openai-responses"),
        ([HI, {"type": "reasoning", "id": "rs_1", "summary": []}], "openai-responses"),
        ([{"type": "web_search_call", "id": "ws_1"}], "openai-responses"),
        ([{"role": "user", "content": [{"type": "image", "source": {}}]}], "anthropic"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}], "openai-chat"),
        ([None, 7, {"type": ["odd"]}, {"role": ["odd"]}], "openai-chat"),
        (CHAT_WITH_THINKING, "openai-chat"),
        ([HI, {"role": "assistant", "content": [THOUGHT]}, *CHAT_WITH_THINKING], "openai-chat"),
        ([HI, {"role": "assistant", "content": "ok", "thinking_blocks": [THOUGHT]}], "openai-chat"),
        ([HI, {"role": "assistant", "content": [THOUGHT]}], "anthropic"),
        ([{"role": "system", "content": "x"}, HI, {"role": "assistant", "content": [SEALED]}], "anthropic"),
        ([{"role": "system", "content": "x"}, HI, USES_TOOL, TOOL_RESULT], "anthropic"),
        ([{"role": "developer", "content": "x"}, {"role": "assistant", "content": [THOUGHT]}], "openai-chat"),
        ([{"role": "user", "content": [{"type": "image", "source": {}}]}, *CHAT_WITH_THINKING], "openai-chat"),
        ([HI, {**USES_TOOL, "tool_calls": [CALL]}, CHAT_WITH_THINKING[2]], "openai-chat"),
        ([{"type": "message", "role": "user", "content": "hi"}, USES_TOOL, TOOL_RESULT], "anthropic"),
        ([{"type": "message", "role": "user", "content": "hi"}, *CHAT_WITH_THINKING], "openai-chat"),
        ([HI, {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}], "anthropic"),
    ],
)
def test_telltale_messages(items, name):
    assert detect(items).name == name


def test_a_named_dialect_is_not_second_guessed():
    assert find_dialect("anthropic", [HI]) is DIALECTS["anthropic"]


@settings(deadline=None)
@given(data=st.data(), name=st.sampled_from(DIALECT_NAMES))
def test_what_is_detected_can_be_read(data, name):
    items = data.draw(legal_histories(name))
    found = detect(items)
    assert len(found.parse(items)) == len(items)


def test_thinking_blocks_in_a_chat_message_are_thinking():
    parts = detect(CHAT_WITH_THINKING).parse(CHAT_WITH_THINKING)[1].parts
    assert parts == (
        Thinking("two files to read", signed=True),
        Thinking("", signed=True),
        Text("ok"),
        ToolCall("a", "read", "{}"),
    )


def test_thinking_whose_text_is_a_list_of_blocks_is_read():
    chunks = {"type": "thinking", "thinking": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    (message,) = DIALECTS["openai-chat"].parse([{"role": "assistant", "content": [chunks]}])
    assert message.parts == (Thinking("one\ntwo"),)


def test_only_an_assistant_thinks():
    (message,) = DIALECTS["openai-chat"].parse([{"role": "user", "content": [THOUGHT]}])
    assert isinstance(message.parts[0], Opaque)


def test_thinking_in_a_chat_message_can_be_removed_and_never_edited():
    chat = DIALECTS["openai-chat"]
    message = chat.parse(CHAT_WITH_THINKING)[1]
    removed = chat.edit(message, {0: None, 1: None})
    assert removed is not None
    assert removed.raw["content"] == [{"type": "text", "text": "ok"}]
    assert removed.raw["tool_calls"] == [CALL]
    with pytest.raises(ValueError, match="never edited"):
        chat.edit(message, {0: "shorter"})


def test_a_compaction_keeps_thinking_of_chat_messages_as_it_is_or_leaves_it_out():
    history = []
    for number in range(40):
        call = {**CALL, "id": f"call_{number}"}
        blocks = [{**THOUGHT, "thinking": f"step {number} " * 30}, {"type": "text", "text": f"reading {number}"}]
        history += [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": blocks, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": f"line {number}\n" * 80},
        ]
    result = compact(history, target_tokens=4_000)
    known = [block for message in history if message["role"] == "assistant" for block in message["content"]]
    kept = [
        block for message in result.messages if isinstance(message["content"], list) for block in message["content"]
    ]
    assert result.report.tokens_after < result.report.tokens_before
    assert all(block in known for block in kept if block["type"] == "thinking")


@pytest.mark.parametrize(
    ("items", "first", "second"),
    [
        ([*CHAT_WITH_THINKING, USES_TOOL, TOOL_RESULT], "openai-chat: messages 1, 2", "anthropic: messages 3, 4"),
        ([USES_TOOL, TOOL_RESULT, CHAT_WITH_THINKING[2]], "anthropic: messages 0, 1", "openai-chat: message 2"),
        ([HI, {"type": "reasoning", "summary": []}, USES_TOOL], "openai-responses: message 1", "anthropic: message 2"),
        ([HI, *CHAT_WITH_THINKING[1:] * 4, USES_TOOL], "openai-chat: messages 1, 2, 3, 4, 5 and 3 more", "anthropic:"),
    ],
)
def test_messages_of_two_dialects_in_one_list_are_asked_about(items, first, second):
    for read in (detect, compact):
        with pytest.raises(BadMessage) as caught:
            read(items)
        problem = str(caught.value)
        assert first in problem
        assert second in problem
        assert f'dialect="{first.partition(":")[0]}"' in problem
        assert "--dialect" in problem
    assert likely_dialect(items).name == first.partition(":")[0]


def test_a_named_dialect_reads_messages_of_two():
    items = [*CHAT_WITH_THINKING, {"role": "user", "content": [{"type": "text", "text": "x"}, *TOOL_RESULT["content"]]}]
    assert compact(items, dialect="openai-chat").messages == items


@settings(deadline=None)
@given(data=st.data(), first=st.sampled_from(DIALECT_NAMES), second=st.sampled_from(DIALECT_NAMES))
def test_calls_of_two_dialects_are_never_read_as_one(data, first, second):
    one, two = BUILDERS[first], BUILDERS[second]
    told = [*one.calls("a"), *one.results(("a", "1"))], [*two.calls("b"), *two.results(("b", "2"))]
    plain = data.draw(st.lists(st.just(HI), max_size=3))
    items = [*plain, *told[0], *plain, *told[1]]
    if first == second:
        assert detect(items).name == first
        return
    with pytest.raises(BadMessage, match=f"{first}: .*{second}: "):
        detect(items)
