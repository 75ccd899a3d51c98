"""What a scripted agent says: replies with thinking, text and tool calls, given or drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec import Struct


class ScriptedCall(Struct, frozen=True):
    """One call of a tool. The server gives it an id."""

    name: str
    arguments: dict[str, Any]


class ScriptedReply(Struct, frozen=True):
    """One reply of the agent. Without calls it ends the turn.

    `thinking` is None for a reply without, and may be "": then only the signature is sent. `redacted` thinking is sent
    in the provider's unreadable form, where it has one.
    """

    text: str = ""
    thinking: str | None = None
    redacted: bool = False
    calls: tuple[ScriptedCall, ...] = ()


def _schema(field: str) -> dict[str, Any]:
    return {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}


AGENT_TOOLS: dict[str, dict[str, Any]] = {
    "read_file": _schema("path"),
    "run_command": _schema("command"),
    "search_code": _schema("query"),
}
"""The tools that `random_replies` calls, with the JSON schema of their arguments."""

_AREAS = ("parser", "lexer", "router", "session", "cache", "billing", "auth", "search")


def random_replies(seed: int = 0, *, most_rounds: int = 6, most_calls: int = 3) -> Iterator[ScriptedReply]:
    """Replies without end, the same ones for the same seed: some rounds of tool calls, then an answer, and again."""
    dice = Random(seed)
    while True:
        for _ in range(dice.randint(1, most_rounds)):
            calls = tuple(_call(dice) for _ in range(dice.choice((1, 1, dice.randint(1, most_calls)))))
            text = f"I look at the {dice.choice(_AREAS)} next." if dice.random() < 0.6 else ""
            yield ScriptedReply(text, _thinking(dice), dice.random() < 0.1, calls)
        area, number = dice.choice(_AREAS), dice.randint(1, 999)
        answer = f"The {area} was wrong in line {number}: we decided to check the input of src/{area}.py."
        yield ScriptedReply(answer, _thinking(dice), dice.random() < 0.1)


def _call(dice: Random) -> ScriptedCall:
    area, number = dice.choice(_AREAS), dice.randint(1, 999)
    match dice.choice(tuple(AGENT_TOOLS)):
        case "read_file":
            return ScriptedCall("read_file", {"path": f"src/{area}/part_{number}.py"})
        case "run_command":
            return ScriptedCall("run_command", {"command": f"pytest -q tests/{area}/test_{number}.py"})
    return ScriptedCall("search_code", {"query": f"{area}_{number}"})


def _thinking(dice: Random) -> str | None:
    if dice.random() < 0.2:
        return None
    words = [f"The {dice.choice(_AREAS)} depends on the {dice.choice(_AREAS)}." for _ in range(dice.randint(0, 12))]
    return " ".join(words)
