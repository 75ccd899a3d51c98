"""Failed attempts. The text they stood in may leave the context; command and error stay for ever."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from context_compactor.classify.calls import Reading, is_own, read_call
from context_compactor.classify.outcomes import has_failed, is_refusal
from context_compactor.classify.references import reference_of
from context_compactor.classify.telling import telling_lines
from context_compactor.facts.fact import Fact
from context_compactor.messages.message import ToolCall
from context_compactor.messages.turn import ToolUse, Turn

COMMAND_LENGTH = 160
_MARK = "[failed: "
_SOUGHT_LENGTH = 70
_LINE_BREAK = re.compile(r"[ \t\r]*\n\s*")
_CHANGES_FOLDER = re.compile(r"cd [^;&|\n]{1,200}(?:&&|;)\s*")
_RUNNING = re.compile(r"(?:running|background)\b[^\n]{0,40}\bID:? (\w+)", re.IGNORECASE)
_BACKGROUND_KEYS = ("session_id", "bash_id", "shell_id", "task_id", "process_id")
_OLD_TEXT = ("old_string", "old_str", "old_text", "oldText", "search")


class Failure(Struct, frozen=True):
    """One failed attempt: what was tried, and what it answered. `turn` is 0 when it is not known."""

    command: str
    error: str
    exchange: int
    turn: int = 0
    denied: bool = False
    ref: str = ""


# A client says so of calls that it never ran because another one failed.
_NOT_RUN = "Sibling tool call errored"


def failure_of(exchange: ToolUse, turn: int = 0) -> Failure | None:
    """The failure an exchange ended in, if it did."""
    result = None if is_own(exchange.call) or exchange.is_lost else exchange.result
    known = marked_error(result.text) if result else ""
    if result is None or not (known or has_failed(exchange.call, result)) or _NOT_RUN in result.text[:200]:
        return None
    command = wording_of(exchange.call)
    error = known or telling_lines(result.text)
    return Failure(command, error, exchange.number, turn, is_refusal(result.text), reference_of(exchange))


def failed_mark(error: str) -> str:
    """The line that heads a failed result which was shortened, so that it is still known as one."""
    return f"{_MARK}{error}]"


def marked_error(text: str) -> str:
    """The error that such a line tells."""
    return text[len(_MARK) : text.find("]\n")] if text.startswith(_MARK) and "]\n" in text else ""


def find_failures(turns: Iterable[Turn]) -> list[Failure]:
    """Every failed attempt of a history, in order; one in the background is named by the command it began with."""
    found: list[Failure] = []
    started: dict[str, str] = {}
    for turn in turns:
        for exchange in turn.exchanges:
            failure = failure_of(exchange, turn.number)
            if failure:
                begun = started.get(_background_id(exchange.call), "")
                found.append(structs.replace(failure, command=f"{failure.command} (of: {begun})") if begun else failure)
            else:
                _note_background(exchange, started)
    return found


def _note_background(exchange: ToolUse, started: dict[str, str]) -> None:
    answer = exchange.result.text[:300] if exchange.result else ""
    if "ID" in answer or "id" in answer:
        running = _RUNNING.search(answer)
        if running and exchange.call and read_call(exchange.call).command is not None:
            started[running[1]] = wording_of(exchange.call)


def _background_id(call: ToolCall | None) -> str:
    values = read_call(call).arguments if call else {}
    return next((str(values[key]) for key in _BACKGROUND_KEYS if values.get(key)), "")


def merge_failures(failures: Sequence[Failure]) -> list[Fact]:
    """One fact for each different failure, with how often and when it was seen, in the order of the first."""
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((failure.command, failure.error), []).append(failure)
    return [_merged(group) for group in groups.values()]


def _merged(group: list[Failure]) -> Fact:
    first, last = group[0], group[-1]
    status = "denied" if last.denied else ""
    return Fact("failure", first.command, first.turn, "tool", first.error, status, len(group), last.turn, last.ref)


def wording_of(call: ToolCall | None) -> str:
    """A call on one line, as the agent would recognise it: the command as typed, or the tool and its arguments."""
    if call is None:
        return "(result without its call)"
    reading = read_call(call)
    if reading.command is not None:
        return _one_line(reading.command.strip(), _room_for(reading.command))
    return _arguments(call, reading)


def _room_for(command: str) -> int:
    """A change of folder in front says little: what follows it gets its own room."""
    moved = _CHANGES_FOLDER.match(command.lstrip()[:300])
    return COMMAND_LENGTH + (moved.end() if moved else 0)


def _arguments(call: ToolCall, reading: Reading) -> str:
    if not reading.paths or not reading.arguments:
        return _one_line(f"{call.name} {call.arguments}".rstrip(), COMMAND_LENGTH)
    named = _one_line(f"{call.name} {', '.join(reading.paths[:3])}", COMMAND_LENGTH)
    old = next((reading.arguments[key] for key in _OLD_TEXT if isinstance(reading.arguments.get(key), str)), "")
    sought = _one_line(old[:400].strip(), _SOUGHT_LENGTH)
    return f"{named}: {sought}" if sought else named


def _one_line(text: str, limit: int) -> str:
    line = _LINE_BREAK.sub(" ", text[: limit * 2])
    return line if len(line) <= limit else line[: limit - 1] + "…"
