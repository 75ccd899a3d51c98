"""Objects of the SDKs go in as they are, and come out as the dictionaries that the SDKs would send."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from context_compactor import AsyncSession, BadMessage, Session, compact
from context_compactor.client import Client
from context_compactor.dialects import check
from context_compactor.dialects.dialect import plain_messages
from tests.dialects.strategies import DIALECT_NAMES, histories, legal_histories
from tests.server.running import running
from tests.sessions.talk import CALM

QUESTION = {"role": "user", "content": "What is the weather in Paris?"}
USAGE = {"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60}

CHAT = ChatCompletion.model_validate(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5",
        "usage": USAGE,
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "logprobs": None,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "annotations": [],
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
                    ],
                },
            }
        ],
    }
)
CHAT_MESSAGE = {
    "role": "assistant",
    "annotations": [],
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
}

ANTHROPIC = Message.model_validate(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 40, "output_tokens": 20},
        "content": [
            {"type": "thinking", "thinking": "Look it up.", "signature": "c2lnbmVk"},
            {"type": "text", "text": "I will look.", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris", "unit": None}},
        ],
    }
)
ANTHROPIC_MESSAGE = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Look it up.", "signature": "c2lnbmVk"},
        {"type": "text", "text": "I will look."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris", "unit": None}},
    ],
}

RESPONSES = Response.model_validate(
    {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2VhbGVk", "status": None},
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "I will look.", "annotations": []}],
            },
            {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        ],
    }
)
RESPONSES_ITEMS = [
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2VhbGVk"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "I will look.", "annotations": []}],
    },
    {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
]

IDIOMS = {
    "messages.append(response.choices[0].message)": ([QUESTION, CHAT.choices[0].message], [QUESTION, CHAT_MESSAGE]),
    "messages.append(response), OpenAI chat": ([QUESTION, CHAT], [QUESTION, CHAT_MESSAGE]),
    "input += response.output": ([QUESTION, *RESPONSES.output], [QUESTION, *RESPONSES_ITEMS]),
    "input.append(response)": ([QUESTION, RESPONSES], [QUESTION, *RESPONSES_ITEMS]),
    'messages.append({"role": "assistant", "content": response.content})': (
        [QUESTION, {"role": "assistant", "content": ANTHROPIC.content}],
        [QUESTION, ANTHROPIC_MESSAGE],
    ),
    "messages.append(response), Anthropic": ([QUESTION, ANTHROPIC], [QUESTION, ANTHROPIC_MESSAGE]),
}


class Google(BaseModel):
    """As the types of Google's SDK are: camel case on the wire, bytes as base64, and None for what is not there."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, ser_json_bytes="base64")


class FunctionCall(Google):
    name: str
    args: dict[str, Any] | None = None
    id: str | None = None


class Part(Google):
    text: str | None = None
    function_call: FunctionCall | None = None
    thought_signature: bytes | None = None


class Content(Google):
    role: str | None = None
    parts: list[Part] | None = None


class Answered:
    """An object of a library of somebody's own."""

    def __init__(self, text: str) -> None:
        self._text = text

    def to_dict(self) -> dict[str, Any]:
        return {"role": "assistant", "content": self._text}


class UserMessage(BaseModel):
    role: str = "user"
    content: str
    name: str | None = None


@pytest.mark.parametrize("idiom", IDIOMS)
def test_an_idiom_of_an_sdk_gives_what_the_sdk_would_send(idiom):
    given, expected = IDIOMS[idiom]
    assert compact(given, window=200_000).messages == expected
    assert check(given) == []


def test_google_contents_come_out_as_its_api_names_them():
    call = Part(function_call=FunctionCall(name="weather", args={"unit": None}), thought_signature=b"\xff\xfe")
    reply = SimpleNamespace(candidates=[SimpleNamespace(content=Content(role="model", parts=[call]))], to_dict=dict)
    given = [Content(role="user", parts=[Part(text="What is the weather?")]), reply]
    expected = [
        {"role": "user", "parts": [{"text": "What is the weather?"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "weather", "args": {"unit": None}}, "thoughtSignature": "__4="}],
        },
    ]
    assert compact(given, window=200_000).messages == expected


def test_models_of_pydantic_objects_with_to_dict_and_mappings_are_messages():
    given = [UserMessage(content="Hello"), Answered("Hi"), MappingProxyType({"role": "user", "content": "Go on."})]
    assert compact(given, window=200_000).messages == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Go on."},
    ]


def test_blocks_within_blocks_are_dumped_too():
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [SimpleNamespace(to_dict=lambda: BLOCK)]}
    given = [QUESTION, ANTHROPIC, {"role": "user", "content": [result]}]
    assert compact(given, window=200_000).messages[-1]["content"][0]["content"] == [BLOCK]


BLOCK = {"type": "text", "text": "Sunny."}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_sessions_take_them_and_keep_dictionaries(tmp_path, idiom):
    given, expected = IDIOMS[idiom]
    with Session.open("run", window=20_000, store=f"sqlite:///{tmp_path / 'a.db'}", settings=CALM) as session:
        for message in given:
            session.append(message)
        assert session.history() == session.context() == expected


def test_async_sessions_and_clients_take_them(tmp_path):
    async def said() -> list[Any]:
        session = await AsyncSession.open("run", window=20_000, store=f"sqlite:///{tmp_path / 'a.db'}", settings=CALM)
        async with session:
            await session.append([QUESTION, CHAT], usage=CHAT.usage)
            return await session.history()

    assert asyncio.run(said()) == [QUESTION, CHAT_MESSAGE]
    with running(tmp_path) as server, Client(server.url) as client:
        made = client.create(window=20_000)
        client.append(made.id, QUESTION)
        client.append(made.id, CHAT.choices[0].message, usage=CHAT.usage)
        assert client.history(made.id).messages == [QUESTION, CHAT_MESSAGE]


@dataclass
class Said:
    role: str
    content: str


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        (Said("user", "Hello"), "message", "expected an object, got Said. Try: a dictionary, or an object with"),
        ({"role": "user", "content": [Said("text", "Hello")]}, "content[0]", "expected an object, got Said. Try: "),
        (UserMessage, "message", "expected an object, got ModelMetaclass. Try: "),
        (SimpleNamespace(to_dict=lambda: ["no"]), "message", "expected an object, got a list"),
        (SimpleNamespace(to_dict=lambda: 1 / 0), "message", "SimpleNamespace cannot be written as a dictionary: div"),
        ("Hello", "message", "expected an object, got a text"),
    ],
)
def test_what_cannot_be_a_message_is_named_with_what_to_try(given, field, said):
    with pytest.raises(BadMessage) as refused:
        compact([QUESTION, given], window=200_000, dialect="anthropic")
    assert (refused.value.index, refused.value.field) == (1, field)
    assert said in refused.value.problem


class AnyMessage(BaseModel):
    """Whatever fields a message has."""

    model_config = ConfigDict(extra="allow")


class Dumped:
    def __init__(self, value: Any) -> None:
        self._value = value

    def to_dict(self) -> Any:
        return self._value


def as_objects(data: st.DataObject, value: Any, depth: int = 0) -> Any:
    """The value with objects in the place of any of its dictionaries."""
    if isinstance(value, list):
        return [as_objects(data, each, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: as_objects(data, each, depth + 1) for key, each in value.items()}
    return Dumped(inner) if data.draw(st.booleans()) else inner


@pytest.mark.parametrize("name", DIALECT_NAMES)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_history_of_objects_is_that_of_its_dictionaries(name, data):
    history = data.draw(legal_histories(name))
    assert plain_messages(as_objects(data, history)) == history
    assert plain_messages([AnyMessage.model_validate(each) for each in without_none(history)]) == without_none(history)


def without_none(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in each.items() if value is not None} for each in history]


@pytest.mark.parametrize("name", DIALECT_NAMES)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_dictionaries_are_taken_as_they_are_without_a_copy(name, data):
    history = data.draw(histories(name))
    kept = json.dumps(history)
    assert all(plain is given for plain, given in zip(plain_messages(history), history, strict=True))
    assert json.dumps(history) == kept


def test_the_objects_are_not_changed():
    before = CHAT.model_dump(), ANTHROPIC.model_dump()
    compact([QUESTION, CHAT], window=200_000)
    compact([QUESTION, ANTHROPIC], window=200_000)
    assert before == (CHAT.model_dump(), ANTHROPIC.model_dump())
