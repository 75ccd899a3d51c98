"""How much a text is worth to the agent that goes on: one small table of weights, and what multiplies them.

A weight is the worth of one token. The numbers were set by hand from how often agents really came back to such
text, and checked on transcripts of several agents; see docs/why/lines.md.
"""

from __future__ import annotations

from math import exp, log2

from msgspec import Struct, structs

from context_compactor.classify.kinds import Kind

VOICE_WEIGHT = {"user": 8.0, "agent": 3.0, "thinking": 0.0, "call": 20.0, "result": 1.0, "fact": 3.0}

KIND_WEIGHT = {
    Kind.CODE: 9.0,
    Kind.TEST_RUN: 0.5,
    Kind.API_RESPONSE: 1.0,
    Kind.SEARCH_RESULT: 2.0,
    Kind.ERROR_TRACE: 0.8,
    Kind.SUBAGENT: 6.0,
    Kind.LOG: 0.4,
    Kind.DIFF: 5.0,
    Kind.LISTING: 0.3,
    Kind.COMMAND: 2.0,
    Kind.WEB_PAGE: 2.0,
    Kind.TALK: 3.0,
}


class Weights(Struct, frozen=True):
    """The exchange rates of the choice; every field is a plain number that can be read and changed."""

    name: float = 400.0
    """What a name that the agent used once, now, is worth in tokens of weight 1."""
    lean: float = 0.2
    """How fast that grows as less of the history may stay."""
    name_again: float = 0.1
    """The share of that for a name that stands in the context once already."""
    floor: float = 0.25
    """The share of its worth that the oldest text keeps."""
    bend: float = 4.0
    """How fast worth fades with distance."""
    name_floor: float = 0.5
    """The same two for names, which fade less."""
    name_bend: float = 3.0
    superseded: float = 0.3
    """The share left to a file's text when a later read or edit has replaced it."""
    under_edit: float = 1.5
    """The latest text of a file that the agent has changed."""
    repeated: float = 1.0
    """How much more a line of the agent is worth when the agent has written it before."""
    neighbour: float = 1.3
    """How much more a block is worth when the one next to it is kept."""
    long_talk: float = 150.0
    """Tokens from which on more words of one speaker are worth less and less."""
    heading: float = 8.0
    """Tokens that the first block of a source costs on top, for its heading."""


def lean(weights: Weights, share: float) -> Weights:
    """Names count for more as the share of the history that may stay shrinks."""
    factor = min(max((0.25 / max(share, 0.01)) ** weights.lean, 0.7), 4.0)
    return structs.replace(weights, name=weights.name * factor)


def fade(age: float, floor: float, bend: float) -> float:
    """The factor for a text with `age` from 0 (now) to 1 (the beginning)."""
    return floor + (1.0 - floor) * exp(-bend * age)


def text_weight(
    voice: str, kind: Kind, age: float, tokens: int, *, is_superseded: bool, is_under_edit: bool, weights: Weights
) -> float:
    """What one token of a text is worth."""
    worth = VOICE_WEIGHT[voice] * fade(age, weights.floor, weights.bend)
    if voice in ("user", "agent"):
        return worth * min(1.0, weights.long_talk / max(tokens, 1))
    if voice == "result":
        worth *= KIND_WEIGHT[kind]
        if is_superseded:
            return worth * weights.superseded
        return worth * weights.under_edit if is_under_edit else worth
    return worth


_SHOWN = (0.0, 0.12, 0.35, 0.7, 0.8, 0.9, 1.0)


def name_worth(used: int, shown: int, age: float, weights: Weights) -> float:
    """What covering a name is worth: how often the agent used it itself or was shown it, and how long ago."""
    times = log2(1 + used) if used else _SHOWN[min(shown, 6)]
    return weights.name * times * fade(age, weights.name_floor, weights.name_bend)
