"""What the user has decided about a turn: a few lines of it, a reference, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from context_compactor.classify.kinds import Voice
from context_compactor.classify.steer import REASONS, Steers
from context_compactor.classify.tier import Tier
from context_compactor.plan.options import Option, Source
from context_compactor.plan.view import View

# More than any line is worth by itself: the first line of what is to be told in a few lines comes before all others.
_FIRST = 1e6


@dataclass(frozen=True)
class FollowSteers:
    """Leaves one line or nothing of a turn that was lowered, and of one to be shortened at least how it begins."""

    steers: Steers = field(default_factory=dict)
    name: str = "steer"

    def propose(self, view: View) -> Iterator[Option]:
        """One option for each text of a steered turn."""
        named: set[int] = set()
        for source in view.open_sources():
            tier = self.steers.get(source.turn) if not source.is_loose else None
            if tier in (Tier.REFERENCE, Tier.DROP):
                is_first = source.turn not in named
                named.add(source.turn)
                text = self._line(view, source) if tier is Tier.REFERENCE and is_first else ""
                yield Option(self.name, source.number, tier, text, REASONS[tier], is_all=True)
            elif tier is Tier.SUMMARIZE and source.blocks and source.voice is not Voice.THINKING:
                yield Option(self.name, source.number, Tier.KEEP, source.blocks[0].text, REASONS[tier], _FIRST, 0)

    def _line(self, view: View, source: Source) -> str:
        """What stands for a turn: who spoke, and how it begins or what it called."""
        turn = next(turn for turn in view.turns if turn.number == source.turn)
        labels = [view.verdicts.exchanges[each.number].label for each in turn.exchanges]
        words = " ".join(turn.messages[0].text.split())[:60]
        return f"{'agent' if turn.role == 'assistant' else turn.role}: {', '.join(labels[:3]) or words}"
