"""Drop what is said again later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.classify.tier import Tier
from context_compactor.plan.options import Option
from context_compactor.plan.view import View


@dataclass(frozen=True)
class DropDuplicates:
    """A result that a later one repeats leaves a pointer to it."""

    name: str = "drop duplicates"

    def propose(self, view: View) -> Iterator[Option]:
        """One option per repeated result."""
        for source in view.open_sources():
            if source.duplicate_of:
                later = view.verdicts.exchanges[source.duplicate_of].ref
                text = (
                    f'[archived {source.ref}: {source.label}; the same text again in {later}. recall("{source.ref}")]'
                )
                yield Option(self.name, source.number, Tier.DROP, text, f"the same text stands in {later}")
