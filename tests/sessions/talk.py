"""A conversation without end, in every dialect: the message of each number is always the same one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import structs

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.turns import REFERENCE_PATTERN
from context_compactor.protocols import Store
from context_compactor.sessions.core import Clock, wall_clock
from context_compactor.sessions.events import Bus
from context_compactor.sessions.session import Session
from context_compactor.settings import Settings

if TYPE_CHECKING:
    from context_compactor.sessions.core import Schedule

Raw = dict[str, Any]

WINDOW = 3_000
CALM = Settings(idle_seconds=0, promote_to_memory=False)
"""Nothing in the background, and nothing of other sessions."""


def count(text: str) -> int:
    """Tokens, cheaply."""
    return len(text) // 4 + 1


def opened(
    store: Path | str | Store,
    session_id: str = "run",
    *,
    window: int = WINDOW,
    dialect: str = "auto",
    bus: Bus | None = None,
    clock: Clock = wall_clock,
    count_tokens: Callable[[str], int] = count,
    schedule: Schedule | None = None,
    branch: str | None = None,
    **settings: Any,
) -> Session:
    """A session in a file of this folder, at this address or in this store, calm but for the settings given."""
    return Session.open(
        session_id,
        window=window,
        store=f"sqlite:///{store / 'sessions.db'}" if isinstance(store, Path) else store,
        dialect=dialect,
        settings=structs.replace(CALM, **settings),
        count_tokens=count_tokens,
        bus=bus,
        clock=clock,
        schedule=schedule,
        branch=branch,
    )


def message(number: int, dialect: str = "openai-chat") -> Raw:
    """The message of this number: a question, a call, its result, an answer, and so on."""
    return _WRITERS[dialect](number // 4, number % 4)


def messages(first: int, after: int, dialect: str = "openai-chat") -> list[Raw]:
    """The messages from one number up to another."""
    return [message(number, dialect) for number in range(first, after)]


def question(turn: int) -> str:
    """What the user asks."""
    return f"Request {turn}: look at src/part_{turn}.py and tell what compute_{turn} does. Never touch release {turn}."


def output(turn: int) -> str:
    """What the tool prints: mostly a little, sometimes an error, now and then very much."""
    dice = Random(turn)
    lines = 90 if turn % 7 == 5 else dice.randint(2, 9)
    printed = [f"line {line} of part {turn}: value_{turn * line} = compute_{turn}({line})" for line in range(lines)]
    return "\n".join([*printed, *([f"Exit code 1: E_{turn} cannot be opened"] if turn % 5 == 3 else [])])


def answer(turn: int) -> str:
    """What the assistant says."""
    return f"Part {turn} does {turn * 3}. We decided to keep `compute_{turn}` because it is used elsewhere."


def _chat(turn: int, step: int) -> Raw:
    call = {
        "id": f"call_{turn}",
        "type": "function",
        "function": {"name": "Read", "arguments": json.dumps({"file_path": f"src/part_{turn}.py"})},
    }
    return (
        {"role": "user", "content": question(turn)},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{turn}", "content": output(turn)},
        {"role": "assistant", "content": answer(turn)},
    )[step]


def _anthropic(turn: int, step: int) -> Raw:
    path = {"file_path": f"src/part_{turn}.py"}
    return (
        {"role": "user", "content": question(turn)},
        {"role": "assistant", "content": [{"type": "tool_use", "id": f"call_{turn}", "name": "Read", "input": path}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": f"call_{turn}", "content": output(turn)}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": answer(turn)}]},
    )[step]


def _responses(turn: int, step: int) -> Raw:
    path = json.dumps({"file_path": f"src/part_{turn}.py"})
    return (
        {"role": "user", "content": question(turn)},
        {"type": "function_call", "call_id": f"call_{turn}", "name": "Read", "arguments": path},
        {"type": "function_call_output", "call_id": f"call_{turn}", "output": output(turn)},
        {"role": "assistant", "content": answer(turn)},
    )[step]


def _made_up(turn: int, step: int) -> Raw:
    path = {"file_path": f"src/part_{turn}.py"}
    return (
        {"who": "human", "say": question(turn)},
        {"who": "bot", "say": "I look.", "ask": [{"ref": f"call_{turn}", "do": "Read", "with": path}]},
        {"who": "machine", "ref": f"call_{turn}", "got": output(turn), "bad": False},
        {"who": "bot", "say": answer(turn)},
    )[step]


def _gemini(turn: int, step: int) -> Raw:
    path = {"file_path": f"src/part_{turn}.py"}
    call = {"functionCall": {"name": "Read", "args": path}, "thoughtSignature": f"sig{turn}"}
    return (
        {"role": "user", "parts": [{"text": question(turn)}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [{"functionResponse": {"name": "Read", "response": {"output": output(turn)}}}]},
        {"role": "model", "parts": [{"text": answer(turn)}]},
    )[step]


def _bedrock(turn: int, step: int) -> Raw:
    path = {"file_path": f"src/part_{turn}.py"}
    result = {"toolUseId": f"call_{turn}", "content": [{"text": output(turn)}]}
    return (
        {"role": "user", "content": [{"text": question(turn)}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": f"call_{turn}", "name": "Read", "input": path}}]},
        {"role": "user", "content": [{"toolResult": result}]},
        {"role": "assistant", "content": [{"text": answer(turn)}]},
    )[step]


def plain(role: str, text: str, dialect: str) -> Raw:
    """A message of words alone."""
    if dialect == "made-up":
        return {"who": {"user": "human", "assistant": "bot"}[role], "say": text}
    if dialect == "gemini":
        return {"role": {"user": "user", "assistant": "model"}[role], "parts": [{"text": text}]}
    return {"role": role, "content": [{"text": text}] if dialect == "bedrock" else text}


_WRITERS: dict[str, Callable[[int, int], Raw]] = {
    "openai-chat": _chat,
    "anthropic": _anthropic,
    "openai-responses": _responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "made-up": _made_up,
}


def illegal(context: list[Raw], dialect: str = "openai-chat") -> list[str]:
    """What a provider would reject."""
    spoken = find_dialect(dialect, context)
    return [f"message {each.index}: {each.what}" for each in find_violations(spoken.parse(context), spoken)]


def references(context: list[Raw]) -> list[str]:
    """The ids that a context shows."""
    return sorted(set(REFERENCE_PATTERN.findall(json.dumps(context))))
