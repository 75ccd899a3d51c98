"""What a summary is about, what it may take, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import agent_sayings, user_sayings
from context_compactor.messages.turn import Turn
from context_compactor.price import Price
from context_compactor.protocols import Model
from context_compactor.report import ModelCall
from context_compactor.summarize.ask import Material
from context_compactor.summarize.evidence import Objection
from context_compactor.summarize.language import language_of
from context_compactor.summarize.quoting import quoted
from context_compactor.summarize.spans import Count, Coverage
from context_compactor.summarize.summary import Summary

# Of a system text, and of the exact lines in an earlier record, a model is shown no more than this.
_SYSTEM_TOKENS = 2_000
_EXCERPT_TOKENS = 4_000
# A summary may have so small a part of the model's window, but so many tokens always.
_WINDOW_PARTS = 8
_LEAST_TOKENS = 300


class Limits(Struct, frozen=True):
    """What one summary may take: its own tokens, those of each request, calls at once and altogether.

    Without `chunk_tokens` the model is shown as much at once as its window takes. `prices` are the user's own, over
    those that are known.
    """

    tokens: int = 1_500
    chunk_tokens: int | None = None
    parallel: int = 4
    calls: int = 100
    prices: dict[str, Price] = {}

    def within(self, model: Model) -> Limits:
        """The same for a model with a small window, most of which is for what it is shown."""
        return structs.replace(self, tokens=min(self.tokens, max(model.window // _WINDOW_PARTS, _LEAST_TOKENS)))


USUAL = Limits()


class Subject(Struct, frozen=True):
    """What a summary is about: the turns, what is known of them, and what stands before them."""

    turns: Sequence[Turn]
    facts: tuple[Fact, ...] = ()
    previous: Summary = Summary()
    system: str = ""
    focus: str = ""
    prefix: tuple[dict[str, Any], ...] = ()
    """The conversation's own messages, when the model has them in its cache: they are sent instead of a copy."""
    beside: dict[str, Any] = {}
    """What the agent sends with them."""

    def before(self, count: Count) -> Material:
        """What a model is shown before the turns."""
        system = "\n".join(quoted(self.system))
        tokens = count(system)
        if tokens > _SYSTEM_TOKENS:
            system = system[: len(system) * _SYSTEM_TOKENS // tokens] + "\n[the rest is left out]"
        return Material("", system if self.system.strip() else "", _shortened(self.previous, count))


def _shortened(previous: Summary, count: Count) -> Summary:
    """An earlier record with the newest of its exact lines: a model need not see all of many."""
    room, kept = _EXCERPT_TOKENS, []
    for excerpt in reversed(previous.excerpts):
        room -= count("\n".join(excerpt.lines)) + 20
        if room < 0:
            break
        kept.append(excerpt)
    return Summary(previous.sections, previous.happened, tuple(reversed(kept)))


class SummaryOutcome(Struct, frozen=True):
    """A summary that may be used or none, and how it came to it. `failed` names requests not to be sent again."""

    summary: Summary | None
    calls: tuple[ModelCall, ...]
    objections: tuple[Objection, ...]
    corrections: tuple[Objection, ...]
    coverage: Coverage
    failed: frozenset[str] = frozenset()


def language_for(subject: Subject) -> str:
    """The language of the user's own words; of the agent's when the user has said too little; nothing when unknown."""
    user = "\n".join(saying.text for saying in user_sayings(subject.turns))
    agent = "\n".join(saying.text for saying in agent_sayings(subject.turns))
    return language_of(user) or language_of(subject.previous.text) or language_of(agent)
