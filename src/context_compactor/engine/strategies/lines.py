"""Strategies that keep lines in their own words: the most valuable ones, and head and tail of large outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.engine.digests.output import NOISE
from context_compactor.engine.digests.test_runs import PASSING
from context_compactor.engine.layouts import Zone
from context_compactor.engine.options import Option, TextSource
from context_compactor.engine.sentences import prose_lines
from context_compactor.engine.steps import is_import
from context_compactor.engine.tiers import Tier
from context_compactor.engine.view import PlanningView
from context_compactor.facts.kinds import Kind, Voice

# Of a line that only brings in names, this share of its worth counts.
_IMPORT_SHARE = 0.3
_REASONS = {
    Voice.USER: "the user's own words",
    Voice.AGENT: "what the agent concluded",
    Voice.CALL: "what the agent wrote or ran",
    Voice.RESULT: "lines with names that later turns use",
    Voice.FACT: "a fact that outlives its text",
}
# Kinds in which programs print what they are at, and results of which fewer such lines are left as they are.
_RUNS = {Kind.TEST_RUN, Kind.COMMAND, Kind.ERROR_TRACE}
_FEW = 3
_DIFF_HEADER = re.compile(r"--- |\+\+\+ |index [0-9a-f]{7}|(?:new|deleted) file mode |similarity index ")


def uninformative_blocks(source: TextSource) -> frozenset[int]:
    """The blocks that say only that one test passed, how far a download is, or where in a diff a file begins."""
    if source.voice is not Voice.RESULT or source.is_loose:
        return frozenset()
    if source.kind is Kind.DIFF:
        return frozenset(at for at, block in enumerate(source.blocks) if _DIFF_HEADER.match(block.text))
    if source.kind not in _RUNS:
        return frozenset()
    patterns = (NOISE, PASSING) if source.kind is Kind.TEST_RUN else (NOISE,)
    idle = [at for at, block in enumerate(source.blocks) if any(pattern.match(block.text) for pattern in patterns)]
    return frozenset(idle) if len(idle) >= _FEW else frozenset()


@dataclass(frozen=True)
class KeepLines:
    """Offers every block of every source, verbatim, but not a line for each test that passed."""

    name: str = "keep lines"

    def _story_lines(self, view: PlanningView, source: TextSource) -> set[int]:
        """The lines of a folded turn's words that the story tells, by their numbers."""
        if source.voice not in (Voice.USER, Voice.AGENT) or source.is_loose or view.zone_of(source) is not Zone.FOLDED:
            return set()
        prose = set(prose_lines(source.text))
        return {at for at, line in enumerate(source.text.split("\n")) if line.strip() in prose}

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """One option per block, weighed like its source."""
        for source in view.open_sources():
            if source.voice is Voice.THINKING or source.duplicate_of:
                continue
            reason = _REASONS[source.voice]
            told, idle = self._story_lines(view, source), uninformative_blocks(source)
            for at, block in enumerate(source.blocks):
                if at in idle or block.first in told:
                    continue
                if source.voice is Voice.USER and block.text.strip() in view.quoted:
                    continue
                weight = source.weight * (_IMPORT_SHARE if is_import(block.text) else 1.0)
                yield Option(self.name, source.number, Tier.KEEP, block.text, reason, weight, at)


_TELLING = re.compile(r"\b(?:error|fail(?:ed|ure)?|fatal|panic|exception|warning|denied|not found)\b", re.IGNORECASE)
_PLAIN = {Kind.COMMAND, Kind.LOG, Kind.TEST_RUN, Kind.ERROR_TRACE, Kind.API_RESPONSE}


@dataclass(frozen=True)
class TruncateOutputs:
    """The first and last lines of an output over `max_tokens` count for more, and so do those that tell of errors."""

    max_tokens: int = 2000
    keep_lines: int = 6
    boost: float = 3.0
    name: str = "truncate outputs"

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """Options for the telling blocks of each large output."""
        for source in view.open_sources():
            if source.voice is Voice.RESULT and source.kind in _PLAIN and source.tokens > self.max_tokens:
                yield from self._ends(source)

    def _ends(self, source: TextSource) -> Iterator[Option]:
        skipped = uninformative_blocks(source)
        for at, block in enumerate(source.blocks):
            if at in skipped:
                continue
            is_end = block.first < self.keep_lines or block.first + block.lines > source.lines - self.keep_lines
            if is_end or _TELLING.search(block.text):
                reason = "head or tail of a large output" if is_end else "tells of an error"
                yield Option(self.name, source.number, Tier.KEEP, block.text, reason, source.weight * self.boost, at)
