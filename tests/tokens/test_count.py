from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from context_compactor.errors import BadSetting
from context_compactor.json_values import json_text
from context_compactor.tokens import counting as count_module
from context_compactor.tokens.counting import (
    MessageCounter,
    PromptSize,
    counter_for,
    message_bytes,
    message_counter_for,
    sealed_tokens,
)
from tests.dialects.strategies import DIALECT_NAMES, histories
from tests.tokens.builders import WordCounter, assistant, call, result, system, thinking, user

every_dialect = pytest.mark.parametrize("name", DIALECT_NAMES)


def words(dialect: str = "openai-chat") -> MessageCounter:
    return MessageCounter(WordCounter(), dialect)


def test_a_chat_message_costs_its_words_and_three_tokens_around_them():
    assert words().count(user("one two three")) == 3 + 3


def test_a_name_costs_one_token_and_its_own():
    named = Message("user", (Text("hi"),), {"role": "user", "name": "ann", "content": "hi"})
    assert words().count(named) == 3 + 1 + 1 + 1


def test_the_name_of_a_called_tool_is_counted_once():
    item = {"type": "function_call", "name": "Read", "call_id": "c1", "arguments": "{}"}
    message = Message("assistant", (ToolCall("c1", "Read", "{}"),), item)
    assert words("openai-responses").count(message) == 3 + 8 + 1 + 1


def test_a_request_costs_its_messages_and_the_priming_of_the_answer():
    assert words().request_tokens([system("be kind"), user("hi")]) == (3 + 2) + (3 + 1) + 3


def test_a_part_is_counted_with_what_stands_around_it():
    message = Message("assistant", (Text("I look"), ToolCall("c1", "Read", '{"path": "a b"}')), {})
    overhead = words().overhead
    assert words().part_tokens(message) == (2, 1 + 3 + overhead.call)
    assert words().part_tokens(result(1, "a b c")) == (3 + overhead.result,)


def test_every_kind_of_part_is_counted():
    parts = (
        Text("a"),
        Thinking("b c"),
        Opaque("new", "d"),
        Media("image", width=512, height=512),
        ToolResult("c", "e"),
    )
    assert words().part_tokens(Message("user", parts, {})) == (1, 2, 1, 255, 1 + 4)


def test_images_inside_of_a_tool_result_count_too():
    message = Message("user", (ToolResult("c1", "", media=(Media("image", width=750, height=100),)),), {})
    assert words("anthropic").part_tokens(message) == (30 + 100,)


def test_an_image_of_low_detail_costs_little():
    content = [{"type": "image_url", "image_url": {"url": "data:", "detail": "low"}}, {"type": "text", "text": "x"}]
    parts = (Media("image", width=2000, height=2000), Text("x"))
    assert words().part_tokens(Message("user", parts, {"role": "user", "content": content})) == (85, 1)


def test_each_text_is_tokenised_once():
    counter = WordCounter()
    messages = MessageCounter(counter)
    messages.count_many([user("same words"), user("same words"), assistant("other")])
    messages.count(user("same words"))
    assert sorted(counter.asked) == ["other", "same words"]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(count_module, "_MAX_CACHED_TEXTS", 10)
    counter = words()
    first = [counter.text(f"text {n}") for n in range(50)]
    assert len(counter._known) <= 10
    assert [counter.text(f"text {n}") for n in range(50)] == first


def test_a_batch_larger_than_what_is_remembered_is_still_counted(monkeypatch):
    monkeypatch.setattr(count_module, "_MAX_CACHED_TEXTS", 3)
    assert words().texts([f"{'w ' * n}" for n in range(9)]) == list(range(9))


def test_tool_definitions_cost_their_json_and_something_around_it():
    tools = [{"name": "read", "description": "Reads a file", "input_schema": {"type": "object"}}]
    counter = message_counter_for("claude-opus-4-6", "anthropic")
    size = counter.prompt_size(tools, None)
    assert counter.fixed_tokens(size).tools == 346 + 12 + counter.text(json_text(tools[0]))
    assert counter.prompt_size([], None) == counter.prompt_size(None, None) == PromptSize()


def test_a_dialect_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(BadSetting, match="unknown dialect 'xml'; known dialects: auto, openai-chat"):
        MessageCounter(WordCounter(), "xml")


def test_old_thinking_counts_only_where_the_provider_keeps_it():
    history = [user("a"), thinking("long thought"), user("b"), thinking("new thought"), call(1), result(1, "x")]
    drops = message_counter_for("claude-sonnet-4-5", "anthropic", lambda text: len(text.split()))
    keeps = message_counter_for("claude-opus-4-6", "anthropic", lambda text: len(text.split()))
    assert keeps.request_tokens(history) - drops.request_tokens(history) == 2


def test_arguments_are_counted_as_the_model_reads_them():
    arguments = json.dumps({"command": 'echo "a"\necho "b"\n' * 20})
    deepseek = message_counter_for("deepseek-chat")
    assert deepseek.count(call(1, arguments)) < MessageCounter(deepseek.counter).count(call(1, arguments))


def test_a_function_of_the_users_replaces_the_tokenizer_and_keeps_the_rest():
    counter = message_counter_for("claude-opus-4-6", "anthropic", len)
    assert counter.counter.name == "len"
    assert counter.overhead.call == 40


def test_sealed_thinking_is_guessed_from_the_length_of_its_seal():
    sealed = {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x" * 8_000}]}
    message = Message("assistant", (Thinking("", signed=True),), sealed)
    assert words("anthropic").part_tokens(message) == (sealed_tokens(message),)
    assert 1_000 < sealed_tokens(message) < 2_000
    assert sealed_tokens(Message("assistant", (Thinking(""),), None)) == 0


def test_thinking_whose_words_are_left_out_is_guessed_from_its_signature():
    block = {"type": "thinking", "thinking": "", "signature": "x" * 8_000}
    message = Message("assistant", (Thinking("", signed=True), Thinking("", signed=True)), {"content": [block, block]})
    first, second = words("anthropic").part_tokens(message)
    assert first == second == (8_000 * 3 // 4 - 650) // 4


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        ({"a": "é"}, 10),
        ({"a": "\ud800"}, 9),
        ({"a": object}, None),
        ({1: {2, 3}}, None),
        ("text", 6),
        (float("nan"), 3),
    ],
)
def test_bytes_are_those_of_the_json_whatever_is_in_it(raw, size):
    found = message_bytes(Message("user", (), raw))
    assert found > 0
    assert size is None or found in (size, size + 1)


def test_a_message_without_its_raw_form_has_bytes_too():
    assert message_bytes(Message("user", (Text("hello"),))) > len("hello")


@every_dialect
@settings(deadline=None, max_examples=50)
@given(drawn=st.data())
def test_counts_of_any_history_are_positive_add_up_and_are_the_same_again(name, drawn):
    messages = DIALECTS[name].parse(drawn.draw(histories(name)))
    counter = MessageCounter(counter_for("gpt-4o"), name)
    counts = counter.count_many(messages)
    assert all(count > 0 for count in counts)
    assert counts == [counter.count(message) for message in messages] == counter.count_many(messages)
    assert counts == [MessageCounter(counter_for("gpt-4o"), name).count(message) for message in messages]
    for message, count in zip(messages, counts, strict=True):
        assert count == counter.frame_tokens(message) + sum(counter.part_tokens(message))
        assert message_bytes(message) > 0
    assert counter.request_tokens(messages) == sum(counts) + counter.overhead.request
