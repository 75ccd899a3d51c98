"""Tools and a system prompt stand beside the messages and are counted with them, in the form of any provider."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from context_compactor import BadSetting, acompact, compact
from context_compactor.dialects.detection import DIALECTS
from context_compactor.tokens.counting import message_counter_for
from tests.sessions.talk import messages as talk

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
WORDS = "Reads a file and returns its lines, with their numbers."


def tools_in(dialect: str, number: int = 1) -> Any:
    """So many tools as a request of this dialect has them."""
    names = [f"read_{each}" for each in range(number)]
    said = {"description": WORDS, "parameters": SCHEMA}
    match dialect:
        case "openai-chat":
            return [{"type": "function", "function": {"name": name, **said}} for name in names]
        case "openai-responses":
            return [{"type": "function", "name": name, **said} for name in names]
        case "anthropic":
            return [{"name": name, "description": WORDS, "input_schema": SCHEMA} for name in names]
        case "gemini":
            return [{"functionDeclarations": [{"name": name, **said} for name in names]}]
        case _:
            made = [
                {"toolSpec": {"name": each, "description": WORDS, "inputSchema": {"json": SCHEMA}}} for each in names
            ]
            return {"tools": made, "toolChoice": {"auto": {}}}


class Tool(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    name: str
    description: str | None = None
    input_schema: dict[str, Any] = Field(default_factory=dict)


class Declared:
    def to_dict(self) -> dict[str, Any]:
        return {"name": "read", "description": WORDS}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tools_are_counted_in_the_shape_of_every_dialect(dialect):
    counter = message_counter_for(None, dialect)
    one, many = counter.prompt_size(tools_in(dialect), None), counter.prompt_size(tools_in(dialect, 47), None)
    assert (one.tools, many.tools) == (1, 47)
    assert 40 * one.tool_tokens < many.tool_tokens < 60 * one.tool_tokens
    around = counter.overhead.tools + 47 * counter.overhead.tool
    assert counter.fixed_tokens(many).tools == many.tool_tokens + around


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "web_search_20260209", "name": "web_search", "max_uses": 5}],
        [{"type": "mcp", "server_label": "docs", "server_url": "https://example.com/mcp"}],
        [{"googleSearch": {}}],
        [Tool(name="read", description=WORDS)],
        [Declared()],
        (Tool(name="read"),),
        {"function_declarations": [{"name": "read"}]},
    ],
)
def test_tools_of_the_provider_and_objects_of_sdks_count_as_one_each(tools):
    size = message_counter_for(None).prompt_size(tools, None)
    assert size.tools == 1
    assert size.tool_tokens > 0


def test_an_object_counts_as_the_dictionary_that_would_be_sent():
    counter = message_counter_for(None)
    plain = {"name": "read", "description": WORDS, "input_schema": {}}
    assert counter.prompt_size([Tool(name="read", description=WORDS)], None) == counter.prompt_size([plain], None)


@pytest.mark.parametrize(
    "system",
    [
        WORDS,
        [{"type": "text", "text": WORDS, "cache_control": {"type": "ephemeral"}}],
        [{"text": WORDS}, {"cachePoint": {"type": "default"}}],
        {"parts": [{"text": WORDS}]},
        {"role": "system", "content": WORDS},
        {"role": "system", "content": [{"type": "input_text", "text": WORDS}]},
        [WORDS],
        SimpleNamespace(to_dict=lambda: {"parts": [{"text": WORDS}]}),
    ],
)
def test_a_system_prompt_counts_as_its_words_in_any_form(system):
    counter = message_counter_for(None)
    assert counter.prompt_size(None, system).system_tokens == counter.text(WORDS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tools": "read"}, "tools: expected a list of tool definitions, got a text. Try: "),
        ({"tools": {"name": "read"}}, "tools: expected a list of tool definitions, got an object. Try: "),
        ({"tools": 7}, "tools: expected a list of tool definitions, got int"),
        ({"tools": [{"name": "read"}, "write"]}, "tools[1]: expected a tool definition, got a text. Try: "),
        ({"tools": [print]}, "tools[0]: expected a tool definition, got builtin_function_or_method. Try: "),
        ({"tools": [Tool]}, "tools[0]: expected a tool definition"),
        ({"system": 7}, "system: expected a text or a list of blocks with texts, got int. Try: "),
        ({"system": [{"text": 7}]}, "system: expected a text"),
    ],
)
def test_what_is_neither_tools_nor_a_system_prompt_is_refused_by_name(given, said):
    with pytest.raises(BadSetting) as refused:
        compact([{"role": "user", "content": "Hello"}], window=10_000, **given)
    assert said in str(refused.value)


def test_tools_that_hold_themselves_are_refused():
    tool: dict[str, Any] = {"name": "read"}
    tool["input_schema"] = tool
    with pytest.raises(BadSetting, match="nested"):
        compact([{"role": "user", "content": "Hello"}], window=10_000, tools=[tool])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_that_overflows_only_with_its_tools_is_compacted(dialect):
    messages = talk(0, 4 * 30, dialect)
    bare = compact(messages, window=200_000, dialect=dialect)
    tools = tools_in(dialect, 150)
    counter = message_counter_for(None, dialect)
    fixed = counter.fixed_tokens(counter.prompt_size(tools, WORDS)).total
    window = int((bare.report.tokens_before + fixed) * 1.1)
    assert compact(messages, window=window, dialect=dialect).report.status == "unchanged"
    counted = compact(messages, window=window, dialect=dialect, tools=tools, system=WORDS)
    assert counted.report.changed
    assert counted.report.tokens_before == bare.report.tokens_before + fixed
    assert counted.report.tokens_after == fixed + promised_tokens(counted.messages, dialect)
    assert counted.usage.sections.tools + counter.text(WORDS) == fixed
    assert WORDS not in json.dumps(counted.messages)


def promised_tokens(messages: list[Any], dialect: str) -> int:
    return message_counter_for(None, dialect).request_tokens(DIALECTS[dialect].parse(messages))


@given(data=st.data(), dialect=st.sampled_from(sorted(DIALECTS)), number=st.integers(0, 60))
def test_the_result_with_tools_is_that_of_a_target_without_them_for_any_conversation(data, dialect, number):
    messages = talk(0, 4 * data.draw(st.integers(2, 12)), dialect)
    tools, system = tools_in(dialect, number), data.draw(st.sampled_from([None, "", WORDS, [{"text": WORDS}]]))
    counter = message_counter_for(None, dialect)
    fixed = counter.fixed_tokens(counter.prompt_size(tools, system)).total
    target = data.draw(st.integers(300, 4_000))
    result = compact(messages, target_tokens=fixed + target, dialect=dialect, tools=tools, system=system)
    assert result.report.tokens_after == fixed + promised_tokens(result.messages, dialect)
    assert result.report.tokens_after <= fixed + target or result.report.status == "partial"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_target_below_tools_and_system_says_how_many_tokens_they_have(dialect):
    messages = talk(0, 4 * 20, dialect)
    result = compact(messages, target_tokens=1_000, tools=tools_in(dialect, 47), system=WORDS * 50, dialect=dialect)
    assert result.report.status == "partial"
    floor = {part.what: part.tokens for part in result.report.floor}
    assert floor["tools"] > 1_000
    assert floor["system"] > 300
    assert f"tools {floor['tools']:,} tokens, system {floor['system']:,} tokens" in result.report.reason
    assert "target of 1,000" in result.report.reason


def test_async_callers_count_them_too():
    given = {"target_tokens": 9_000, "tools": tools_in("anthropic", 47), "system": WORDS}
    messages = talk(0, 80, "anthropic")
    counted = asyncio.run(acompact(messages, **given)).report
    assert counted.tokens_before == compact(messages, **given).report.tokens_before


def test_tools_and_system_are_part_of_the_prefix_that_stays_cached():
    messages = talk(0, 4 * 20, "openai-chat")
    bare = compact(messages, target_tokens=1_500).report.cache
    tools = compact(messages, target_tokens=1_500 + 1_000, tools=tools_in("openai-chat", 20), system=WORDS)
    fixed = tools.usage.sections.tools + message_counter_for(None).text(WORDS)
    assert tools.report.cache.prefix_tokens_kept >= fixed
    assert bare.prefix_tokens_kept < tools.report.cache.prefix_tokens_kept
