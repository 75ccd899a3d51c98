"""What is not a message is refused with its index and field."""

from __future__ import annotations

import pytest

from context_compactor.dialects.detection import DIALECTS, find_dialect
from context_compactor.errors import BadMessage, BadSetting
from tests.dialects.shapes import BUILDERS
from tests.dialects.strategies import DIALECT_NAMES

BAD = [
    ("openai-chat", {"content": "hi"}, "role", "missing; known roles: system, developer, user"),
    ("openai-chat", {"role": "robot", "content": "hi"}, "role", "unknown role 'robot'"),
    ("openai-chat", {"role": 7, "content": "hi"}, "role", "unknown role 7"),
    ("openai-chat", {"role": "user"}, "content", "missing"),
    ("openai-chat", {"role": "user", "content": 7}, "content", "got int"),
    ("openai-chat", {"role": "user", "content": ["hi"]}, "content[0]", "got a text"),
    ("openai-chat", {"role": "user", "content": [{"type": "text"}]}, "content[0].text", "got null"),
    ("openai-chat", {"role": "tool", "content": "1"}, "tool_call_id", "missing"),
    ("openai-chat", {"role": "tool", "content": "1", "tool_call_id": 5}, "tool_call_id", "got int"),
    ("openai-chat", {"role": "function", "content": "1"}, "name", "missing"),
    ("openai-chat", {"role": "assistant", "tool_calls": {"id": "a"}}, "tool_calls", "expected a list"),
    ("openai-chat", {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, "tool_calls[0].id", "missing"),
    ("openai-chat", {"role": "assistant", "tool_calls": [{"id": "a"}]}, "tool_calls[0].function", "got null"),
    ("openai-chat", {"role": "assistant", "function_call": "f"}, "function_call", "expected an object"),
    ("anthropic", {"role": "tool", "content": "hi"}, "role", "known roles: user, assistant, system"),
    ("anthropic", {"role": "user"}, "content", "got null"),
    ("anthropic", {"role": "user", "content": {"type": "text"}}, "content", "got an object"),
    ("anthropic", {"role": "user", "content": [{"type": "tool_result"}]}, "content[0].tool_use_id", "missing"),
    ("anthropic", {"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}, "content[0].id", "missing"),
    ("anthropic", {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}, "content[0].name", "got null"),
    (
        "anthropic",
        {"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f"}]},
        "content[0].type",
        "only an",
    ),
    (
        "anthropic",
        {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
        "content[0].type",
        "",
    ),
    ("anthropic", {"role": "user", "content": [{"type": "image"}]}, "content[0].source", "got null"),
    ("openai-responses", {}, "role", "missing"),
    ("openai-responses", {"type": 7}, "type", "got int"),
    ("openai-responses", {"type": "message", "role": "tool", "content": "x"}, "role", "unknown role 'tool'"),
    ("openai-responses", {"type": "message", "role": "user"}, "content", "got null"),
    ("openai-responses", {"type": "function_call", "name": "f"}, "call_id", "missing"),
    ("openai-responses", {"type": "function_call", "call_id": "a"}, "name", "got null"),
    ("openai-responses", {"type": "function_call_output", "output": "x"}, "call_id", "missing"),
    ("openai-responses", {"type": "function_call_output", "call_id": "a", "output": 7}, "output", "got int"),
    ("openai-responses", {"type": "reasoning", "summary": "hm"}, "summary", "got a text"),
    ("gemini", {"role": "assistant", "parts": []}, "role", "known roles: user, model"),
    ("gemini", {"role": "user", "content": "hi"}, "parts", "got null"),
    ("gemini", {"role": "user", "parts": "hi"}, "parts", "expected a list of parts"),
    ("gemini", {"role": "user", "parts": ["hi"]}, "parts[0]", "got a text"),
    ("gemini", {"role": "user", "parts": [{"text": 7}]}, "parts[0].text", "got int"),
    ("gemini", {"role": "model", "parts": [{"functionCall": "f"}]}, "parts[0].functionCall", "expected an object"),
    ("gemini", {"role": "model", "parts": [{"function_call": {}}]}, "parts[0].function_call.name", "got null"),
    ("gemini", {"role": "user", "parts": [{"functionCall": {"name": "f"}}]}, "parts[0].functionCall", "only the model"),
    (
        "gemini",
        {"role": "model", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
        "parts[0].functionResponse",
        "responses are the user's",
    ),
    (
        "gemini",
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": "1"}}]},
        "parts[0].functionResponse.response",
        "expected an object",
    ),
    ("gemini", {"role": "user", "parts": [{"inlineData": {}}]}, "parts[0].inlineData.data", "got null"),
    ("bedrock", {"role": "tool", "content": []}, "role", "known roles: user, assistant"),
    ("bedrock", {"role": "user", "content": "hi"}, "content", "expected a list of blocks"),
    ("bedrock", {"role": "user", "content": [{"text": None}]}, "content[0].text", "got null"),
    ("bedrock", {"role": "user", "content": [{"image": {}}]}, "content[0].image.source", "got null"),
    (
        "bedrock",
        {"role": "assistant", "content": [{"toolUse": {"name": "f"}}]},
        "content[0].toolUse.toolUseId",
        "missing",
    ),
    (
        "bedrock",
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a"}}]},
        "content[0].toolUse.name",
        "got null",
    ),
    (
        "bedrock",
        {"role": "user", "content": [{"toolUse": {"toolUseId": "a", "name": "f"}}]},
        "content[0].toolUse",
        "only an assistant",
    ),
    (
        "bedrock",
        {"role": "assistant", "content": [{"text": "a"}, {"toolResult": {"toolUseId": "a"}}]},
        "content[1].toolResult",
        "results are the user's",
    ),
]


@pytest.mark.parametrize(("name", "raw", "field", "problem"), BAD)
def test_a_bad_message_is_named_by_index_and_field(name, raw, field, problem):
    with pytest.raises(BadMessage) as caught:
        DIALECTS[name].parse([BUILDERS[name].user("hi"), raw])
    assert (caught.value.index, caught.value.field) == (1, field)
    assert problem in caught.value.problem
    assert str(caught.value).startswith(f"message 1, field '{field}': ")


@pytest.mark.parametrize("name", DIALECT_NAMES)
@pytest.mark.parametrize("items", [None, "hi", {"role": "user"}, 7])
def test_what_is_not_a_list_is_refused(name, items):
    with pytest.raises(BadMessage, match="expected a list of messages"):
        DIALECTS[name].parse(items)


@pytest.mark.parametrize("name", DIALECT_NAMES)
@pytest.mark.parametrize("item", [None, "hi", ["hi"], 7])
def test_an_item_that_is_no_object_is_refused(name, item):
    with pytest.raises(BadMessage, match=r"message 1, .*expected an object"):
        DIALECTS[name].parse([BUILDERS[name].user("hi"), item])


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_an_empty_list_is_an_empty_history(name):
    assert DIALECTS[name].parse([]) == []


def test_an_unknown_dialect_is_refused_with_the_known_ones():
    with pytest.raises(BadSetting, match="openai-chat, openai-responses, anthropic, gemini, bedrock"):
        find_dialect("nobody", [])
