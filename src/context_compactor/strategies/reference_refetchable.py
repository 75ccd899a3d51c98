"""Leave one line for what can be fetched again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.classify.kinds import Voice, restore_hint
from context_compactor.classify.tier import Tier
from context_compactor.plan.options import Option, Source
from context_compactor.plan.view import View


@dataclass(frozen=True)
class ReferenceRefetchable:
    """A result that can be fetched again may be reduced to its reference."""

    name: str = "reference"

    def propose(self, view: View) -> Iterator[Option]:
        """One option per result; lines and digests may still be added to it."""
        for source in view.open_sources():
            if source.voice is Voice.RESULT and not source.duplicate_of and not source.superseded_by:
                yield Option(self.name, source.number, Tier.REFERENCE, "", self._reason(source))

    def _reason(self, source: Source) -> str:
        hint = restore_hint(source.kind)
        return f"can be had again: {hint}" if hint else "its original is archived"
