"""Strategies that leave a reference or nothing: repeated and outdated results, old thinking, what can be fetched
again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.engine.options import Option, TextSource
from context_compactor.engine.tiers import Tier
from context_compactor.engine.view import PlanningView
from context_compactor.facts.kinds import Voice, restore_hint


@dataclass(frozen=True)
class DropDuplicates:
    """A result that a later one repeats leaves a pointer to it."""

    name: str = "drop duplicates"

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """One option per repeated result."""
        for source in view.open_sources():
            if source.duplicate_of:
                later = view.verdicts.exchanges[source.duplicate_of].ref
                text = (
                    f'[archived {source.ref}: {source.label}; the same text again in {later}. recall("{source.ref}")]'
                )
                yield Option(self.name, source.number, Tier.DROP, text, f"the same text stands in {later}")


@dataclass(frozen=True)
class DropSuperseded:
    """An outdated read points to the newer state of its file."""

    name: str = "drop superseded reads"

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """One option per outdated read."""
        for source in view.open_sources():
            if source.superseded_by and not source.duplicate_of:
                later = view.verdicts.exchanges[source.superseded_by].ref
                reason = f"a newer state of {source.path or 'the file'} stands in {later}"
                yield Option(self.name, source.number, Tier.DROP, reference_text(source, later), reason)


def reference_text(source: TextSource, later: str) -> str:
    """The line that stands for an outdated read."""
    return f'[archived {source.ref}: {source.label}; a newer state is in {later}. recall("{source.ref}")]'


@dataclass(frozen=True)
class ClearThinking:
    """Old reasoning is left out whole, never shortened: a signed one would be rejected."""

    name: str = "clear thinking"

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """One option per piece of thinking."""
        for source in view.open_sources():
            if source.voice is Voice.THINKING:
                yield Option(self.name, source.number, Tier.DROP, "", "reasoning of a step that is over")


@dataclass(frozen=True)
class ReferenceRefetchable:
    """A result that can be fetched again may be reduced to its reference."""

    name: str = "reference"

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """One option per result; lines and digests may still be added to it."""
        for source in view.open_sources():
            if source.voice is Voice.RESULT and not source.duplicate_of and not source.superseded_by:
                yield Option(self.name, source.number, Tier.REFERENCE, "", self._reason(source))

    def _reason(self, source: TextSource) -> str:
        hint = restore_hint(source.kind)
        return f"can be had again: {hint}" if hint else "its original is archived"
