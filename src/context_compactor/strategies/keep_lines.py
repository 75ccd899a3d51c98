"""Keep the lines that are worth most, in their own words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.classify.tier import Tier
from context_compactor.engine.prose import prose_lines
from context_compactor.plan.options import Option, Source, Voice
from context_compactor.plan.view import View
from context_compactor.plan.zones import Zone

_REASONS = {
    Voice.USER: "the user's own words",
    Voice.AGENT: "what the agent concluded",
    Voice.CALL: "what the agent wrote or ran",
    Voice.RESULT: "lines with names that later turns use",
    Voice.FACT: "a fact that outlives its text",
}


@dataclass(frozen=True)
class KeepLines:
    """Offers every block of every source, verbatim."""

    name: str = "keep lines"

    def _told_lines(self, view: View, source: Source) -> set[int]:
        """The lines of a folded turn's words that the story tells, by their numbers."""
        if source.voice not in (Voice.USER, Voice.AGENT) or source.is_loose or view.zone_of(source) is not Zone.FOLDED:
            return set()
        prose = set(prose_lines(source.text))
        return {at for at, line in enumerate(source.text.split("\n")) if line.strip() in prose}

    def propose(self, view: View) -> Iterator[Option]:
        """One option per block, weighed like its source."""
        for source in view.open_sources():
            if source.voice is Voice.THINKING or source.duplicate_of:
                continue
            reason = _REASONS[source.voice]
            told = self._told_lines(view, source)
            for at, block in enumerate(source.blocks):
                if block.first in told:
                    continue
                if source.voice is Voice.USER and block.text.strip() in view.quoted:
                    continue
                yield Option(self.name, source.number, Tier.KEEP, block.text, reason, source.weight, at)
