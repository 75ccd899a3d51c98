from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_compactor.evaluation.messages import (
    PER_MESSAGE,
    billed_text,
    count_message,
    count_messages,
    count_text,
    flat_text,
    read_message,
    read_messages,
)
from tests.evaluation.talks import anthropic_talk, openai_talk

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "odd"])},
    optional={"text": st.text(), "input": JSON, "content": JSON, "name": st.text(), "id": st.text()},
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer"])},
    optional={"content": st.none() | st.text() | st.lists(BLOCKS | st.text(), max_size=3), "reasoning_content": JSON},
)


@given(st.lists(MESSAGES, max_size=4))
def test_any_message_can_be_read_and_counted(messages):
    assert isinstance(flat_text(messages), str)
    assert count_messages(messages) >= PER_MESSAGE * len(messages)


def test_both_forms_of_a_conversation_read_alike():
    ours = [(piece.kind, piece.text) for piece in read_messages(anthropic_talk().messages)]
    theirs = [(piece.kind, piece.text) for piece in read_messages(openai_talk().messages) if piece.kind != "system"]
    assert ours == theirs


def test_a_call_reads_as_its_name_and_values_with_long_values_on_their_own_lines():
    arguments = {"file_path": "/a.py", "old_string": "one\ntwo", "limit": 5, "flag": True}
    block = {"type": "tool_use", "id": "1", "name": "Edit", "input": arguments}
    (piece,) = read_message({"role": "assistant", "content": [block]})
    assert piece.text == "Edit /a.py 5\none\ntwo"
    assert piece.replaced == ("one\ntwo",)


def test_arguments_are_billed_as_json():
    call = {"type": "tool_use", "id": "1", "name": "Edit", "input": {"text": "a\nb"}}
    assert billed_text({"role": "assistant", "content": [call]}) == 'Edit {"text":"a\\nb"}'


def test_responses_items_are_read():
    items = [
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": '{"path": "/tmp"}'},
        {"type": "function_call_output", "call_id": "c", "output": "a.txt"},
    ]
    call, result = read_messages(items)
    assert (call.text, result.text, result.tool) == ("ls /tmp", "a.txt", "ls")


def test_a_lone_surrogate_can_be_counted():
    assert count_text("a \ud800 b") > 0


def test_a_message_costs_its_text_and_four_tokens():
    assert count_message({"role": "user", "content": "hello world"}) == count_text("hello world") + 4
