"""The strategy that offers a digest of a large result, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.dialects.turns import ToolUse
from context_compactor.engine.digests import digest
from context_compactor.engine.digests.outcomes import outcome_mark, outcome_of
from context_compactor.engine.layouts import Zone
from context_compactor.engine.options import OUTCOME, Option, TextSource
from context_compactor.engine.relevance import NARROW
from context_compactor.engine.tiers import Tier
from context_compactor.engine.view import PlanningView
from context_compactor.facts.kinds import KIND_WEIGHT, Kind, Voice

# Kinds of which single lines do not tell how it ended, with what telling it is worth beside others.
_ENDS = {
    Kind.SUBAGENT: 2.0,
    Kind.TEST_RUN: 1.0,
    Kind.ERROR_TRACE: 1.0,
    Kind.API_RESPONSE: 0.5,
    Kind.SEARCH_RESULT: 0.5,
}
# Outcomes that the lines themselves tell as well: a list of paths, a few hits.
_PLAIN = re.compile(r"(?:over )?[\d,]+ files?: |\d hits?\b|no hits|no output")


@dataclass(frozen=True)
class DigestByKind:
    """Offers for results over `min_tokens` how they ended, and a digest for the `most` newest of the other kinds.

    A result that is shortened where it stands is told from `min_placed` tokens on. `outcome_weight` is what a token of
    an outcome is worth in a result that was only just shown: more than any line of the result itself.
    """

    min_tokens: int = 1000
    min_placed: int = 100
    most: int = 24
    boost: float = 0.5
    outcome_weight: float = 300.0
    outcome_length: int = 300
    name: str = "digest by kind"

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """One option per large result that has an outcome, or whose digest is shorter."""
        uses = {exchange.number: exchange for turn in view.turns for exchange in turn.exchanges}
        results = [source for source in view.open_sources() if self._is_result(source)]
        for source in results:
            if source.kind in _ENDS and source.exchange in uses and source.tokens >= self._least(view, source):
                yield from self._outcome(view, source, uses[source.exchange])
        large = [source for source in results if source.kind not in _ENDS and source.tokens >= self.min_tokens]
        for source in large[-self.most :]:
            use = uses.get(source.exchange)
            text = digest(source.kind, use.call if use else None, source.text)
            if text:
                weight = source.weight * self.boost
                yield Option(self.name, source.number, Tier.SUMMARIZE, text, f"digest of a {source.kind}", weight)

    def _is_result(self, source: TextSource) -> bool:
        if source.voice is not Voice.RESULT or source.kind is Kind.TALK:
            return False
        return not source.duplicate_of and not source.superseded_by

    def _least(self, view: PlanningView, source: TextSource) -> int:
        return self.min_placed if view.zone_of(source) is Zone.PLACED else self.min_tokens

    def _outcome(self, view: PlanningView, source: TextSource, use: ToolUse) -> Iterator[Option]:
        failure = view.verdicts.exchanges[source.exchange].failure
        length = self.outcome_length // (2 if source.kind is Kind.API_RESPONSE else 1)
        told = outcome_of(use, source.kind, failure, length)
        # The error of a failed call stands in front of its result anyway.
        if told and not _PLAIN.match(told) and not (failure and told.startswith(failure.error[:40])):
            reason = f"how the {source.kind} ended"
            # The age of a result counts as it does for its lines, but not how many lines were shown.
            age = source.weight / KIND_WEIGHT[source.kind] * max(source.lines / NARROW, 1.0) ** view.weights.narrow
            weight = self.outcome_weight * _ENDS[source.kind] * age
            yield Option(self.name, source.number, Tier.SUMMARIZE, outcome_mark(told), reason, weight, OUTCOME)
