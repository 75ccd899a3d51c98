"""What every line is worth: how often it stood there, whether it carries its wording alone, which names it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from context_compactor.classify.kinds import Kind, Voice
from context_compactor.classify.names import shape_worth
from context_compactor.classify.relevance import NameUse, name_worth
from context_compactor.plan.choose import Piece
from context_compactor.plan.options import Option, Source, token_rate
from context_compactor.plan.sources import REMOVED
from context_compactor.plan.view import View

# A line that the focus is about is worth more, in its wording and in its names, and each token a share of a name.
_FOCUS_FACTOR = 6.0
_FOCUS_WORTH = 0.3
# Half of a heading is put on the line that opens its source; the other half on those that will follow.
_HEADING_SHARE = 0.5
# Shorter lines, such as a closing bracket, stand everywhere; more repeats say no more.
_TELLING_LINE = 12
_OFTEN = 4
# Wording is compared by runs of five words; a text of fewer carries its own only together with its neighbours.
_RUN = 5
_LEAST_INSIDE = 0.25
# What an edit took out is no longer there to be used.
_GONE = 0.3
_WORD = re.compile(r"\w{2,}")
# A name with more words than this beside it is told as well as it can be.
_FEW = 4
_ALONE = 0.2


def weigh(
    view: View, offers: Sequence[Option], names: Sequence[tuple[int, ...]], headings: dict[int, float]
) -> list[Piece]:
    """One piece for each offer."""
    weights = view.weights
    seen = seen_lines(view)
    shares = view.focus.shares([option.text for option in offers]) if view.focus else None
    rates = [token_rate(source) for source in view.sources]
    pieces = []
    for at, option in enumerate(offers):
        text, source = option.text, view.sources[option.source]
        lines = telling_lines(text)
        again = weights.shown_again if source.voice is Voice.RESULT else weights.repeated
        weight = option.weight * (1.0 + again * _times(lines, seen)) * _inside(text) ** weights.inside
        boost = weights.ledger_name if source.voice is Voice.FACT else _company(text)
        if source.voice is Voice.CALL and source.path and text.startswith(REMOVED):
            weight, boost = weight * _GONE, boost * _GONE
        judged = view.factors.get(source.turn, 1.0)
        weight, boost = weight * judged, boost * judged
        if shares is not None:
            weight += (_FOCUS_FACTOR * weight + _FOCUS_WORTH * weights.name) * shares[at]
            boost += _FOCUS_FACTOR * shares[at]
        tokens = len(text) * rates[option.source] + 1.0
        heading = headings.get(option.source, 0.0) * _HEADING_SHARE
        pieces.append(Piece(at, option.source, tokens, weight, names[at], tuple(map(hash, lines)), boost, heading))
    return pieces


def seen_lines(view: View) -> dict[str, int]:
    """In how many sources each line stands."""
    seen: dict[str, int] = {}
    for source in view.sources:
        if source.voice is not Voice.THINKING:
            for line in set(telling_lines(source.text)):
                seen[line] = seen.get(line, 0) + 1
    return seen


def telling_lines(text: str) -> list[str]:
    """The lines of a text that say something, without their indent."""
    return [line for line in map(str.strip, text.split("\n")) if len(line) >= _TELLING_LINE]


def _times(lines: Sequence[str], seen: dict[str, int]) -> float:
    """How often lines stood in other sources too, on average."""
    return sum(min(seen.get(line, 1) - 1, _OFTEN) for line in lines) / len(lines) if lines else 0.0


def _company(text: str) -> float:
    """How much of a name's worth a text carries: one that stands nearly alone says little about it."""
    words = len(_WORD.findall(text))
    return 1.0 if words > _FEW else _ALONE + (1.0 - _ALONE) * words / (_FEW + 1)


def _inside(text: str) -> float:
    """The share of its wording that a text carries without what stands next to it."""
    words = len(text.split())
    return max((words - _RUN + 1) / words, _LEAST_INSIDE) if words else _LEAST_INSIDE


def names_worth(view: View, names_of: Sequence[set[int]]) -> list[float]:
    """What each name is worth: how it was met, how long ago, and what kind of name it is."""
    after = sum(source.tokens for source in view.sources)
    uses = [NameUse() for _ in range(len(view.names))]
    for source, names in zip(view.sources, names_of, strict=True):
        after -= source.tokens
        if source.voice is Voice.THINKING:
            continue
        field = _field(source)
        for name in names:
            use = uses[name]
            setattr(use, field, getattr(use, field) + 1)
            if field == "used" or not use.used:
                use.after = after
    alone, part = view.names.alone, view.weights.name_part
    return [
        name_worth(use, view.weights) * shape_worth(name) * (1.0 if at in alone else part)
        for at, (use, name) in enumerate(zip(uses, view.names.names, strict=True))
    ]


def _field(source: Source) -> str:
    if source.voice is Voice.RESULT:
        return "code" if source.kind is Kind.CODE else "other"
    return "said" if source.voice is Voice.USER else "used"
