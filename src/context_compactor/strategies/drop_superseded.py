"""Leave only a reference for a file that was read again or rewritten since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.classify.tier import Tier
from context_compactor.plan.options import Option, Source
from context_compactor.plan.view import View


@dataclass(frozen=True)
class DropSuperseded:
    """An outdated read points to the newer state of its file."""

    name: str = "drop superseded reads"

    def propose(self, view: View) -> Iterator[Option]:
        """One option per outdated read."""
        for source in view.open_sources():
            if source.superseded_by and not source.duplicate_of:
                later = view.verdicts.exchanges[source.superseded_by].ref
                reason = f"a newer state of {source.path or 'the file'} stands in {later}"
                yield Option(self.name, source.number, Tier.DROP, reference_text(source, later), reason)


def reference_text(source: Source, later: str) -> str:
    """The line that stands for an outdated read."""
    return f'[archived {source.ref}: {source.label}; a newer state is in {later}. recall("{source.ref}")]'
