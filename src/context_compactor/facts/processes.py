"""Commands that go on running behind the conversation: servers, watchers, long tests that nobody has waited for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from context_compactor.classify.background import running_id
from context_compactor.classify.calls import Reading
from context_compactor.classify.failures import wording_of
from context_compactor.classify.references import reference_of
from context_compactor.facts.exchanges import Called
from context_compactor.facts.fact import Fact
from context_compactor.messages.turn import ToolUse, Turn

_NUMBERED = re.compile(r"^\[\d{1,3}\] (\d{2,9})\b|\bPID:? ?(\d{2,9})\b", re.MULTILINE)
_BEHIND = re.compile(r"(?<![&>|<\d])&(?![&>\d])[ \t]*(?:$|\n|\)|;|disown|echo|sleep|curl|[A-Z_]+=\$!)", re.MULTILINE)
_PORT = re.compile(
    r"(?:--port[ =]|\bPORT=|(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::\]):|\bport:? )(\d{2,5})\b", re.IGNORECASE
)
_ENDED = re.compile(
    r"<status>(?:completed|failed|killed|stopped)|Process exited with code|\bexit(?:ed)?[ _]code\b|successfully stopped"
    r"|\bkilled\b|not (?:found|running)",
    re.IGNORECASE,
)
_STAYS = re.compile(r"\b(?:serve|server|dev|watch|start|daemon|tail -[fF]|up|preview|listen)\b")
_RECENT = 10
_NOTICE = "<task-notification>"
_STOPS = frozenset(("kill", "pkill", "killall", "taskkill"))
_HEAD = 600
_MOST = 6
_MOST_OPEN = 12


class _Running(Struct):
    fact: Fact
    id: str
    port: str
    command: str
    yielded: bool = False
    """The client came back early from a command that was not meant to stay: it is forgotten after some turns."""


def running_facts(called: Sequence[Called], turns: Sequence[Turn]) -> list[Fact]:
    """Background commands that were neither stopped nor seen to end, with the id and the port to reach them by."""
    running: list[_Running] = []
    for turn, exchange, reading in called:
        running = [each for each in running[-_MOST_OPEN:] if not _ends(each, exchange, reading)]
        started = _started(exchange, turn, reading)
        if started is not None:
            running.append(started)
    if running:
        notices = [turn for turn in turns if turn.role == "user" and _NOTICE in turn.messages[0].text]
        running = [each for each in running if not any(_reports_end(each, turn) for turn in notices)]
    newest = called[-1][0] if called else 0
    running = [each for each in running if not each.yielded or newest - each.fact.turn <= _RECENT]
    return [each.fact for each in running[-_MOST:]]


def is_behind(exchange: ToolUse, reading: Reading) -> bool:
    """Whether a call leaves its command running and comes back before it has ended."""
    if reading.command is None or exchange.result is None:
        return False
    if reading.arguments.get("run_in_background") is True:
        return not exchange.result.is_error
    head = exchange.result.text[:_HEAD]
    if ("unning " in head or "ackground" in head) and running_id(head):
        return True
    if reading.command.count("&") <= 2 * reading.command.count("&&") + reading.command.count(">&"):
        return False
    if not _BEHIND.search(reading.command):
        return False
    return not any(step.program in _STOPS or step.program == "wait" for step in reading.steps)


def _started(exchange: ToolUse, turn: int, reading: Reading) -> _Running | None:
    if not is_behind(exchange, reading):
        return None
    command, answer = reading.command or "", exchange.result.text[:_HEAD] if exchange.result else ""
    told = _NUMBERED.search(answer)
    number = running_id(answer) or (next(filter(None, told.groups()), "") if told else "")
    port = _PORT.search(command) or _PORT.search(answer)
    place = ", ".join(filter(None, (f"port {port[1]}" if port else "", f"id {number}" if number else "")))
    fact = Fact("command", wording_of(exchange.call), turn, "tool", place, "running", 1, turn, reference_of(exchange))
    yielded = "running with session ID" in answer and not port and not _STAYS.search(command)
    return _Running(fact, number, port[1] if port else "", command, yielded)


def _ends(running: _Running, exchange: ToolUse, reading: Reading) -> bool:
    if exchange.call is None or exchange.result is None:
        return False
    if running.id and running.id in exchange.call.arguments[:_HEAD]:
        if reading.tool.startswith(("kill", "stop")) or reading.tool.endswith(("stop", "kill")):
            return not exchange.result.is_error
        if reading.command is None:
            return _ENDED.search(exchange.result.text[:_HEAD]) is not None
    if reading.command is None or "kill" not in reading.command:
        return False
    return any(step.program in _STOPS and _names(step.words[1:], running) for step in reading.steps)


def _names(words: Sequence[str], running: _Running) -> bool:
    """Whether a command that stops processes means this one: by its id, its port, a part of its name, or a variable."""
    targets = [word for word in words if not word.startswith("-")]
    if not targets:
        return True
    if any(word.startswith(("$", "%")) for word in targets):
        return not running.port or not any(word.isdigit() for word in targets)
    return any(word == running.id or word in running.command or _is_port(word, running.port) for word in targets)


def _is_port(word: str, port: str) -> bool:
    return bool(port) and port in word


def _reports_end(running: _Running, turn: Turn) -> bool:
    text = turn.messages[0].text[:4_000]
    return bool(running.id) and turn.number > running.fact.turn and running.id in text and bool(_ENDED.search(text))
