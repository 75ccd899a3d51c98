"""How much a text is worth to the agent that goes on: one small table of weights, and what multiplies them."""

from __future__ import annotations

from math import log2, sqrt

from msgspec import Struct, structs

from context_compactor.facts.kinds import KIND_WEIGHT, Kind

VOICE_WEIGHT = {"user": 8.0, "agent": 3.0, "system": 3.0, "thinking": 0.0, "call": 80.0, "result": 1.0, "fact": 2.0}


class Weights(Struct, frozen=True):
    """The exchange rates of the choice; every field is a plain number that can be read and changed."""

    name: float = 1200.0
    """What a name that the agent used once, now, is worth in tokens of weight 1."""
    lean: float = 0.2
    """How fast that grows as less of the history may stay."""
    name_again: float = 0.03
    """The share of that for a name that stands in the context once already."""
    name_part: float = 0.3
    """The share of that for a name that was met only as a part of longer ones."""
    ledger_name: float = 0.25
    """The share of that for a name in a ledger line, where it stands without the words around it."""
    said: float = 1.2
    """What it adds that the user named it: that stays in force, however long ago it was."""
    fresh: float = 1.5
    """How much more a name is worth that the agent was only just shown."""
    reach: float = 2000.0
    """Tokens of distance after which text is worth clearly less."""
    bend: float = 0.6
    """How fast worth fades with distance beyond that."""
    name_bend: float = 0.3
    """The same for names, which fade less."""
    own_age: float = 0.3
    """How much the age of a file's text counts beside the time since the file was last touched."""
    look: float = 0.1
    """The share left to the arguments of a call that only asked for something."""
    superseded: float = 0.3
    """The share left to a file's text when a later read or edit has replaced it."""
    under_edit: float = 1.5
    """The latest text of a file that the agent has changed."""
    repeated: float = 1.5
    """How much more a line of the agent is worth each time it stood there before."""
    shown_again: float = 4.0
    """The same for a line of a result: what is looked at again and again is what the work is about."""
    narrow: float = 0.4
    """How much less a line of a result is worth the more lines were shown with it."""
    inside: float = 0.4
    """How much less a line is worth that is too short to carry its wording alone."""
    neighbour: float = 1.7
    """How much more a line is worth when the one next to it is kept."""
    long_talk: float = 150.0
    """Tokens from which on more words of one speaker are worth less and less."""
    heading: float = 0.1
    """Tokens for each character of a source's label that its first line costs on top, for the heading."""
    label: float = 80.0
    """The most characters of a label."""


_LABEL_BY_SHARE = 400
_LEAST_LABEL = 16.0


def weights_for_share(weights: Weights, share: float) -> Weights:
    """Names count for more, and headings say less, as the share of the history that may stay shrinks."""
    factor = min(max((0.25 / max(share, 0.01)) ** weights.lean, 0.7), 4.0)
    label = min(max(_LABEL_BY_SHARE * share, _LEAST_LABEL), weights.label)
    return structs.replace(weights, name=weights.name * factor, label=label)


def share_factor(share: float) -> float:
    """How much of its usual share everything gets that is not chosen line by line: less, the less may stay."""
    return min(sqrt(share / 0.25), 1.0)


def decay(after: float, reach: float, bend: float) -> float:
    """The factor for a text with so many tokens after it."""
    return float((1.0 + after / reach) ** -bend)


# Lines that a narrow look shows: whoever asks for these knows what for.
NARROW = 60


def text_weight(
    voice: str,
    kind: Kind,
    after: int,
    tokens: int,
    lines: int,
    *,
    is_superseded: bool,
    is_under_edit: bool,
    is_look: bool = False,
    weights: Weights,
) -> float:
    """What one token of a text is worth."""
    worth = VOICE_WEIGHT[voice] * decay(after, weights.reach, weights.bend)
    if voice in ("user", "agent"):
        return worth * min(1.0, weights.long_talk / max(tokens, 1))
    if voice == "result":
        worth *= KIND_WEIGHT[kind] * min(float((NARROW / max(lines, 1)) ** weights.narrow), 1.5)
        if is_superseded:
            return worth * weights.superseded
        return worth * weights.under_edit if is_under_edit else worth
    return worth * weights.look if is_look else worth


class NameUse:
    """How a name was met: used by the agent, said by the user, shown in code or elsewhere, tokens since the last."""

    __slots__ = ("after", "code", "other", "said", "used")

    def __init__(self) -> None:
        self.used = self.said = self.code = self.other = 0
        self.after = 0


# What a name is worth that the agent was shown so many times and never used, beside one that it used once.
_IN_CODE = (0.0, 0.2, 0.5, 0.8, 0.8, 1.0)
_ELSEWHERE = (0.0, 0.04, 0.1, 0.2, 0.25, 0.3)
_JUST_NOW = 700.0
_ONLY_SAID = 0.4


def name_worth(use: NameUse, weights: Weights) -> float:
    """What covering a name is worth: who used it, how often, and how long ago."""
    if use.used:
        times = log2(1 + use.used)
    else:
        times = _IN_CODE[min(use.code + use.other, 5)] if use.code else _ELSEWHERE[min(use.other, 5)]
        times *= 1.0 + weights.fresh * decay(use.after, _JUST_NOW, 2.0)
    said = weights.said * (1.0 if times else _ONLY_SAID) if use.said else 0.0
    return weights.name * (times * decay(use.after, weights.reach, weights.name_bend) + said)
