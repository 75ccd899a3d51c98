"""Anthropic's `POST /v1/messages` as a strict server answers it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from context_compactor.testing.refusing import (
    Body,
    BoundThinking,
    RuleError,
    SaidBlock,
    count_fields,
    count_tokens,
    digest,
    image_sides,
    objects_at,
    refuse_undeclared,
    without,
)
from context_compactor.testing.replies import ScriptedReply
from context_compactor.testing.streams import StreamEvent, pieces

MAX_CACHE_MARKS = 4
MAX_IMAGES, MANY_IMAGES = 100, 20
MAX_SIDE, MAX_SIDE_OF_MANY = 8_000, 2_000
MAX_IMAGE_CHARACTERS = 5 * 1024 * 1024
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_USER_BLOCKS = ("text", "image", "document", "search_result", "tool_result", "container_upload")
_ASSISTANT_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "compaction")
_THINKING = ("thinking", "redacted_thinking")


class StrictAnthropic:
    """The newest models: thinking is bound to its conversation, and a conversation ends with the user."""

    name = "anthropic"

    def __init__(self, window: int) -> None:
        self._window = window
        self._thinking = BoundThinking()
        self._compactions: set[str] = set()
        self._calls = 0

    def takes(self, path: str) -> bool:
        return path == "/v1/messages"

    def check(self, path: str, body: Body) -> int:
        messages = objects_at("messages", body.get("messages"))
        if not messages:
            raise RuleError("empty", "messages: at least one message is required")
        for at, message in enumerate(messages):
            _check_shape(at, message)
        self._check_compactions(messages)
        self._check_marks(body)
        first = newest_compaction(messages)
        _check_roles(messages, first)
        _check_content(messages, first)
        _check_results(messages, first)
        _check_server_tools(messages, first)
        _check_images(messages)
        refuse_undeclared(_called(messages[first:]), [tool.get("name") for tool in body.get("tools") or ()])
        self._thinking.check(_front(body), _said(messages, first))
        tokens = count_tokens(body.get("system"), body.get("tools"), messages[first:])
        if tokens > self._window:
            raise RuleError("window", f"prompt is too long: {tokens} tokens > {self._window} maximum")
        return tokens

    def reply(self, path: str, body: Body, said: ScriptedReply, tokens: int) -> Body:
        messages = body["messages"]
        earlier = _said(messages, newest_compaction(messages))
        content: list[Body] = []
        if _wants_compaction(body, tokens):
            block = {"type": "compaction", "content": f"Summary of {len(messages)} messages and {tokens} tokens."}
            self._compactions.add(digest(block))
            content.append(block)
            earlier = [SaidBlock("", "assistant", block)]
        content += self._thinking_blocks(body, earlier, said)
        if said.text or not said.calls:
            content.append({"type": "text", "text": said.text or "Done."})
        for call in said.calls:
            self._calls += 1
            name, arguments = call.name, call.arguments
            content.append({"type": "tool_use", "id": f"toolu_{self._calls:06d}", "name": name, "input": arguments})
        return {
            "id": f"msg_{digest(messages)[:20]}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", ""),
            "content": content,
            "stop_reason": "tool_use" if said.calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": count_tokens(content),
            },
        }

    def events(self, path: str, body: Body, answer: Body) -> list[StreamEvent]:
        return _events(answer) if body.get("stream") else []

    def adopt(self, body: Body) -> None:
        messages = body["messages"]
        blocks = [block for message in messages for block in _blocks(message) if block.get("type") == "compaction"]
        self._compactions |= {digest(without(block, "cache_control")) for block in blocks}
        self._thinking.adopt(_front(body), _said(messages, newest_compaction(messages)))

    def error(self, error: RuleError) -> Body:
        message = f"{error.message} (rule: {error.rule})"
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}

    def _thinking_blocks(self, body: Body, earlier: list[SaidBlock], said: ScriptedReply) -> list[Body]:
        if said.thinking is None:
            return []
        signature = self._thinking.issue(_front(body), earlier, "" if said.redacted else said.thinking)
        if said.redacted:
            return [{"type": "redacted_thinking", "data": signature}]
        return [{"type": "thinking", "thinking": said.thinking, "signature": signature}]

    def _check_compactions(self, messages: list[Body]) -> None:
        for at, message in enumerate(messages):
            for number, block in enumerate(_blocks(message)):
                if block.get("type") != "compaction":
                    continue
                place = f"messages.{at}.content.{number}"
                if number or message["role"] != "assistant":
                    raise RuleError("compaction", f"{place}: `compaction` must be the first block of its message")
                if digest(without(block, "cache_control")) not in self._compactions:
                    raise RuleError("compaction", f"{place}: `compaction` block was changed")

    def _check_marks(self, body: Body) -> None:
        marks = sum(count_fields(body.get(field), "cache_control") for field in ("system", "tools", "messages"))
        if marks > MAX_CACHE_MARKS:
            raise RuleError(
                "cache-marks",
                f"A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided, not {marks}.",
            )
        for at, message in enumerate(body["messages"]):
            for number, block in enumerate(_blocks(message)):
                if block.get("type") in _THINKING and "cache_control" in block:
                    place = f"messages.{at}.content.{number}"
                    raise RuleError("cache-marks", f"{place}.cache_control: Extra inputs are not permitted")


def newest_compaction(messages: list[Body]) -> int:
    """The index of the message from which on the provider reads."""
    for at in range(len(messages) - 1, -1, -1):
        if any(block.get("type") == "compaction" for block in _blocks(messages[at])):
            return at
    return 0


def _events(answer: Body) -> list[StreamEvent]:
    started = {**answer, "content": [], "stop_reason": None, "usage": {**answer["usage"], "output_tokens": 1}}
    stop = {name: answer[name] for name in ("stop_reason", "stop_sequence")}
    values: list[Body] = [
        {"type": "message_start", "message": started},
        {"type": "ping"},
        *(value for at, block in enumerate(answer["content"]) for value in _block_events(at, block)),
        {"type": "message_delta", "delta": stop, "usage": answer["usage"]},
        {"type": "message_stop"},
    ]
    return [StreamEvent(value, value["type"]) for value in values]


def _block_events(at: int, block: Body) -> Iterator[Body]:
    yield {"type": "content_block_start", "index": at, "content_block": _started(block)}
    for delta in _deltas(block):
        yield {"type": "content_block_delta", "index": at, "delta": delta}
    yield {"type": "content_block_stop", "index": at}


def _started(block: Body) -> Body:
    empty: dict[str, Body] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
        "compaction": {"content": None},
    }
    return {**block, **empty.get(block["type"], {})}


def _deltas(block: Body) -> Iterator[Body]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            # The provider begins with an empty piece; for an empty input nothing follows it.
            written = pieces(json.dumps(block["input"])) if block["input"] else []
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *written))
        case "compaction":
            yield {"type": "compaction_delta", "content": block["content"]}


def _front(body: Body) -> Any:
    return without([body.get("system"), body.get("tools")], "cache_control")


def _blocks(message: Body) -> list[Body]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _said(messages: list[Body], first: int) -> list[SaidBlock]:
    said: list[SaidBlock] = []
    for at in range(first, len(messages)):
        for number, block in enumerate(_blocks(messages[at])):
            place, role, kind = f"messages.{at}.content.{number}", messages[at]["role"], block.get("type")
            if kind == "thinking":
                said.append(SaidBlock(place, role, block.get("thinking"), str(block.get("signature"))))
            elif kind == "redacted_thinking":
                said.append(SaidBlock(place, role, "", str(block.get("data"))))
            else:
                said.append(SaidBlock(place, role, without(block, "cache_control")))
    return said


def _called(messages: list[Body]) -> Iterator[str]:
    return (
        str(block.get("name")) for message in messages for block in _blocks(message) if block.get("type") == "tool_use"
    )


def _check_shape(at: int, message: Body) -> None:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise RuleError("unknown-role", f"messages.{at}.role: Input should be 'user', 'assistant' or 'system'")
    if isinstance(content, str):
        return
    for number, block in enumerate(objects_at(f"messages.{at}.content", content)):
        place, kind = f"messages.{at}.content.{number}", str(block.get("type"))
        known = _USER_BLOCKS if role == "user" else _ASSISTANT_BLOCKS if role == "assistant" else ("text",)
        if kind not in known and not (role == "assistant" and kind.endswith("_tool_result")):
            raise RuleError("shape", f"{place}: Input tag {kind!r} is not one of the expected tags for {role} messages")
        if kind == "text" and not isinstance(block.get("text"), str):
            raise RuleError("shape", f"{place}.text: Input should be a valid string")
        if kind == "tool_use" and not isinstance(block.get("input"), dict):
            raise RuleError("shape", f"{place}.tool_use.input: Input should be a valid dictionary")
        name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(kind)
        if name and not _ID.fullmatch(str(block.get(name) or "")):
            raise RuleError("shape", f"{place}.{kind}.{name}: String should match pattern '^[a-zA-Z0-9_-]+$'")


def _check_roles(messages: list[Body], first: int) -> None:
    roles = [message["role"] for message in messages]
    starts_compacted = any(block.get("type") == "compaction" for block in _blocks(messages[first]))
    if roles[first] != "user" and not starts_compacted:
        rule = "system" if roles[first] == "system" else "first-user"
        raise RuleError(rule, f'messages.{first}: the first message must use the "user" role')
    for at in range(first + 1, len(messages)):
        following = roles[at + 1] if at + 1 < len(messages) else "assistant"
        if roles[at] == "system" and (roles[at - 1] != "user" or following != "assistant"):
            raise RuleError("system", f"messages.{at}: a system message must follow a user turn and precede a reply")
        if roles[at] == roles[at - 1] == "assistant":
            raise RuleError("alternation", f'messages.{at}: roles must alternate between "user" and "assistant"')
    if roles[-1] == "assistant":
        raise RuleError("last-user", "the conversation must end with a user message: prefill is not supported")


def _check_content(messages: list[Body], first: int) -> None:
    for at in range(first, len(messages)):
        blocks = _blocks(messages[at])
        if not blocks:
            raise RuleError("empty", f"messages.{at}: all messages must have non-empty content")
        for number, block in enumerate(blocks):
            nested = block.get("content") if block.get("type") == "tool_result" else None
            for text in [block, *(nested if isinstance(nested, list) else ())]:
                if text.get("type") == "text" and not str(text.get("text")).strip():
                    place = f"messages.{at}.content.{number}"
                    raise RuleError("empty", f"{place}: text content blocks must contain non-whitespace text")


def _check_results(messages: list[Body], first: int) -> None:
    seen: set[str] = set()
    expected: list[str] = []
    for at in range(first, len(messages)):
        blocks = _blocks(messages[at])
        if messages[at]["role"] != "assistant":
            _check_answers(at, blocks, expected)
        expected = []
        for block in blocks:
            if block.get("type") == "tool_use":
                if block["id"] in seen:
                    raise RuleError("repeated-id", f"messages.{at}: `tool_use` ids must be unique")
                seen.add(block["id"])
                expected.append(block["id"])
    if expected:
        raise _unanswered(len(messages) - 1, expected)


def _check_answers(at: int, blocks: list[Body], expected: list[str]) -> None:
    """All results of the message before, once each and in front of everything else."""
    given = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
    for number, answered in enumerate(given):
        if answered not in expected:
            raise RuleError(
                "orphan-result",
                f"messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {answered}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message.",
            )
        if answered in given[:number]:
            raise RuleError("repeated-result", f"messages.{at}: each tool_use must have a single result: {answered}")
    missing = [call for call in expected if call not in given]
    if missing:
        raise _unanswered(at - 1, missing)
    if any(block.get("type") != "tool_result" for block in blocks[: len(given)]):
        raise RuleError("block-order", f"messages.{at}: `tool_result` blocks must come first in the content")


def _unanswered(at: int, missing: list[str]) -> RuleError:
    return RuleError(
        "missing-result",
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(missing)}. Each `tool_use` must have its `tool_result` in the next message.",
    )


def _check_server_tools(messages: list[Body], first: int) -> None:
    """Each call of the provider's own tools has its result behind it, but for the last reply, which may go on."""
    running: dict[str, int] = {}
    for at in range(first, len(messages)):
        for block in _blocks(messages[at]) if messages[at]["role"] == "assistant" else ():
            kind = str(block.get("type"))
            if kind == "server_tool_use":
                running[block["id"]] = at
            elif kind.endswith("_tool_result") and running.pop(block["tool_use_id"], None) is None:
                raise RuleError("server-tool", f"messages.{at}: `{kind}` without its `server_tool_use` block before it")
    for call, at in running.items():
        if at < len(messages) - 1:
            raise RuleError("server-tool", f"messages.{at}: `server_tool_use` {call} without its result block")


def _check_images(messages: list[Body]) -> None:
    blocks = [(at, block) for at, message in enumerate(messages) for block in _blocks(message)]
    nested = [
        (at, inner)
        for at, block in blocks
        if block.get("type") == "tool_result" and isinstance(block.get("content"), list)
        for inner in block["content"]
    ]
    images = [(at, block["source"]) for at, block in (*blocks, *nested) if block.get("type") == "image"]
    most = MAX_SIDE_OF_MANY if len(images) > MANY_IMAGES else MAX_SIDE
    if len(images) > MAX_IMAGES:
        raise RuleError("media", f"too many images: {len(images)} > {MAX_IMAGES}")
    for at, source in images:
        if max(image_sides(source.get("data"))) > most:
            raise RuleError("media", f"messages.{at}: At least one of the image dimensions exceed max allowed {most}")
        if len(source.get("data") or "") > MAX_IMAGE_CHARACTERS:
            raise RuleError("media", f"messages.{at}: image exceeds 5 MB maximum")


def _wants_compaction(body: Body, tokens: int) -> bool:
    edits = (body.get("context_management") or {}).get("edits") or ()
    triggers = [edit.get("trigger") or {} for edit in edits if str(edit.get("type")).startswith("compact")]
    return any(tokens > int(trigger.get("value", 150_000)) for trigger in triggers)
