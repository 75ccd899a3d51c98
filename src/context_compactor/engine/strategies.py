"""Ways to save tokens: each a frozen dataclass with a `name`, its settings as fields, and one method
`propose(view)`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.turns import ToolUse
from context_compactor.engine.actions import is_import, prose_lines
from context_compactor.engine.digests import digest
from context_compactor.engine.digests.outcomes import outcome_mark, outcome_of
from context_compactor.engine.digests.output import NOISE
from context_compactor.engine.digests.test_runs import PASSING
from context_compactor.engine.layouts import FoldOldest, ShortenInPlace, StartFresh, Zone
from context_compactor.engine.options import OUTCOME, Option, TextSource
from context_compactor.engine.relevance import NARROW
from context_compactor.engine.request import CompactionRequest, EngineConfig
from context_compactor.engine.tiers import OVERRIDE_REASONS, Tier, TierOverrides
from context_compactor.engine.view import PlanningView
from context_compactor.facts.kinds import KIND_WEIGHT, Kind, Voice, restore_hint
from context_compactor.protocols import Layout, Strategy
from context_compactor.tokens.counting import MessageCounter


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
                text = f'[archived {source.ref}: {source.label}; a newer state is in {later}. recall("{source.ref}")]'
                reason = f"a newer state of {source.path or 'the file'} stands in {later}"
                yield Option(self.name, source.number, Tier.DROP, text, reason)


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
                hint = restore_hint(source.kind)
                reason = f"can be had again: {hint}" if hint else "its original is archived"
                yield Option(self.name, source.number, Tier.REFERENCE, "", reason)


# Of a line that only brings in names, this share of its worth counts.
_IMPORT_SHARE = 0.3
_REASONS = {
    Voice.USER: "the user's own words",
    Voice.SYSTEM: "a system message within the conversation",
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
            in_story, idle = self._story_lines(view, source), uninformative_blocks(source)
            for at, block in enumerate(source.blocks):
                if at in idle or block.first in in_story:
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
                reason = "head or tail of a large output" if is_end else "mentions an error"
                yield Option(self.name, source.number, Tier.KEEP, block.text, reason, source.weight * self.boost, at)


# Kinds of which single lines do not tell how it ended, with what telling it is worth beside others.
_ENDS = {
    Kind.SUBAGENT: 2.0,
    Kind.TEST_RUN: 1.0,
    Kind.ERROR_TRACE: 1.0,
    Kind.API_RESPONSE: 0.5,
    Kind.SEARCH_RESULT: 0.5,
}
# Outcomes that the lines themselves tell as well: a list of paths, a few hits.
_SAID_BY_LINES = re.compile(r"(?:over )?[\d,]+ files?: |\d hits?\b|no hits|no output")


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
        outcome = outcome_of(use, source.kind, failure, length)
        # The error of a failed call stands in front of its result anyway.
        if outcome and not _SAID_BY_LINES.match(outcome) and not (failure and outcome.startswith(failure.error[:40])):
            reason = f"how the {source.kind} ended"
            # The age of a result counts as it does for its lines, but not how many lines were shown.
            age = source.weight / KIND_WEIGHT[source.kind] * max(source.lines / NARROW, 1.0) ** view.weights.narrow
            weight = self.outcome_weight * _ENDS[source.kind] * age
            yield Option(self.name, source.number, Tier.SUMMARIZE, outcome_mark(outcome), reason, weight, OUTCOME)


# More than any line is worth by itself: the first line of what is to be told in a few lines comes before all others.
_FIRST = 1e6


@dataclass(frozen=True)
class FollowTierOverrides:
    """Leaves one line or nothing of a turn that was lowered, and of one to be shortened at least how it begins."""

    overrides: TierOverrides = field(default_factory=dict)
    name: str = "set tier"

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """One option for each text of a turn that the user decided about."""
        named: set[int] = set()
        for source in view.open_sources():
            tier = self.overrides.get(source.turn) if not source.is_loose else None
            if tier in (Tier.REFERENCE, Tier.DROP):
                is_first = source.turn not in named
                named.add(source.turn)
                text = self._line(view, source) if tier is Tier.REFERENCE and is_first else ""
                yield Option(self.name, source.number, tier, text, OVERRIDE_REASONS[tier], is_all=True)
            elif tier is Tier.SUMMARIZE and source.blocks and source.voice is not Voice.THINKING:
                yield Option(
                    self.name, source.number, Tier.KEEP, source.blocks[0].text, OVERRIDE_REASONS[tier], _FIRST, 0
                )

    def _line(self, view: PlanningView, source: TextSource) -> str:
        """What stands for a turn: who spoke, and how it begins or what it called."""
        turn = next(turn for turn in view.turns if turn.number == source.turn)
        labels = [view.verdicts.exchanges[each.number].label for each in turn.exchanges]
        words = " ".join(turn.messages[0].text.split())[:60]
        return f"{'agent' if turn.role == 'assistant' else turn.role}: {', '.join(labels[:3]) or words}"


DEFAULT_STRATEGIES: tuple[Strategy, ...] = (
    DropDuplicates(),
    DropSuperseded(),
    ClearThinking(),
    TruncateOutputs(),
    DigestByKind(),
    ReferenceRefetchable(),
    KeepLines(),
)

DEFAULT_LAYOUTS: tuple[Layout, ...] = (ShortenInPlace(), FoldOldest(), FoldOldest(tail_factor=0.3), StartFresh())
ONE_MESSAGE_LAYOUTS: tuple[Layout, ...] = (StartFresh(),)


def configure(
    request: CompactionRequest,
    dialect: Dialect,
    counter: MessageCounter,
    strategies: Sequence[Strategy] = (),
    layouts: Sequence[Layout] = (),
) -> EngineConfig:
    """What a compaction as asked works with: our strategies and layouts, and those of the caller."""
    layout = dialect.recommended_layout if request.settings.layout == "auto" else request.settings.layout
    is_one_message = layout == "record"
    return EngineConfig(
        dialect,
        counter,
        DEFAULT_STRATEGIES,
        ONE_MESSAGE_LAYOUTS if is_one_message else DEFAULT_LAYOUTS,
        focus=request.focus,
        tier_overrides=request.tier_overrides or {},
        is_one_message=is_one_message,
        can_recall=request.can_recall,
        custom_strategies=tuple(strategies),
        custom_layouts=tuple(layouts),
    )
