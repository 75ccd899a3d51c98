"""What is told on the way to an answer, and how it ended."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from context_compactor.llm.model import ModelAnswer
from context_compactor.report import Report

Kind = Literal["begun", "kept", "compacting", "compacted", "asked", "again", "answered"]
Ending = Literal["complete", "length", "refusal", "tool_call", "empty", "broken"]


class Told(Struct, frozen=True):
    """A step on the way to an answer. `messages` is how long the history is by now, where that is known."""

    kind: Kind
    words: str = ""
    report: Report | None = None
    messages: int = 0


class Outcome(Struct, frozen=True):
    """How an answer ended, and a word about it unless all is well."""

    ending: Ending
    note: str = ""


def outcome_of(answer: ModelAnswer) -> Outcome:
    """How an answer ended that came to its end."""
    if not answer.text.strip():
        return Outcome("empty", _nothing(answer))
    match answer.stop:
        case "length":
            return Outcome("length", "The answer was cut off: it reached the most tokens an answer may have.")
        case "refusal":
            return Outcome("refusal", "The model refused.")
        case "tool_call":
            return Outcome("tool_call", "The model wanted to use a tool, and there are none in a chat.")
    return Outcome("complete")


def _nothing(answer: ModelAnswer) -> str:
    if answer.stop == "refusal":
        return "The model refused to answer. Try: other words, or another model."
    if answer.stop == "tool_call":
        return "The model wanted to use a tool, and there are none in a chat. Try: ask it to answer in words."
    if answer.stop == "length":
        return "The model thought until its answer had no room left. Try: a larger reserve_output_tokens."
    return "The model answered nothing."
