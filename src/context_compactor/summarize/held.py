"""A summary that a model wrote ahead of a compaction, and whether what it was written from is still there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256

from msgspec import Struct, structs

from context_compactor.messages.jsontext import json_bytes
from context_compactor.messages.record import STANDING, TASK, Record, render
from context_compactor.messages.turn import Turn
from context_compactor.summarize.summary import Summary

# A summary of less than this share of what is folded cannot stand for it.
_LEAST_COVERED = 0.5
# Statuses that say how things stood at one time.
_OVERTAKEN = (
    "",
    "doing",
    "next",
    "blocked",
    "asked",
    "running",
    "open",
    "uncommitted",
    "mode",
    "phase",
    "git",
)


class Held(Struct, frozen=True, kw_only=True):
    """A summary of the turns of these numbers.

    `base` stands for everything it was written from; `tokens` is how large the context was.
    """

    base: str
    turns: tuple[int, ...]
    summary: Summary
    model: str
    tokens: int = 0


def base_of(turns: Sequence[Turn], numbers: Collection[int], past: Record | None, asked: str) -> str:
    """The same for the same turns behind the same record, asked for in the same way; "" when one of them is gone."""
    told = [turn for turn in turns if turn.number in numbers]
    if len(told) != len(numbers):
        return ""
    digest = sha256(asked.encode("utf-8", "replace"))
    digest.update(render(past).encode("utf-8", "replace") if past else b"")
    for turn in told:
        digest.update(f"\n{turn.number}\n".encode())
        digest.update(b"\n".join(json_bytes(message.raw) for message in turn.messages))
    return digest.hexdigest()[:32]


def objection_to_swap(held: Held, folded: dict[int, int], focus: str) -> str:
    """Why a summary may not stand for these turns, given with their tokens; "" when it may."""
    if focus:
        return "it was written without the focus that is wanted"
    if not folded.keys() >= set(held.turns):
        return "it tells of turns that stay"
    share = sum(folded[number] for number in held.turns) / max(sum(folded.values()), 1)
    return "" if share >= _LEAST_COVERED else f"it tells only {share:.0%} of what is folded"


def as_of_then(summary: Summary) -> Summary:
    """A summary with turns behind it that it does not tell: how things stood then is left out, what was done stays."""
    standing = tuple(entry for entry in summary.sections.get(STANDING, ()) if entry.status not in _OVERTAKEN)
    task = tuple(entry for entry in summary.sections.get(TASK, ()) if entry.text.startswith('"'))
    sections = summary.sections | {STANDING: standing, TASK: task}
    return structs.replace(summary, sections={title: entries for title, entries in sections.items() if entries})
