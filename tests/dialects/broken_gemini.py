"""Histories that break exactly one rule of Gemini."""

from __future__ import annotations

from typing import Any

from tests.dialects.broken_rules import BrokenRule

Raw = dict[str, Any]

HI: Raw = {"role": "user", "parts": [{"text": "Look."}]}
OK: Raw = {"role": "model", "parts": [{"text": "Done."}]}
SYSTEM: Raw = {"role": "system", "parts": [{"text": "Be brief."}]}


def calls(*names: str, signature: str = "", **ids: str) -> Raw:
    """A step with one call for each name, perhaps with an id; the first one signed."""
    parts: list[Raw] = [{"functionCall": {"name": name, "args": {}}} for name in names]
    parts += [{"functionCall": {"id": call_id, "name": name, "args": {}}} for name, call_id in ids.items()]
    parts[0] |= {"thoughtSignature": signature} if signature else {}
    return {"role": "model", "parts": parts}


def responses(*names: str, **ids: str) -> Raw:
    """The response to each of them."""
    parts: list[Raw] = [{"functionResponse": {"name": name, "response": {"output": "1"}}} for name in names]
    parts += [{"functionResponse": {"id": it, "name": name, "response": {}}} for name, it in ids.items()]
    return {"role": "user", "parts": parts}


_TEXT_FIRST: Raw = {"role": "user", "parts": [{"text": "And?"}, *responses("Read")["parts"]]}

GEMINI = [
    BrokenRule("gemini", "missing-result", [HI, calls("Read", "Read"), responses("Read"), OK]),
    BrokenRule("gemini", "missing-result", [HI, calls("Read"), HI]),
    BrokenRule("gemini", "repeated-id", [HI, calls(Read="a", Bash="a"), responses(Read="a", Bash="a")]),
    BrokenRule("gemini", "orphan-result", [HI, OK, responses("Read")]),
    BrokenRule("gemini", "repeated-result", [HI, calls(Read="a"), responses(Read="a"), responses(Read="a")]),
    BrokenRule("gemini", "late-result", [HI, calls("Read"), HI, responses("Read")]),
    BrokenRule("gemini", "result-order", [HI, calls("Read", "Bash"), responses("Bash", "Read")]),
    BrokenRule("gemini", "block-order", [HI, calls("Read"), _TEXT_FIRST]),
    BrokenRule("gemini", "empty", [{"role": "user", "parts": []}, HI, OK]),
    BrokenRule("gemini", "empty", [{"role": "user", "parts": [{"text": ""}, {"text": "Look."}]}]),
    BrokenRule("gemini", "empty", [{"role": "user", "parts": [{}, {"text": "Look."}]}]),
    BrokenRule("gemini", "system", [HI, OK, SYSTEM, HI]),
    BrokenRule("gemini", "alternation", [HI, OK, calls("Read"), responses("Read")]),
    BrokenRule("gemini", "first-user", [SYSTEM, OK, HI]),
    BrokenRule(
        "gemini",
        "thought-signature",
        [HI, calls("Read", signature="c2ln"), responses("Read"), calls("Read"), responses("Read")],
    ),
    BrokenRule("gemini", "thought-signature", [HI, calls("Read"), responses("Read")], model="gemini-3-pro-preview"),
]
