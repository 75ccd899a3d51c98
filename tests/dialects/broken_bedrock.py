"""Histories that break exactly one rule of Bedrock's Converse API."""

from __future__ import annotations

from typing import Any

from tests.dialects.broken_rules import BrokenRule
from tests.dialects.strategies import picture

Raw = dict[str, Any]

HI: Raw = {"role": "user", "content": [{"text": "Look."}]}
OK: Raw = {"role": "assistant", "content": [{"text": "Done."}]}
SYSTEM: Raw = {"role": "system", "content": [{"text": "Be brief."}]}
POINT: Raw = {"cachePoint": {"type": "default"}}
DOCUMENT: Raw = {"document": {"format": "txt", "name": "Spec", "source": {"text": "words"}}}
LARGE: Raw = {"image": {"format": "png", "source": {"bytes": picture(9000, 10)}}}
SMALL: Raw = {"image": {"format": "png", "source": {"bytes": picture(10, 10)}}}


def calls(*ids: str) -> Raw:
    """A step with a call for each id."""
    return {"role": "assistant", "content": [{"toolUse": {"toolUseId": it, "name": "Read", "input": {}}} for it in ids]}


def results(*ids: str, text: str = "1") -> Raw:
    """Their results."""
    held = [{"toolUseId": call_id, "content": [{"text": text}]} for call_id in ids]
    return {"role": "user", "content": [{"toolResult": each} for each in held]}


def user(*blocks: Raw) -> Raw:
    """A user message of these blocks."""
    return {"role": "user", "content": list(blocks)}


def thought(reasoning: Raw) -> Raw:
    """A reply with reasoning."""
    return {"role": "assistant", "content": [{"reasoningContent": reasoning}, {"text": "Done."}]}


_MARKED = user({"text": "Look."}, POINT)
_OTHER = user({"text": "Look there."})
_SIGNED = thought({"reasoningText": {"text": "I know.", "signature": "signed"}})
_SEALED = thought({"redactedContent": "c2VhbGVk"})

BEDROCK = [
    BrokenRule("bedrock", "missing-result", [HI, calls("a", "b"), results("b"), OK]),
    BrokenRule("bedrock", "repeated-id", [HI, calls("a"), results("a"), calls("a"), results("a")]),
    BrokenRule("bedrock", "orphan-result", [HI, OK, results("x")]),
    BrokenRule("bedrock", "repeated-result", [HI, calls("a"), results("a", "a")]),
    BrokenRule("bedrock", "late-result", [HI, calls("a"), HI, OK, results("a")]),
    BrokenRule("bedrock", "block-order", [HI, calls("a"), user({"text": "And?"}, *results("a")["content"])]),
    BrokenRule("bedrock", "empty", [HI, OK, user()]),
    BrokenRule("bedrock", "empty", [HI, OK, user(POINT)]),
    BrokenRule("bedrock", "empty", [user({"text": " \n"}, {"text": "Look."})]),
    BrokenRule("bedrock", "empty", [HI, calls("a"), results("a", text=" ")]),
    BrokenRule("bedrock", "system", [HI, OK, SYSTEM, HI]),
    BrokenRule("bedrock", "alternation", [HI, OK, OK]),
    BrokenRule("bedrock", "alternation", [HI, HI]),
    BrokenRule("bedrock", "first-user", [SYSTEM, OK, HI]),
    BrokenRule("bedrock", "thinking", [_OTHER, _SIGNED, HI], before=[HI, _SIGNED, HI]),
    BrokenRule("bedrock", "thinking", [_OTHER, _SEALED, HI], before=[HI, _SEALED, HI]),
    BrokenRule("bedrock", "cache-marks", [_MARKED, OK] * 5),
    BrokenRule("bedrock", "document", [user(DOCUMENT)]),
    BrokenRule("bedrock", "media", [user(LARGE)]),
    BrokenRule("bedrock", "media", [user(*[SMALL] * 21)]),
    BrokenRule("bedrock", "media", [user({"text": "Look."}, *[DOCUMENT] * 6)]),
    BrokenRule("bedrock", "media", [HI, {"role": "assistant", "content": [SMALL]}]),
]
