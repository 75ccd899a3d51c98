"""From a new context to its result: whether it may be used, and the report of everything it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Any, Protocol

from msgspec import Struct, structs

from context_compactor.dialects.messages import Message
from context_compactor.dialects.record import Record
from context_compactor.dialects.turns import REFERENCE_PATTERN, reference_id
from context_compactor.engine import report_parts
from context_compactor.engine.compact import CompactedContext, EngineConfig, ParsedContext
from context_compactor.engine.decisions import explain_decisions
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import FloorPart, Report
from context_compactor.engine.report_parts import context_text
from context_compactor.engine.request import CompactionRequest, Goal
from context_compactor.engine.tiers import Tier, TierOverrides, unanswered_turns
from context_compactor.engine.truncation import INSTRUCTIONS
from context_compactor.tokens.budget import Usage
from context_compactor.tokens.counting import MessageCounter, message_bytes
from context_compactor.tokens.triggers import Trigger


class PreparedRequest(Struct, frozen=True):
    """What is known about a compaction before it has done anything."""

    ask: CompactionRequest
    trigger: Trigger
    usage: Usage
    counter: MessageCounter
    repairs: tuple[str, ...]
    session_id: str
    location: str
    began: float
    created_at: str
    archived: Callable[[], AbstractSet[str]] | None = None
    """The ids under which earlier compactions have archived originals; None where that is not known."""

    def head(self) -> dict[str, Any]:
        """The fields every report begins with."""
        return {
            "trigger": self.trigger.kind,
            "level": self.trigger.level.value if self.trigger.level else None,
            "session_id": self.session_id,
            "created_at": self.created_at,
            "duration_ms": round((time.perf_counter() - self.began) * 1000, 1),
            "repairs": self.repairs,
        }


class CompactionResult(Struct, frozen=True):
    """An outcome with its report."""

    outcome: CompactedContext
    report: Report
    decisions: tuple[Decision, ...]


class Summarizer(Protocol):
    """Whoever writes the record of a compaction that was made already. What it returns is used."""

    def summarize(
        self, request: PreparedRequest, goal: Goal, scene: ParsedContext, config: EngineConfig, digest: CompactionResult
    ) -> CompactionResult:
        """The compaction with another record, or as it was."""
        ...

    def estimate(
        self, request: PreparedRequest, goal: Goal, scene: ParsedContext, config: EngineConfig, digest: CompactionResult
    ) -> CompactionResult:
        """The compaction as it was, with what `summarize` would ask a model."""
        ...


def effective_goal(goal: Goal, request: PreparedRequest) -> Goal:
    """A little lower than asked where that is needed to be worth the change at all."""
    least_gain = request.ask.settings.min_gain_percent / 100
    overhead = request.ask.settings.overhead_tokens
    target = min(goal.target, int(request.usage.tokens * (1 - least_gain)))
    return structs.replace(goal, target=max(target - overhead, 1))


def unchanged_report(request: PreparedRequest, messages: Sequence[Message], reason: str) -> Report:
    """The report when nothing is to be done."""
    return Report.unchanged(reason, tokens=request.usage.tokens, messages=len(messages), **request.head())


def build_result(
    request: PreparedRequest,
    goal: Goal,
    scene: ParsedContext,
    outcome: CompactedContext,
    decided: tuple[Decision, ...] | None = None,
) -> CompactionResult:
    """The report of an outcome. When it may not be used, the report says so and has the old numbers.

    `decided` are its decisions where they are not those of the plan.
    """
    after = outcome.written.tokens + request.ask.settings.overhead_tokens
    decisions = explain_decisions(outcome.composer, outcome.cut) if decided is None else decided
    if outcome.damage:
        report = unchanged_report(request, scene.messages, f"refused: {'; '.join(outcome.damage[:3])}")
        return CompactionResult(outcome, structs.replace(report, status="failed"), decisions)
    gain = 1 - after / max(request.usage.tokens, 1)
    if gain * 100 < request.ask.settings.min_gain_percent:
        least = f"{request.ask.settings.min_gain_percent:g} %"
        why = f"only {max(gain, 0):.0%} could be saved, less than min_gain_percent of {least}"
        return CompactionResult(outcome, _no_gain(request, goal, scene, outcome, why), decisions)
    if not outcome.cut and is_already_compacted(scene, request.ask.steers or {}):
        why = "nothing that could be folded has come since the last compaction"
        return CompactionResult(outcome, _no_gain(request, goal, scene, outcome, why), decisions)
    return CompactionResult(outcome, _report(request, goal, scene, outcome, after, decisions), decisions)


def is_already_compacted(scene: ParsedContext, steers: TierOverrides) -> bool:
    """Whether a compaction has been here before and nothing that could be folded has come since."""
    pinned = {*unanswered_turns(scene.turns), *(number for number, tier in steers.items() if tier is Tier.KEEP)}
    return scene.past is not None and all(turn.is_instruction or turn.number in pinned for turn in scene.turns)


def _no_gain(request: PreparedRequest, goal: Goal, scene: ParsedContext, outcome: CompactedContext, why: str) -> Report:
    floor = report_parts.floor_parts(outcome.composer, request.ask.settings.overhead_tokens, outcome.cut)
    reason = f"{why}; the largest part that must stay is {_largest_part(floor)}"
    if request.ask.is_free:
        return unchanged_report(request, scene.messages, f"not enough to compact: {reason}")
    report = unchanged_report(request, scene.messages, reason)
    return structs.replace(report, status="partial", target_tokens=goal.target, floor=floor)


def _largest_part(floor: Sequence[FloorPart]) -> str:
    return f"{floor[0].what} with {floor[0].tokens:,} tokens" if floor else "the frame"


def _report(
    request: PreparedRequest,
    goal: Goal,
    scene: ParsedContext,
    outcome: CompactedContext,
    after: int,
    decisions: tuple[Decision, ...],
) -> Report:
    written, composer, archive = outcome.written, outcome.composer, outcome.archive
    size = sum(map(message_bytes, written.messages))
    fits = after <= goal.target and size <= goal.bytes
    floor = () if fits else report_parts.floor_parts(composer, request.ask.settings.overhead_tokens, outcome.cut)
    text = context_text(written.messages)
    earlier = request.archived() if request.archived else frozenset()
    archived = earlier | {original.id for original in archive}
    found = report_parts.measure_fidelity(composer, written, archived, scene.facts, text)
    recallable = report_parts.recallable_share(_checkable_references(request, scene, outcome), archived)
    return Report(
        status="success" if fits else "partial",
        reason=_shortened_reason(outcome)
        if fits
        else f"{after:,} tokens in {size:,} bytes are left; the largest part is {_largest_part(floor)}",
        **request.head(),
        compaction_id=_compaction_id(text),
        tokens_before=request.usage.tokens,
        tokens_after=after,
        target_tokens=goal.target,
        messages_before=len(scene.messages),
        messages_after=len(written.messages),
        messages_removed=len(scene.messages) - len(written.messages),
        preserved=report_parts.preserved_items(decisions),
        summarized=report_parts.summarized_items(decisions),
        archived=report_parts.archived_items(archive, request.location),
        discarded=report_parts.discarded_items(decisions),
        recovery_instructions=report_parts.recovery_instructions(archive, written),
        facts_added=max(_lines_of(written.record) - _lines_of(scene.past), 0),
        fidelity=found,
        cache=report_parts.cached_prefix(scene.messages, written.messages, request.counter, request.usage.tokens),
        metrics=report_parts.measure_metrics(
            (request.usage.tokens, after),
            found,
            composer,
            written,
            scene.verdicts.failures,
            recallable,
            outcome.cut,
            text,
        ),
        floor=floor,
    )


def _checkable_references(
    request: PreparedRequest, scene: ParsedContext, outcome: CompactedContext
) -> AbstractSet[str]:
    """The references in the new context of which can be told whether their originals are archived.

    Without an archive of earlier compactions those that stood in the context before are not among them.
    """
    cited = outcome.written.cited()
    if request.archived is not None or scene.past is None:
        return cited
    return cited - set(REFERENCE_PATTERN.findall(context_text(scene.messages))).difference(
        each.id for each in outcome.archive
    )


def _shortened_reason(outcome: CompactedContext) -> str:
    """What was shortened before anything was planned, and where it is whole."""
    told = [turn for turn in outcome.cut if turn <= 0]
    asked = [turn for turn in outcome.cut if turn > 0]
    found = []
    for what, turns, whole in (
        ("the instructions", told, INSTRUCTIONS),
        ("what was pasted into the open question", asked, reference_id("turn", asked[-1] if asked else 0)),
    ):
        if turns:
            before, after = (
                sum(tokens[turn] for turn in turns) for tokens in (outcome.cut, outcome.composer.turn_tokens)
            )
            found.append(
                f"{what}, {before:,} tokens, would leave too little of the target: shortened to {after:,}, "
                f'recall("{whole}") has it whole'
            )
    return "; ".join(found)


def _lines_of(record: Record | None) -> int:
    return sum(len(lines) for lines in record.sections.values()) if record else 0


def _compaction_id(text: str) -> str:
    return "cmp_" + sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
