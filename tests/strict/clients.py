"""How an agent's loop talks to each provider: its requests, and what it appends of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from msgspec import Struct

from context_compactor.testing import AGENT_TOOLS

Raw = dict[str, Any]
CACHE_MARK = {"cache_control": {"type": "ephemeral"}}
SYSTEM = "You are a careful engineer. Never touch legacy/."


class Call(Struct, frozen=True):
    """A call of the agent as the loop sees it."""

    id: str
    name: str


class LoopClient(Protocol):
    """One provider's wire format, as far as a loop needs it."""

    dialect: str
    path: str

    def first(self) -> list[Raw]:
        """Messages that stand before everything else."""
        ...

    def request(self, messages: Sequence[Any]) -> Raw: ...

    def user(self, text: str) -> Raw | list[Raw]: ...

    def reply(self, answer: Raw) -> list[Raw]:
        """The messages that an answer adds to the history."""
        ...

    def calls(self, answer: Raw) -> list[Call]: ...

    def results(self, calls: Sequence[Call], outputs: Sequence[str]) -> list[Raw]: ...

    def usage(self, answer: Raw) -> Raw: ...


class AnthropicClient:
    dialect = "anthropic"
    path = "/v1/messages"

    def first(self):
        return []

    def request(self, messages):
        tools = [{"name": name, "description": name, "input_schema": schema} for name, schema in AGENT_TOOLS.items()]
        body = {"model": "claude-opus-5-5", "max_tokens": 1_000, "system": SYSTEM, "tools": tools}
        return {**body, "messages": list(messages)}

    def user(self, text):
        return {"role": "user", "content": text}

    def reply(self, answer):
        return [{"role": "assistant", "content": answer["content"]}]

    def calls(self, answer):
        return [Call(block["id"], block["name"]) for block in answer["content"] if block["type"] == "tool_use"]

    def results(self, calls, outputs):
        blocks = [
            {"type": "tool_result", "tool_use_id": call.id, "content": text}
            for call, text in zip(calls, outputs, strict=True)
        ]
        return [{"role": "user", "content": blocks}]

    def usage(self, answer):
        return answer["usage"]


class ChatClient:
    dialect = "openai-chat"
    path = "/v1/chat/completions"

    def first(self):
        return [{"role": "system", "content": SYSTEM}]

    def request(self, messages):
        tools = [
            {"type": "function", "function": {"name": name, "parameters": schema}}
            for name, schema in AGENT_TOOLS.items()
        ]
        return {"model": "gpt-6", "messages": list(messages), "tools": tools}

    def user(self, text):
        return {"role": "user", "content": text}

    def reply(self, answer):
        return [answer["choices"][0]["message"]]

    def calls(self, answer):
        made = answer["choices"][0]["message"].get("tool_calls") or ()
        return [Call(call["id"], call["function"]["name"]) for call in made]

    def results(self, calls, outputs):
        return [
            {"role": "tool", "tool_call_id": call.id, "content": text}
            for call, text in zip(calls, outputs, strict=True)
        ]

    def usage(self, answer):
        return answer["usage"]


class ResponsesClient:
    """Sends the whole input each time, with nothing stored on the server."""

    dialect = "openai-responses"
    path = "/v1/responses"

    def first(self):
        return []

    def request(self, messages):
        tools = [{"type": "function", "name": name, "parameters": schema} for name, schema in AGENT_TOOLS.items()]
        return {"model": "gpt-6", "instructions": SYSTEM, "input": list(messages), "tools": tools, "store": False}

    def user(self, text):
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def reply(self, answer):
        return answer["output"]

    def calls(self, answer):
        return [Call(item["call_id"], item["name"]) for item in answer["output"] if item["type"] == "function_call"]

    def results(self, calls, outputs):
        return [
            {"type": "function_call_output", "call_id": call.id, "output": text}
            for call, text in zip(calls, outputs, strict=True)
        ]

    def usage(self, answer):
        return answer["usage"]


class GeminiClient:
    dialect = "gemini"
    path = "/v1beta/models/gemini-3-pro:generateContent"

    def first(self):
        return []

    def request(self, messages):
        declared = [{"name": name, "parametersJsonSchema": schema} for name, schema in AGENT_TOOLS.items()]
        return {
            "systemInstruction": {"parts": [{"text": SYSTEM}]},
            "contents": list(messages),
            "tools": [{"functionDeclarations": declared}],
        }

    def user(self, text):
        return {"role": "user", "parts": [{"text": text}]}

    def reply(self, answer):
        return [answer["candidates"][0]["content"]]

    def calls(self, answer):
        made = [part["functionCall"] for part in self.reply(answer)[0]["parts"] if "functionCall" in part]
        return [Call(call["id"], call["name"]) for call in made]

    def results(self, calls, outputs):
        parts = [
            {"functionResponse": {"id": call.id, "name": call.name, "response": {"output": text}}}
            for call, text in zip(calls, outputs, strict=True)
        ]
        return [{"role": "user", "parts": parts}]

    def usage(self, answer):
        counted = answer["usageMetadata"]
        return {"input_tokens": counted["promptTokenCount"], "output_tokens": counted["candidatesTokenCount"]}


class BedrockClient:
    dialect = "bedrock"
    path = "/model/anthropic.claude-opus-5-5/converse"

    def first(self):
        return []

    def request(self, messages):
        tools = [
            {"toolSpec": {"name": name, "description": name, "inputSchema": {"json": schema}}}
            for name, schema in AGENT_TOOLS.items()
        ]
        return {"system": [{"text": SYSTEM}], "messages": list(messages), "toolConfig": {"tools": tools}}

    def user(self, text):
        return {"role": "user", "content": [{"text": text}]}

    def reply(self, answer):
        return [answer["output"]["message"]]

    def calls(self, answer):
        made = [block["toolUse"] for block in self.reply(answer)[0]["content"] if "toolUse" in block]
        return [Call(use["toolUseId"], use["name"]) for use in made]

    def results(self, calls, outputs):
        blocks = [
            {"toolResult": {"toolUseId": call.id, "content": [{"text": text}]}}
            for call, text in zip(calls, outputs, strict=True)
        ]
        return [{"role": "user", "content": blocks}]

    def usage(self, answer):
        return {"input_tokens": answer["usage"]["inputTokens"], "output_tokens": answer["usage"]["outputTokens"]}


class RoutedClaudeClient(ChatClient):
    """Claude behind a router that passes its signed thinking on."""

    def request(self, messages):
        return {**super().request(messages), "model": "anthropic/claude-opus-5-5"}


class RemindingClient(AnthropicClient):
    """Sends a system message behind every question and every result, as Claude Code does."""

    def __init__(self):
        self.reminded = 0

    def user(self, text):
        return [super().user(text), self._reminder()]

    def results(self, calls, outputs):
        return [*super().results(calls, outputs), self._reminder()]

    def _reminder(self):
        self.reminded += 1
        return {"role": "system", "content": f"Reminder {self.reminded}: run the tests before you answer."}


class MarkingClient(AnthropicClient):
    """Marks the last block of what it sends for the cache, and keeps the mark in its history."""

    def user(self, text):
        return {"role": "user", "content": [{"type": "text", "text": text, **CACHE_MARK}]}

    def results(self, calls, outputs):
        (message,) = super().results(calls, outputs)
        message["content"][-1] |= CACHE_MARK
        return [message]


class CompactedClient(AnthropicClient):
    """Lets the provider compact, beside ours."""

    def request(self, messages):
        edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 9_000}}
        return {**super().request(messages), "context_management": {"edits": [edit]}}


class CompactedResponsesClient(ResponsesClient):
    """Lets the provider compact, beside ours."""

    def request(self, messages):
        return {**super().request(messages), "context_management": [{"type": "compaction", "compact_threshold": 9_000}]}


class ChainedClient(ResponsesClient):
    """Sends only what is new behind the last response, and everything when the context was rewritten."""

    def __init__(self):
        self.held = []
        self.last_id = None

    def request(self, messages):
        body = {**super().request(messages), "store": True}
        if self.last_id and list(messages[: len(self.held)]) == self.held:
            body |= {"previous_response_id": self.last_id, "input": list(messages[len(self.held) :])}
        self.held = list(messages)
        return body

    def reply(self, answer):
        self.last_id = answer["id"]
        self.held = [*self.held, *answer["output"]]
        return answer["output"]


CLIENTS: tuple[LoopClient, ...] = (
    ChatClient(),
    ResponsesClient(),
    AnthropicClient(),
    GeminiClient(),
    BedrockClient(),
)


def output_of(dice: Random, call: Call) -> str:
    """What a tool prints: mostly a little, sometimes an error, now and then very much."""
    if dice.random() < 0.1:
        return f"Exit code 1\nE   AssertionError: {call.name} found {dice.randint(1, 99)} instead of 42"
    lines = dice.choice((2, 5, 10, 20, 40, 120))
    rows = (f"def part_{dice.randint(0, 9_999)}(value): return value + {number}" for number in range(lines))
    return "\n".join(rows)
