"""Clients for tests: one for each protocol that never compacts, and requests as Claude Code and Codex send them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from context_compactor.proxy.wire import PROTOCOLS, WireProtocol, WireReply
from context_compactor.testing.replies import AGENT_TOOLS

Raw = dict[str, Any]
PATHS = {"anthropic": "/v1/messages", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses"}
MODELS = {"anthropic": "claude-opus-5-5", "openai-chat": "gpt-5", "openai-responses": "gpt-5"}
KEY = {"authorization": "Bearer key-of-a-user"}
SESSION = "5f0c1a52-7d0e-4c39-9a41-2b6f8e3d9c10"
CLAUDE = {"user-agent": "claude-cli/2.1.327 (external, cli)", "x-claude-code-session-id": SESSION, "x-api-key": "key-1"}
SUMMARY = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nYour task is to create a detailed summary of the "
    "conversation so far.\n\nAn <analysis> block followed by a <summary> block.{focus}\n\n"
    "REMINDER: Do NOT call any tools."
)
CODEX = {"originator": "codex_exec", "session-id": SESSION, "thread-id": SESSION, "authorization": "Bearer key-1"}


def post(url: str, path: str, body: bytes | Raw, headers: Mapping[str, str] = KEY) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to a request."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port or 80)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", path, sent, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def read(dialect: str, headers: Mapping[str, str], content: bytes) -> WireReply:
    """What a reply says."""
    protocol: WireProtocol = next(each for each in PROTOCOLS if each.dialect == dialect)
    return protocol.read_reply(headers["content-type"], content)


class Talking:
    """A program with tools that sends its whole history each time, and never compacts."""

    def __init__(self, url: str, dialect: str, *, headers: Mapping[str, str] = KEY, output: int = 60) -> None:
        self.url = url
        self.dialect = dialect
        self.headers = headers
        self.output = output
        self.messages: list[Raw] = [{"role": "user", "content": "Fix the parser. Never touch legacy/."}]
        self.tools = [declare(dialect, name, schema) for name, schema in AGENT_TOOLS.items()]
        self.replies: list[WireReply] = []
        self.turns = 0

    def body(self, *, is_stream: bool = False) -> Raw:
        """The next request."""
        field = "input" if self.dialect == "openai-responses" else "messages"
        more: Raw = {"store": False} if self.dialect == "openai-responses" else {}
        more |= {"max_tokens": 1_000} if self.dialect == "anthropic" else {}
        more |= {"stream": True} if is_stream else {}
        return {"model": MODELS[self.dialect], field: self.messages, "tools": self.tools, **more}

    def turn(self, *, is_stream: bool = False) -> WireReply:
        """Send the history, and take the reply and the results of its calls into it."""
        status, headers, content = post(self.url, PATHS[self.dialect], self.body(is_stream=is_stream), self.headers)
        assert status == 200, content
        reply = read(self.dialect, headers, content)
        assert reply.is_complete, content
        self.replies.append(reply)
        self.turns += 1
        self.take(reply)
        return reply

    def take(self, reply: WireReply) -> None:
        """Take a reply and the results of its calls into the history, or else something that the user says."""
        self.messages = [*self.messages, *reply.messages]
        results = [self._result(call) for call in calls_in(reply.messages)]
        if self.dialect == "anthropic" and results:
            self.messages.append({"role": "user", "content": results})
        else:
            self.messages += results or [{"role": "user", "content": f"go on with part {self.turns}"}]

    def _result(self, call_id: str) -> Raw:
        text = f"line {self.turns} of the output about the parser\n" * self.output
        match self.dialect:
            case "anthropic":
                return {"type": "tool_result", "tool_use_id": call_id, "content": text}
            case "openai-chat":
                return {"role": "tool", "tool_call_id": call_id, "content": text}
        return {"type": "function_call_output", "call_id": call_id, "output": text}


def declare(dialect: str, name: str, schema: Raw) -> Raw:
    """A tool as it is declared."""
    match dialect:
        case "anthropic":
            return {"name": name, "description": name, "input_schema": schema}
        case "openai-chat":
            return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
    return {"type": "function", "name": name, "description": name, "parameters": schema}


def calls_in(messages: list[Raw]) -> Iterator[str]:
    """The ids of the calls in messages of any dialect."""
    for message in messages:
        if message.get("type") == "function_call":
            yield message["call_id"]
        yield from (call["id"] for call in message.get("tool_calls") or ())
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        yield from (block["id"] for block in blocks if block.get("type") == "tool_use")


def claude_history(rounds: int) -> list[Raw]:
    """What Claude Code has done in so many rounds: a failing test, edits, and what the user has said."""
    messages: list[Raw] = [{"role": "user", "content": "Fix the login. Never touch config/secrets.yaml."}]
    for at in range(rounds):
        call = {
            "type": "tool_use",
            "id": f"toolu_{at}",
            "name": "Bash",
            "input": {"command": f"pytest tests/test_{at}.py"},
        }
        text = f"FAILED tests/test_{at}.py::test_login - AssertionError: {at}\n" + f"line {at} of a long log\n" * 80
        messages.append({"role": "assistant", "content": [{"type": "text", "text": f"I look at part {at}."}, call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{at}", "content": text}]}
        )
    return messages


def claude_body(messages: list[Raw], *, is_stream: bool = True) -> Raw:
    """A request of Claude Code."""
    tools = [{"name": "Bash", "description": "run", "input_schema": {"type": "object"}}]
    return {
        "model": "claude-sonnet-4-6",
        "messages": messages,
        "max_tokens": 1_000,
        "tools": tools,
        "stream": is_stream,
    }


def asking_for_summary(messages: list[Raw], focus: str = "") -> list[Raw]:
    """The history with which Claude Code asks for a summary: the request stands behind the last result."""
    said = f"\n\nAdditional Instructions:\n{focus}" if focus else ""
    block = {"type": "text", "text": SUMMARY.format(focus=said)}
    last = messages[-1]
    return [*messages[:-1], {**last, "content": [*last["content"], block]}]


def codex_history(rounds: int) -> list[Raw]:
    """The items of a conversation of Codex."""
    items: list[Raw] = [
        _item("developer", "You are Codex."),
        _item("user", "<environment_context>\n  <cwd>/home/me</cwd>\n</environment_context>"),
        _item("user", "Fix the login. Never touch config/secrets.yaml."),
    ]
    for at in range(rounds):
        arguments = json.dumps({"cmd": f"pytest tests/test_{at}.py"})
        call = {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": f"call_{at}"}
        text = f"FAILED tests/test_{at}.py::test_login - AssertionError: {at}\n" + f"line {at} of a long log\n" * 80
        items += [call, {"type": "function_call_output", "call_id": f"call_{at}", "output": text}]
    return items


def _item(role: str, text: str) -> Raw:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def checkpoint_request() -> Raw:
    """What Codex asks with when it wants a checkpoint as a text."""
    return _item("user", "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.")


def codex_body(items: list[Raw], *, tools: bool = True) -> Raw:
    """A request of Codex."""
    declared = [{"type": "function", "name": "exec_command", "parameters": {"type": "object"}}] if tools else []
    return {"model": "gpt-5.5", "input": items, "tools": declared, "stream": True, "store": False}


def codex_headers(*, compacts: bool = False, window: int = 0) -> dict[str, str]:
    """The headers of a request of Codex."""
    said = {"request_kind": "compaction" if compacts else "turn", "compaction": {"trigger": "auto"}}
    said_of = json.dumps(said, separators=(",", ":"))
    return {**CODEX, "x-codex-turn-metadata": said_of, "x-codex-window-id": f"{SESSION}:{window}"}
