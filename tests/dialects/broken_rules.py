"""For each dialect the histories that break exactly one rule of its provider. The table in the docs is made from them.

`before` is the history as it was sent when the reasoning in `messages` was produced; None where that does not matter.
"""

from __future__ import annotations

import base64
import pkgutil
import struct
from importlib import import_module
from typing import Any

from msgspec import Struct

Raw = dict[str, Any]


class BrokenRule(Struct, frozen=True):
    """A history that its provider rejects for one reason, and the name that reason has in `Violation.rule`."""

    dialect: str
    rule: str
    messages: list[dict[str, Any]]
    model: str | None = None
    before: list[dict[str, Any]] | None = None


def user(text: str) -> Raw:
    """A user message, as chat and Anthropic have it."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Raw:
    """An assistant message without calls, as chat and Anthropic have it."""
    return {"role": "assistant", "content": text}


def _chat_calls(*ids: str) -> Raw:
    calls = [{"id": each, "type": "function", "function": {"name": "read", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _chat_result(call_id: str, text: str = "x = 1") -> Raw:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


_CHAT = {
    "missing-result": [user("Look."), _chat_calls("a"), user("And?")],
    "orphan-result": [user("Look."), assistant("Done."), _chat_result("a"), user("And?")],
    "repeated-result": [user("Look."), _chat_calls("a"), _chat_result("a"), _chat_result("a", "x = 2"), user("And?")],
    "repeated-id": [user("Look."), _chat_calls("a", "a"), _chat_result("a"), _chat_result("a", "x = 2"), user("And?")],
    "late-result": [user("Look."), _chat_calls("a"), user("Wait."), _chat_result("a"), user("And?")],
    "empty": [user("Look."), {"role": "assistant", "content": None}, user("And?")],
    "alternation": [user("Look."), assistant("I look."), assistant("Done."), user("And?")],
    "first-user": [assistant("Hello."), user("Look.")],
}


def _calls(*ids: str) -> Raw:
    content = [{"type": "tool_use", "id": each, "name": "read", "input": {}} for each in ids]
    return {"role": "assistant", "content": content}


def _result(call_id: str, text: str = "x = 1") -> Raw:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def _blank_result(call_id: str) -> Raw:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [_text(" "), _text("x = 1")]}


def _results(*ids: str) -> Raw:
    return {"role": "user", "content": [_result(each) for each in ids]}


def _text(text: str) -> Raw:
    return {"type": "text", "text": text}


def _thought() -> Raw:
    content = [{"type": "thinking", "thinking": "I know.", "signature": "signed"}, _text("Done.")]
    return {"role": "assistant", "content": content}


def _large_image() -> Raw:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 9_000, 10, 8, 2, 0, 0, 0)
    encoded = base64.b64encode(header + bytes(64)).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded}}


def _marked(number: int) -> list[Raw]:
    mark = {"cache_control": {"type": "ephemeral"}}
    return [{"role": "user", "content": [{**_text(f"Look at {number}."), **mark}]}, assistant("Done.")]


_SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}

_ANTHROPIC = {
    "missing-result": [user("Look."), _calls("a"), user("And?")],
    "orphan-result": [user("Look."), assistant("Done."), _results("a")],
    "repeated-result": [user("Look."), _calls("a"), {"role": "user", "content": [_result("a"), _result("a", "x = 2")]}],
    "repeated-id": [user("Look."), _calls("a"), _results("a"), _calls("a"), _results("a")],
    "late-result": [user("Look."), _calls("a"), user("Wait."), _results("a")],
    "block-order": [user("Look."), _calls("a"), {"role": "user", "content": [_text("Here."), _result("a")]}],
    "empty": [user("Look."), assistant("Done."), user(" "), assistant("And?"), user("Go on.")],
    "server-tool": [user("Look."), {"role": "assistant", "content": [_SEARCH, _text("Done.")]}, user("And?")],
    "system": [user("Look."), assistant("Done."), {"role": "system", "content": "Be brief."}, user("And?")],
    "alternation": [user("Look."), assistant("I look."), assistant("Done."), user("And?")],
    "first-user": [assistant("Hello."), user("Look.")],
    "media": [{"role": "user", "content": [_text("Look."), _large_image()]}],
    "cache-marks": [*(message for number in range(5) for message in _marked(number)), user("And?")],
    "compaction": [
        user("Look."),
        {"role": "assistant", "content": [_text("Done."), {"type": "compaction", "content": "They looked."}]},
        user("And?"),
    ],
    "thinking": [user("Look there."), _thought(), user("And?")],
}


def _call_item(call_id: str, item_id: str = "") -> Raw:
    named = {"id": item_id} if item_id else {}
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}", **named}


def _output_item(call_id: str, text: str = "x = 1") -> Raw:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}

_RESPONSES = {
    "missing-result": [user("Look."), _call_item("a"), user("And?")],
    "orphan-result": [user("Look."), _output_item("a"), user("And?")],
    "repeated-result": [user("Look."), _call_item("a"), _output_item("a"), _output_item("a", "x = 2"), user("And?")],
    "repeated-id": [user("Look."), *2 * [_call_item("a"), _output_item("a")], user("And?")],
    "reasoning": [user("Look."), _REASONING, user("And?")],
    "repeated-item": [
        user("Look."),
        {**assistant("A."), "id": "msg_1"},
        user("And?"),
        {**assistant("B."), "id": "msg_1"},
    ],
    "compaction": [
        user("Look."),
        _call_item("a"),
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"},
        _output_item("a"),
        user("And?"),
    ],
    "thinking": [user("Look."), _call_item("a", "fc_1"), _output_item("a"), user("And?")],
}
_BEFORE = {
    ("anthropic", "thinking"): [user("Look."), _thought(), user("And?")],
    ("openai-responses", "thinking"): [user("Look."), _REASONING, *_RESPONSES["thinking"][1:]],
    ("openai-responses", "reasoning"): [user("Look."), _REASONING, {**assistant("Done."), "id": "msg_1"}, user("And?")],
}


def _thought_in_chat(reasoning: str | None = None) -> Raw:
    """A call with reasoning as DeepSeek sends it, or with signed thinking as routers pass on Claude's."""
    signed = [{"type": "thinking", "thinking": "I know.", "signature": "signed"}]
    return _chat_calls("a") | ({"thinking_blocks": signed} if reasoning is None else {"reasoning_content": reasoning})


_AFTER_THE_CALL = [_chat_result("a"), user("And?")]
_CHAT_REASONING = [
    BrokenRule(
        "openai-chat",
        "thinking",
        [user("Look there."), _thought_in_chat(), *_AFTER_THE_CALL],
        before=[user("Look."), _thought_in_chat(), *_AFTER_THE_CALL],
    ),
    BrokenRule(
        "openai-chat",
        "reasoning-content",
        [user("Look."), _chat_calls("a"), *_AFTER_THE_CALL, {**assistant("Done."), "reasoning_content": "I know."}],
        model="deepseek-v4-pro",
        before=[user("Look."), _thought_in_chat("I look."), *_AFTER_THE_CALL],
    ),
]


def _cases(dialect: str, rules: dict[str, list[Raw]]) -> list[BrokenRule]:
    return [BrokenRule(dialect, rule, held, before=_BEFORE.get((dialect, rule))) for rule, held in rules.items()]


def every_broken_rule() -> list[BrokenRule]:
    """The cases below and those of other dialects: of each module `broken_NAME` in this folder the list `NAME`."""
    import tests.dialects

    names = sorted(module.name for module in pkgutil.iter_modules(tests.dialects.__path__, "tests.dialects."))
    others = [name for name in names if name.startswith("tests.dialects.broken_") and name != __name__]
    lists = [getattr(import_module(name), name.rpartition("broken_")[2].upper()) for name in others]
    return [*BROKEN_RULES, *(case for cases in lists for case in cases)]


_OTHER_KIND = {"type": "custom_tool_call_output", "call_id": "a", "output": "x = 1"}

BROKEN_RULES: list[BrokenRule] = [
    *_cases("openai-chat", _CHAT),
    *_CHAT_REASONING,
    *_cases("openai-responses", _RESPONSES),
    BrokenRule("openai-responses", "orphan-result", [user("Look."), _call_item("a"), _OTHER_KIND, user("And?")]),
    *_cases("anthropic", _ANTHROPIC),
    BrokenRule("anthropic", "empty", [user("Look."), _calls("a"), {"role": "user", "content": [_blank_result("a")]}]),
]
