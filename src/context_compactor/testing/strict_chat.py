"""OpenAI's `POST /v1/chat/completions` as a strict server answers it, with what compatible providers refuse too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from context_compactor.testing.refusing import (
    Body,
    BoundThinking,
    RuleError,
    SaidBlock,
    count_tokens,
    digest,
    objects_at,
    refuse_undeclared,
    without,
)
from context_compactor.testing.replies import ScriptedReply
from context_compactor.testing.streams import StreamEvent, pieces

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_SIGNED_FIELDS = ("thinking_blocks", "reasoning_details")
_REASONING_FIELDS = (*_SIGNED_FIELDS, "reasoning_content", "reasoning")


class StrictChat:
    """OpenAI takes assistants in a row and a conversation that the assistant begins; many chat templates do not.

    DeepSeek wants the reasoning of calls to come back with them. Routers to Claude hand out signed thinking, which is
    bound to its conversation as Claude's is: so it is for models with that name.
    """

    name = "openai-chat"

    def __init__(self, window: int) -> None:
        self._window = window
        self._thinking = BoundThinking()
        self._thought_calls: set[str] = set()
        self._calls = 0

    def takes(self, path: str) -> bool:
        return path == "/v1/chat/completions"

    def check(self, path: str, body: Body) -> int:
        messages = objects_at("messages", body.get("messages"))
        if not messages:
            raise RuleError("empty", "Invalid 'messages': empty array. Expected an array with minimum length 1.")
        for at, message in enumerate(messages):
            _check_shape(at, message)
        _check_roles(messages)
        _check_results(messages)
        self._check_reasoning(messages)
        self._thinking.check(body.get("tools"), _said(messages))
        declared = [
            str((tool.get("function") or tool.get("custom") or {}).get("name")) for tool in body.get("tools") or ()
        ]
        refuse_undeclared((_name(call) for message in messages for call in message.get("tool_calls") or ()), declared)
        tokens = count_tokens(messages, body.get("tools"))
        if tokens > self._window:
            raise RuleError(
                "window",
                f"This model's maximum context length is {self._window} tokens. However, your messages resulted in "
                f"{tokens} tokens. Please reduce the length of the messages.",
                "context_length_exceeded",
            )
        return tokens

    def reply(self, path: str, body: Body, said: ScriptedReply, tokens: int) -> Body:
        message: Body = {"role": "assistant", "content": said.text or None, "refusal": None}
        if said.thinking is not None:
            message |= self._reasoning(body, said)
        if said.calls:
            message["tool_calls"] = []
        for call in said.calls:
            self._calls += 1
            function = {"name": call.name, "arguments": json.dumps(call.arguments)}
            message["tool_calls"].append({"id": f"call_{self._calls:06d}", "type": "function", "function": function})
        if not said.text and not said.calls:
            message["content"] = "Done."
        self._remember(message)
        output = count_tokens(message)
        return {
            "id": f"chatcmpl-{digest(body['messages'])[:20]}",
            "object": "chat.completion",
            "created": 0,
            "model": body.get("model", ""),
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if said.calls else "stop"}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": output, "total_tokens": tokens + output},
        }

    def events(self, path: str, body: Body, answer: Body) -> list[StreamEvent]:
        if not body.get("stream"):
            return []
        return _events(answer, with_usage=bool((body.get("stream_options") or {}).get("include_usage")))

    def adopt(self, body: Body) -> None:
        self._thinking.adopt(body.get("tools"), _said(body["messages"]))
        for message in body["messages"]:
            self._remember(message)

    def error(self, error: RuleError) -> Body:
        message = f"{error.message} (rule: {error.rule})"
        held = {"message": message, "type": "invalid_request_error", "param": "messages", "code": error.code}
        return {"error": held}

    def _reasoning(self, body: Body, said: ScriptedReply) -> Body:
        thought = "" if said.redacted else said.thinking
        if "claude" not in str(body.get("model")):
            return {"reasoning_content": thought}
        signature = self._thinking.issue(body.get("tools"), _said(body["messages"]), thought)
        return {"thinking_blocks": [{"type": "thinking", "thinking": thought, "signature": signature}]}

    def _remember(self, message: Body) -> None:
        if "reasoning_content" in message and message.get("tool_calls"):
            self._thought_calls.add(digest(message["tool_calls"]))

    def _check_reasoning(self, messages: list[Body]) -> None:
        for at, message in enumerate(messages):
            is_thought = digest(message.get("tool_calls")) in self._thought_calls
            if is_thought and "reasoning_content" not in message:
                raise RuleError(
                    "reasoning-content",
                    f"Missing reasoning_content field in the assistant message at message index {at}. The "
                    "reasoning_content in the thinking mode must be passed back to the API.",
                )


def _events(answer: Body, *, with_usage: bool) -> list[StreamEvent]:
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    if with_usage:
        head["usage"] = None
    (choice,) = answer["choices"]
    chunks = [_chunk(head, delta) for delta in _deltas(choice["message"])]
    chunks.append(_chunk(head, {}, choice["finish_reason"]))
    if with_usage:
        chunks.append({**head, "choices": [], "usage": answer["usage"]})
    return [*(StreamEvent(chunk) for chunk in chunks), StreamEvent("[DONE]")]


def _chunk(head: Body, delta: Body, finish_reason: str | None = None) -> Body:
    return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]}


def _deltas(message: Body) -> Iterator[Body]:
    text, thought = message["content"], message.get("reasoning_content")
    first = {"role": "assistant", "content": None if text is None else "", "refusal": None}
    yield first if thought is None else {**first, "reasoning_content": ""}
    for piece in pieces(thought or ""):
        yield {"reasoning_content": piece}
    if "thinking_blocks" in message:
        yield {"thinking_blocks": message["thinking_blocks"]}
    for piece in pieces(text or ""):
        yield {"content": piece}
    for at, call in enumerate(message.get("tool_calls") or ()):
        yield {"tool_calls": [{**call, "index": at, "function": {**call["function"], "arguments": ""}}]}
        for piece in pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}


def _said(messages: list[Body]) -> list[SaidBlock]:
    said: list[SaidBlock] = []
    for at, message in enumerate(messages):
        place, role = f"messages[{at}]", message["role"]
        blocks = [block for field in _SIGNED_FIELDS for block in message.get(field) or ()]
        for block in blocks:
            signature = block.get("signature") or block.get("data")
            if signature:
                said.append(SaidBlock(place, role, block.get("thinking", block.get("text")), str(signature)))
        said.append(SaidBlock(place, role, without(message, *_REASONING_FIELDS, "cache_control")))
    return said


def _name(tool: Any) -> str:
    return str((tool.get("function") or tool.get("custom") or {}).get("name"))


def _check_shape(at: int, message: Body) -> None:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    place = f"messages[{at}]"
    if role not in _ROLES:
        known = ", ".join(f"'{name}'" for name in _ROLES)
        raise RuleError("unknown-role", f"Invalid value: {role!r}. Supported values are: {known}. ({place}.role)")
    if calls is not None:
        if role != "assistant":
            raise RuleError("shape", f"Unknown parameter: '{place}.tool_calls'.")
        _check_calls(place, objects_at(f"{place}.tool_calls", calls))
    if isinstance(content, list):
        if not content:
            raise RuleError(
                "empty", f"Invalid '{place}.content': empty array. Expected an array with minimum length 1."
            )
        for number, block in enumerate(objects_at(f"{place}.content", content)):
            if block.get("type") == "text" and not isinstance(block.get("text"), str):
                raise RuleError("shape", f"Invalid type for '{place}.content[{number}].text': expected a string.")
    elif content is not None and not isinstance(content, str):
        raise RuleError("shape", f"Invalid type for '{place}.content': expected a string or a list.")
    elif content is None and not (role == "assistant" and _has_other_content(message)):
        raise RuleError("empty", f"Invalid value for 'content': expected a string, got null. ({place}.content)")
    needed = {"tool": "tool_call_id", "function": "name"}.get(role)
    if needed and not message.get(needed):
        raise RuleError("shape", f"Missing required parameter: '{place}.{needed}'.")


def _has_other_content(message: Body) -> bool:
    return any(message.get(field) for field in ("tool_calls", "function_call", "refusal", "audio"))


def _check_calls(place: str, calls: list[Body]) -> None:
    if not calls:
        raise RuleError("empty", f"Invalid '{place}.tool_calls': empty array. Expected an array with minimum length 1.")
    ids = [call.get("id") for call in calls]
    if len(set(map(str, ids))) < len(ids):
        raise RuleError("repeated-id", f"Duplicate value for 'tool_call_id' in {place}.tool_calls.")
    for number, call in enumerate(calls):
        function = call.get("function") if call.get("type", "function") == "function" else {"arguments": ""}
        if not isinstance(call.get("id"), str) or not isinstance(function, dict):
            raise RuleError("shape", f"Missing required parameter: '{place}.tool_calls[{number}].function'.")
        if not isinstance(function.get("arguments"), str):
            raise RuleError("shape", f"Invalid type for '{place}.tool_calls[{number}].function.arguments'.")


def _check_roles(messages: list[Body]) -> None:
    roles = [message["role"] for message in messages]
    speakers = [role for role in roles if role not in ("system", "developer")]
    if speakers[:1] == ["assistant"]:
        raise RuleError("first-user", "Conversation roles must begin with a user message.")
    for at in range(1, len(roles)):
        if roles[at] == roles[at - 1] == "assistant":
            raise RuleError("alternation", f"messages[{at}]: Conversation roles must alternate user/assistant.")


def _check_results(messages: list[Body]) -> None:
    """Behind a message with calls come the results of all of them, and nothing between."""
    open_calls: list[str] = []
    closed: list[str] = []
    for at, message in enumerate(messages):
        if message["role"] in ("tool", "function"):
            answered = message.get("tool_call_id") or _function_id(message)
            if answered in closed:
                raise RuleError("repeated-result", f"messages[{at}]: two results for the tool_call_id {answered}.")
            if answered not in open_calls:
                raise RuleError(
                    "orphan-result",
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    f"'tool_calls'. (messages[{at}].role)",
                )
            open_calls.remove(answered)
            closed.append(answered)
            continue
        if open_calls:
            raise _unanswered(open_calls)
        closed = []
        open_calls = [str(call["id"]) for call in message.get("tool_calls") or ()]
        if message.get("function_call"):
            open_calls.append(_function_id(message["function_call"]))
    if open_calls:
        raise _unanswered(open_calls)


def _function_id(named: Body) -> str:
    """What calls and results of the former `functions` are matched by: they have no id."""
    return f"function {named['name']}"


def _unanswered(open_calls: list[str]) -> RuleError:
    return RuleError(
        "missing-result",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(open_calls)}",
    )
