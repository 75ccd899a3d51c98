"""What a summary is about, what it may take, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import agent_sayings, user_sayings
from context_compactor.messages.turn import Turn
from context_compactor.price import Price
from context_compactor.report import ModelCall
from context_compactor.summary.evidence import Objection
from context_compactor.summary.language import language_of
from context_compactor.summary.shape import Prose
from context_compactor.summary.spans import Coverage


class Limits(Struct, frozen=True):
    """What one summary may take: tokens of the prose and of each chunk, calls at once and altogether.

    `prices` are the user's own, over those that are known.
    """

    tokens: int = 1_500
    chunk_tokens: int = 10_000
    parallel: int = 4
    calls: int = 100
    prices: dict[str, Price] = {}


USUAL = Limits()
_STORY_SHARE = 0.08
_LEAST_STORY = 400
_LEAST_TARGET = 1_500


def story_tokens(target: int) -> int:
    """How many tokens of a target prose may take; 0 when so little is left that exact lines serve better.

    Six headings with a line each need about 400, however small the target is.
    """
    return min(max(int(_STORY_SHARE * target), _LEAST_STORY), USUAL.tokens) if target >= _LEAST_TARGET else 0


class Subject(Struct, frozen=True):
    """What a summary is about. `standing` is what the context says without it, `reachable` the ids that it shows.

    `untold` are facts that the context leaves out without a summary too: telling them is welcome and no condition.
    """

    turns: Sequence[Turn]
    facts: tuple[Fact, ...] = ()
    previous: Prose = Prose()
    standing: str = ""
    reachable: frozenset[str] = frozenset()
    focus: str = ""
    untold: frozenset[Fact] = frozenset()
    prefix: tuple[dict[str, Any], ...] = ()
    """The conversation's own messages, when the model has them in its cache: they are sent instead of a copy."""
    beside: dict[str, Any] = {}
    """What the agent sends with them."""


class SummaryOutcome(Struct, frozen=True):
    """Prose that may be used or none, and how it came to it. `failed` names requests that must not be sent again."""

    prose: Prose | None
    calls: tuple[ModelCall, ...]
    objections: tuple[Objection, ...]
    coverage: Coverage
    trimmed: int = 0
    repaired: int = 0
    failed: frozenset[str] = frozenset()


def language_for(subject: Subject) -> str:
    """The language of the user's own words; of the agent's when the user has said too little; nothing when unknown."""
    user = "\n".join(saying.text for saying in user_sayings(subject.turns))
    agent = "\n".join(saying.text for saying in agent_sayings(subject.turns))
    return language_of(user) or language_of(subject.previous.text) or language_of(agent)
