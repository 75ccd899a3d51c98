"""Stand for a large result with a digest that fits its kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.apply.digests import digest
from context_compactor.classify.kinds import Kind
from context_compactor.classify.tier import Tier
from context_compactor.plan.options import Option, Source, Voice
from context_compactor.plan.view import View


@dataclass(frozen=True)
class DigestByKind:
    """Offers a digest for the `most` newest results over `min_tokens`: an outline of code, the failures of tests."""

    min_tokens: int = 1000
    most: int = 24
    boost: float = 0.5
    name: str = "digest by kind"

    def propose(self, view: View) -> Iterator[Option]:
        """One option per large result whose digest is shorter."""
        calls = {exchange.number: exchange.call for turn in view.turns for exchange in turn.exchanges}
        large = [source for source in view.open_sources() if self._is_worth_it(source)]
        for source in large[-self.most :]:
            text = digest(source.kind, calls.get(source.exchange), source.text)
            if text:
                weight = source.weight * self.boost
                yield Option(self.name, source.number, Tier.SUMMARIZE, text, f"digest of a {source.kind}", weight)

    def _is_worth_it(self, source: Source) -> bool:
        if source.voice is not Voice.RESULT or source.tokens < self.min_tokens:
            return False
        return not source.duplicate_of and not source.superseded_by and source.kind is not Kind.TALK
