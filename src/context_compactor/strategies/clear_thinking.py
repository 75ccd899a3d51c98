"""Clear the thinking of steps that are over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.classify.kinds import Voice
from context_compactor.classify.tier import Tier
from context_compactor.plan.options import Option
from context_compactor.plan.view import View


@dataclass(frozen=True)
class ClearThinking:
    """Old reasoning is left out whole, never shortened: a signed one would be rejected."""

    name: str = "clear thinking"

    def propose(self, view: View) -> Iterator[Option]:
        """One option per piece of thinking."""
        for source in view.open_sources():
            if source.voice is Voice.THINKING:
                yield Option(self.name, source.number, Tier.DROP, "", "reasoning of a step that is over")
