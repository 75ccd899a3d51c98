"""Turns as a model that summarizes is shown them: material between marks, nothing of which can pass for an order.

What is ours stands in the first column; every line of somebody else is indented by one blank, as in the record. The
mark is made from the text itself and does not occur in it, so no text can close its own frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from msgspec import Struct

from context_compactor.classify.calls import describe
from context_compactor.classify.failures import failure_of
from context_compactor.messages.message import Media, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn
from context_compactor.plan.sources import call_body

_MARK_LENGTH = 8
_SPEAKERS = {"assistant": "agent", "tool": "agent"}


class Telling(Struct, frozen=True):
    """One turn as it is shown: a heading of ours and a body. Reasoning is not told; `reasoning` is its length."""

    turn: int
    heading: str
    body: str
    reasoning: int = 0


def tell_turns(turns: Sequence[Turn]) -> list[Telling]:
    """Every turn but the instructions, which are never folded."""
    return [_tell(turn) for turn in turns if not turn.is_instruction]


def _tell(turn: Turn) -> Telling:
    failed = {each.result.call_id for each in turn.exchanges if each.result and failure_of(each, turn.number)}
    # Several calls are answered in any order: then each answer says what it answers.
    several = len(turn.exchanges) > 1
    names = {each.call.id: describe(each.call) if several else each.call.name for each in turn.exchanges if each.call}
    lines: list[str] = []
    reasoning = 0
    for _, _, _, part in turn.parts():
        if isinstance(part, Thinking):
            reasoning += len(part.text)
        else:
            lines.extend(_part_lines(part, names, failed))
    speaker = _SPEAKERS.get(turn.role, turn.role)
    return Telling(turn.number, f"{reference_id('turn', turn.number)} {speaker}", "\n".join(lines), reasoning)


def _part_lines(part: Part, names: dict[str, str], failed: set[str]) -> Iterator[str]:
    if isinstance(part, Media):
        yield f"[{part.kind}{f' {escape(part.title)}' if part.title else ''}]"
    elif isinstance(part, ToolCall):
        yield f"[calls {escape(part.name)}]"
        yield from quoted(call_body(part))
    elif isinstance(part, ToolResult):
        name = escape(names.get(part.call_id, "a call"))
        yield f"[{name} failed]" if part.call_id in failed else f"[{name} answered]"
        yield from quoted(part.text)
    elif isinstance(part, (Text, Opaque)):
        yield from quoted(part.text)


def quoted(text: str) -> Iterator[str]:
    """The lines of somebody else's text, each behind a blank."""
    return (f" {escape(line)}" for line in text.split("\n"))


def escape(line: str) -> str:
    """A line whose signs mean nothing to a tokenizer or a terminal: no control tokens, no half characters."""
    whole = line.encode("utf-8", "replace").decode().replace("<|", "< |").replace("|>", "| >")
    return "".join(sign if sign.isprintable() or sign == "\t" else " " for sign in whole)


def mark_for(text: str) -> str:
    """A mark that does not occur in a text."""
    mark = text
    while True:
        mark = sha256(mark.encode("utf-8", "replace")).hexdigest()
        if mark[:_MARK_LENGTH] not in text:
            return mark[:_MARK_LENGTH]


def framed(text: str, mark: str, what: str) -> str:
    """A text between two lines that carry the mark."""
    return f"=== {mark} {what} begins ===\n{text}\n=== {mark} {what} ends ==="
