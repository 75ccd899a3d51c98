"""Bedrock's `POST /model/{id}/converse` as a strict server answers it for Claude models.

`converse-stream` is refused: its answers are a binary event stream, which is not written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from context_compactor.testing.refusing import (
    Body,
    BoundThinking,
    RuleError,
    SaidBlock,
    count_tokens,
    image_sides,
    objects_at,
    refuse_undeclared,
)
from context_compactor.testing.replies import ScriptedReply
from context_compactor.testing.streams import StreamEvent

MAX_CACHE_POINTS = 4
MAX_IMAGES, MAX_DOCUMENTS, MAX_SIDE = 20, 5, 8_000
_USER_BLOCKS = (
    "text",
    "image",
    "document",
    "video",
    "audio",
    "toolResult",
    "guardContent",
    "cachePoint",
    "searchResult",
)
_ASSISTANT_BLOCKS = ("text", "toolUse", "reasoningContent", "cachePoint", "citationsContent")
_RESULT_BLOCKS = ("text", "json", "image", "document", "video", "searchResult")


class StrictBedrock:
    """User and assistant take turns, results stand directly behind their calls, reasoning is bound to what precedes."""

    name = "bedrock"

    def __init__(self, window: int) -> None:
        self._window = window
        self._thinking = BoundThinking()
        self._calls = 0

    def takes(self, path: str) -> bool:
        return path.startswith("/model/") and path.endswith(("/converse", "/converse-stream"))

    def check(self, path: str, body: Body) -> int:
        if path.endswith("/converse-stream"):
            raise RuleError("stream", "The strict server does not stream for Bedrock. Use Converse.")
        messages = objects_at("messages", body.get("messages"))
        if not messages:
            raise RuleError("empty", "A conversation must have at least one message.")
        for at, message in enumerate(messages):
            _check_shape(at, message)
        _check_roles(messages)
        _check_results(messages)
        _check_cache_points(body)
        refuse_undeclared(
            (str(use.get("name")) for message in messages for use in _held(message, "toolUse")), _declared(body)
        )
        self._thinking.check(_front(body), _said(messages))
        tokens = count_tokens(body.get("system"), body.get("toolConfig"), messages)
        if tokens > self._window:
            raise RuleError(
                "window",
                f"The model returned an error: prompt is too long: {tokens} tokens > {self._window} maximum",
            )
        return tokens

    def reply(self, path: str, body: Body, said: ScriptedReply, tokens: int) -> Body:
        content: list[Body] = []
        if said.thinking is not None:
            thought = "" if said.redacted else said.thinking
            signature = self._thinking.issue(_front(body), _said(body["messages"]), thought)
            if said.redacted:
                content.append({"reasoningContent": {"redactedContent": signature}})
            else:
                content.append({"reasoningContent": {"reasoningText": {"text": thought, "signature": signature}}})
        if said.text or not said.calls:
            content.append({"text": said.text or "Done."})
        for call in said.calls:
            self._calls += 1
            use = {"toolUseId": f"tooluse_{self._calls:06d}", "name": call.name, "input": call.arguments}
            content.append({"toolUse": use})
        output = count_tokens(content)
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "tool_use" if said.calls else "end_turn",
            "usage": {"inputTokens": tokens, "outputTokens": output, "totalTokens": tokens + output},
            "metrics": {"latencyMs": 1},
        }

    def events(self, path: str, body: Body, answer: Body) -> list[StreamEvent]:
        return []

    def adopt(self, body: Body) -> None:
        self._thinking.adopt(_front(body), _said(body["messages"]))

    def error(self, error: RuleError) -> Body:
        return {"message": f"{error.message} (rule: {error.rule})"}


def _declared(body: Body) -> list[str]:
    tools = (body.get("toolConfig") or {}).get("tools") or ()
    return [str((tool.get("toolSpec") or {}).get("name")) for tool in tools]


def _front(body: Body) -> Any:
    tools = (body.get("toolConfig") or {}).get("tools") or []
    return [[block for block in held if "cachePoint" not in block] for held in (body.get("system") or [], tools)]


def _held(message: Body, kind: str) -> Iterator[Any]:
    return (block[kind] for block in message["content"] if kind in block)


def _said(messages: list[Body]) -> list[SaidBlock]:
    said: list[SaidBlock] = []
    for at, message in enumerate(messages):
        for number, block in enumerate(message["content"]):
            place, role = f"messages.{at}.content.{number}", message["role"]
            reasoning = block.get("reasoningContent")
            if reasoning is not None:
                text = reasoning.get("reasoningText") or {}
                signature = text.get("signature") or reasoning.get("redactedContent")
                said.append(SaidBlock(place, role, text.get("text", ""), str(signature)))
            elif "cachePoint" not in block:
                said.append(SaidBlock(place, role, block))
    return said


def _check_shape(at: int, message: Body) -> None:
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise RuleError(
            "unknown-role",
            f"Value {role!r} at 'messages.{at}.member.role' failed to satisfy constraint: Member must satisfy enum "
            "value set: [user, assistant]",
        )
    content = objects_at(f"messages.{at}.content", message.get("content"))
    if not content or all("cachePoint" in block for block in content):
        raise RuleError(
            "empty",
            f"The content field in the Message object at messages.{at} is empty. Add a ContentBlock object to the "
            "content field and try again.",
        )
    known = _USER_BLOCKS if role == "user" else _ASSISTANT_BLOCKS
    for number, block in enumerate(content):
        place = f"messages.{at}.content.{number}"
        if len(block) != 1 or next(iter(block)) not in known:
            raise RuleError("shape", f"Member must have exactly one block that {role} messages may have. ({place})")
        _check_text(place, block)
        if "toolUse" in block and not isinstance(block["toolUse"].get("input"), dict):
            raise RuleError(
                "shape", f"The format of the value at {place}.toolUse.input is invalid. Provide a json object"
            )
        if "toolResult" in block:
            _check_result(place, block["toolResult"])
    _check_media(at, content)


def _check_text(place: str, block: Body) -> None:
    if "text" in block and (not isinstance(block["text"], str) or not block["text"].strip()):
        raise RuleError("empty", f"The text field in the ContentBlock object at {place} is blank. Add text to it.")


def _check_result(place: str, result: Body) -> None:
    if result.get("status") not in (None, "success", "error"):
        raise RuleError("shape", f"{place}.toolResult.status: Member must satisfy enum value set: [success, error]")
    for inner in objects_at(f"{place}.toolResult.content", result.get("content")):
        if len(inner) != 1 or next(iter(inner)) not in _RESULT_BLOCKS:
            raise RuleError("shape", f"{place}.toolResult.content: Member must have exactly one known block")
        _check_text(f"{place}.toolResult.content", inner)


def _check_media(at: int, content: list[Body]) -> None:
    images = [block["image"] for block in content if "image" in block]
    documents = [block["document"] for block in content if "document" in block]
    if documents and not any("text" in block for block in content):
        raise RuleError("document", f"messages.{at}: a text block is required when a document block is included.")
    if len(images) > MAX_IMAGES or len(documents) > MAX_DOCUMENTS:
        raise RuleError("media", f"messages.{at}: at most {MAX_IMAGES} images and {MAX_DOCUMENTS} documents")
    for image in images:
        sides = image_sides(image["source"].get("bytes"))
        if max(sides) > MAX_SIDE:
            raise RuleError("media", f"messages.{at}: at least one of the image dimensions exceeds {MAX_SIDE} pixels")


def _check_roles(messages: list[Body]) -> None:
    roles = [message["role"] for message in messages]
    if roles[0] != "user":
        raise RuleError("first-user", "A conversation must start with a user message.")
    if any(one == two for one, two in pairwise(roles)):
        raise RuleError("alternation", "A conversation must alternate between user and assistant roles.")
    if roles[-1] == "assistant" and not list(_held(messages[-1], "toolUse")):
        raise RuleError("last-user", "The conversation must end with a user message: prefill is not supported.")


def _check_results(messages: list[Body]) -> None:
    seen: set[str] = set()
    expected: list[str] = []
    for at, message in enumerate(messages):
        given = [str(result.get("toolUseId")) for result in _held(message, "toolResult")]
        place = f"messages.{at}.content"
        if len(given) > len(expected):
            rule = "repeated-result" if set(given) <= set(expected) else "orphan-result"
            message_text = (
                f"The number of toolResult blocks at {place} exceeds the number of toolUse blocks of previous turn."
            )
            raise RuleError(rule, message_text)
        missing = [call for call in expected if call not in given]
        if missing:
            raise RuleError(
                "missing-result", f"Expected toolResult blocks at {place} for the following Ids: {', '.join(missing)}"
            )
        kinds = ["toolResult" in block for block in message["content"] if "cachePoint" not in block]
        if given and not all(kinds[: len(given)]):
            raise RuleError("block-order", f"{place}: toolResult blocks must come before other blocks.")
        expected = [str(use.get("toolUseId")) for use in _held(message, "toolUse")]
        if seen & set(expected) or len(set(expected)) < len(expected):
            raise RuleError("repeated-id", f"{place}: duplicate Ids in toolUse blocks")
        seen |= set(expected)
    if expected:
        at = len(messages)
        raise RuleError(
            "missing-result",
            f"Expected toolResult blocks at messages.{at}.content for the following Ids: {', '.join(expected)}",
        )


def _check_cache_points(body: Body) -> None:
    held = [*(body.get("system") or ()), *((body.get("toolConfig") or {}).get("tools") or ())]
    held += [block for message in body["messages"] for block in message["content"]]
    points = sum("cachePoint" in block for block in held)
    if points > MAX_CACHE_POINTS:
        raise RuleError("cache-marks", f"You have exceeded the maximum of {MAX_CACHE_POINTS} cache points: {points}.")
