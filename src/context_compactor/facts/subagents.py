"""The register of sub-agents: which still run, and what the finished ones answered."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from msgspec import structs

from context_compactor.classify.references import reference_of
from context_compactor.facts.exchanges import Called
from context_compactor.facts.fact import Fact
from context_compactor.messages.turn import ToolUse, Turn

_STARTS = frozenset("task agent spawnagent delegate subagent runagent newtask dispatchagent delegatetask".split())
_LAUNCHED = re.compile(
    r"(?:async )?agent launched|launched successfully|running in the background|spawned|\"agent_id\"", re.IGNORECASE
)
_AGENT_ID = re.compile(r"agent_?-?id\W{1,5}([\w-]{3,64})", re.IGNORECASE)
_FINISHED = re.compile(r"\b(?:completed?|finished|done|closed|failed|errored|killed|stopped)\b", re.IGNORECASE)
_BROKEN = re.compile(r"<status>(?:failed|killed|errored)|\"(?:failed|errored)\"\s*:", re.IGNORECASE)
_SAID = re.compile(
    r"<(?:output|result)>\s*(.{1,1500}?)(?:</(?:output|result)>|\Z)|\"completed\"\s*:\s*\"(.{1,1500}?)\"",
    re.DOTALL,
)
_PREFACE = re.compile(
    r"(?:perfect|excellent|great|now i have|let me|i now have|i have (?:all|completed|enough))\b", re.I
)
_LONGEST = 160


def subagent_facts(called: Sequence[Called], turns: Sequence[Turn], failed: Collection[int]) -> list[Fact]:
    """Every sub-agent that was started: `running`, `done` or `failed`, with its task and the head of its answer."""
    found: list[Fact] = []
    by_id: dict[str, int] = {}
    for turn, exchange, reading in called:
        if reading.tool in _STARTS and _task_of(reading.arguments):
            fact = _started(exchange, turn, reading.arguments, exchange.number in failed)
            launched = _AGENT_ID.search(exchange.result.text[:600]) if exchange.result else None
            if launched and fact.status == "running":
                by_id[launched[1]] = len(found)
            found.append(fact)
    return _closed(found, by_id, turns) if by_id else found


def _started(exchange: ToolUse, turn: int, arguments: dict[str, Any], is_failed: bool) -> Fact:
    answer = exchange.result.text if exchange.result else ""
    if exchange.result is None or (len(answer) < 1_500 and _LAUNCHED.search(answer[:300])):
        status, detail = "running", _first_line(_text(arguments, "prompt", "message", "task"))
    else:
        status, detail = "failed" if is_failed else "done", _first_line(answer)
    return Fact("subagent", _task_of(arguments), turn, "assistant", detail, status, 1, turn, reference_of(exchange))


def _closed(found: list[Fact], by_id: dict[str, int], turns: Sequence[Turn]) -> list[Fact]:
    """Mark those whose end was reported later, by a notice or by the tool that fetches their output."""
    for turn in turns:
        reports = _reports(turn)
        for agent, at in by_id.items() if reports else ():
            report = next((text for text in reports if agent in text and _FINISHED.search(text)), None)
            if report is not None and found[at].turn < turn.number:
                status = "failed" if _BROKEN.search(report) else "done"
                head = _first_line(_reported(report)) or found[at].detail
                found[at] = structs.replace(found[at], status=status, detail=head, last_turn=turn.number)
    return found


def _reported(report: str) -> str:
    """What a sub-agent said itself, within what a client tells of its end."""
    said = _SAID.search(report)
    return (said[1] or said[2]).replace("\\n", "\n") if said else ""


def _reports(turn: Turn) -> list[str]:
    notices = [message.text[:3_000] for message in turn.messages if message.role == "user" and "<task-" in message.text]
    answered = [(each.call, each.result) for each in turn.exchanges if each.call and each.result]
    return notices + [f"{call.arguments[:400]}\n{result.text[:1_500]}" for call, result in answered]


def _task_of(arguments: dict[str, Any]) -> str:
    task = _text(arguments, "description", "title", "name", "task", "prompt", "message")
    kind = _text(arguments, "subagent_type", "agent_type", "agent")
    line = _first_line(task)
    return f"{kind}: {line}"[:_LONGEST] if kind and line else line


def _text(arguments: dict[str, Any], *keys: str) -> str:
    return next((arguments[key] for key in keys if isinstance(arguments.get(key), str) and arguments[key]), "")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text[:3_000].split("\n")]
    telling = [line for line in lines if len(line) > 3 and not _PREFACE.match(line) and line.strip("-=#* ")]
    # A line that only leads to the next says less than that.
    first = next((line for line in telling if not line.endswith(":")), telling[0] if telling else "")
    return first.lstrip("# ")[:_LONGEST]
