"""Outputs that are too long for any context are cut when they come; the original is archived first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from context_compactor.apply.cut_output import MOST_TOKENS, cut_output
from context_compactor.archive.archive import Original
from context_compactor.archive.gather import result_original
from context_compactor.flow import read_scene
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.boundaries import repair
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.message import Message, ToolResult
from context_compactor.messages.turn import ToolUse


class Cut(Struct, frozen=True):
    """A message with a shorter output in it. `at` is its place among the messages of the context."""

    at: int
    raw: dict[str, Any]
    originals: tuple[Original, ...]


def is_too_long(message: Message, counter: MessageCounter, most: int) -> bool:
    """Whether a message holds an output of more tokens than `most`, judged without counting where that is clear."""
    return any(len(part.text) > most and counter.text(part.text) > most for part in _plain_results(message))


def _plain_results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult) and not part.media]


def cut_outputs(
    messages: Sequence[Message], places: Sequence[int], dialect: Dialect, counter: MessageCounter, most: int
) -> list[Cut]:
    """The messages at these places with their long outputs cut; the ids are those of the whole conversation."""
    scene = read_scene(repair(messages, dialect)[0], dialect)  # ids are those of the history a compaction sees
    # The last one under a call's id is the one that has just come.
    answered = [(each.result, each) for turn in scene.turns for each in turn.exchanges if each.result]
    exchanges = {result.call_id: exchange for result, exchange in answered}
    found: list[Cut] = []
    for at in places:
        message = messages[at]
        edits: dict[int, str | None] = {}
        originals: list[Original] = []
        for index, part in enumerate(message.parts):
            exchange = exchanges.get(part.call_id) if isinstance(part, ToolResult) and not part.media else None
            if exchange is None or not isinstance(part, ToolResult) or counter.text(part.text) <= most:
                continue
            verdict = scene.verdicts.exchanges[exchange.number]
            edits[index] = cut_output(part.text, counter.text(part.text), verdict, min(most, MOST_TOKENS))
            originals.append(result_original(_with(exchange, part), verdict))
        edited = dialect.edit(message, edits) if edits else None
        if edited is not None:
            found.append(Cut(at, edited.raw, tuple(originals)))
    return found


def _with(exchange: ToolUse, result: ToolResult) -> ToolUse:
    return ToolUse(exchange.number, exchange.call, result)
