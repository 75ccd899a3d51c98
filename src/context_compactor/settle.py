"""From an outcome to a report: whether it may be used, and everything it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Any, Protocol

from msgspec import Struct, structs

from context_compactor.apply import account
from context_compactor.apply.decisions import explain
from context_compactor.apply.fidelity import context_text
from context_compactor.apply.instructions import INSTRUCTIONS
from context_compactor.ask import Ask
from context_compactor.classify.pins import last_words
from context_compactor.classify.steer import Steers
from context_compactor.classify.tier import Tier
from context_compactor.flow import Kit, Outcome, Scene
from context_compactor.measure.count import MessageCounter, message_bytes
from context_compactor.measure.triggers import Trigger
from context_compactor.measure.usage import Usage
from context_compactor.messages.message import Message
from context_compactor.messages.record import Record
from context_compactor.messages.references import ID, reference_id
from context_compactor.plan.goal import Goal
from context_compactor.plan.plan import Decision
from context_compactor.report import FloorPart, Report


class Request(Struct, frozen=True):
    """What is known about a compaction before it has done anything."""

    ask: Ask
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


class Settled(Struct, frozen=True):
    """An outcome with its report."""

    outcome: Outcome
    report: Report
    decisions: tuple[Decision, ...]


class Storyteller(Protocol):
    """Whoever writes the record of a compaction that was made already. What it returns is used."""

    def tell(self, request: Request, goal: Goal, scene: Scene, kit: Kit, digest: Settled) -> Settled:
        """The compaction with another record, or as it was."""
        ...

    def expect(self, request: Request, goal: Goal, scene: Scene, kit: Kit, digest: Settled) -> Settled:
        """The compaction as it was, with what `tell` would ask a model."""
        ...


def aim(goal: Goal, request: Request) -> Goal:
    """A little lower than asked where that is needed to be worth the change at all."""
    least_gain = request.ask.settings.min_gain_percent / 100
    overhead = request.ask.settings.overhead_tokens
    target = min(goal.target, int(request.usage.tokens * (1 - least_gain)))
    return structs.replace(goal, target=max(target - overhead, 1))


def unchanged(request: Request, messages: Sequence[Message], reason: str) -> Report:
    """The report when nothing is to be done."""
    return Report.unchanged(reason, tokens=request.usage.tokens, messages=len(messages), **request.head())


def settle(
    request: Request, goal: Goal, scene: Scene, outcome: Outcome, decided: tuple[Decision, ...] | None = None
) -> Settled:
    """The report of an outcome. When it may not be used, the report says so and has the old numbers.

    `decided` are its decisions where they are not those of the plan.
    """
    after = outcome.written.tokens + request.ask.settings.overhead_tokens
    decisions = explain(outcome.composer, outcome.cut) if decided is None else decided
    if outcome.damage:
        report = unchanged(request, scene.messages, f"refused: {'; '.join(outcome.damage[:3])}")
        return Settled(outcome, structs.replace(report, status="failed"), decisions)
    gain = 1 - after / max(request.usage.tokens, 1)
    if gain * 100 < request.ask.settings.min_gain_percent:
        least = f"{request.ask.settings.min_gain_percent:g} %"
        why = f"only {max(gain, 0):.0%} could be saved, less than min_gain_percent of {least}"
        return Settled(outcome, _no_gain(request, goal, scene, outcome, why), decisions)
    if not outcome.cut and is_settled(scene, request.ask.steers or {}):
        why = "nothing that could be folded has come since the last compaction"
        return Settled(outcome, _no_gain(request, goal, scene, outcome, why), decisions)
    return Settled(outcome, _report(request, goal, scene, outcome, after, decisions), decisions)


def is_settled(scene: Scene, steers: Steers) -> bool:
    """Whether a compaction has been here before and nothing that could be folded has come since."""
    pinned = {*last_words(scene.turns), *(number for number, tier in steers.items() if tier is Tier.KEEP)}
    return scene.past is not None and all(turn.is_instruction or turn.number in pinned for turn in scene.turns)


def _no_gain(request: Request, goal: Goal, scene: Scene, outcome: Outcome, why: str) -> Report:
    floor = account.floor_parts(outcome.composer, request.ask.settings.overhead_tokens, outcome.cut)
    reason = f"{why}; the largest part that must stay is {_largest(floor)}"
    if request.ask.is_free:
        return unchanged(request, scene.messages, f"not enough to compact: {reason}")
    report = unchanged(request, scene.messages, reason)
    return structs.replace(report, status="partial", target_tokens=goal.target, floor=floor)


def _largest(floor: Sequence[FloorPart]) -> str:
    return f"{floor[0].what} with {floor[0].tokens:,} tokens" if floor else "the frame"


def _report(
    request: Request, goal: Goal, scene: Scene, outcome: Outcome, after: int, decisions: tuple[Decision, ...]
) -> Report:
    written, composer, archive = outcome.written, outcome.composer, outcome.archive
    size = sum(map(message_bytes, written.messages))
    fits = after <= goal.target and size <= goal.bytes
    floor = () if fits else account.floor_parts(composer, request.ask.settings.overhead_tokens, outcome.cut)
    text = context_text(written.messages)
    earlier = request.archived() if request.archived else frozenset()
    archived = earlier | {original.id for original in archive}
    found = account.fidelity(composer, written, archived, scene.facts, text)
    recallable = account.recallable_share(_checkable(request, scene, outcome), archived)
    return Report(
        status="success" if fits else "partial",
        reason=_cut_reason(outcome)
        if fits
        else f"{after:,} tokens in {size:,} bytes are left; the largest part is {_largest(floor)}",
        **request.head(),
        compaction_id=_compaction_id(text),
        tokens_before=request.usage.tokens,
        tokens_after=after,
        target_tokens=goal.target,
        messages_before=len(scene.messages),
        messages_after=len(written.messages),
        messages_removed=len(scene.messages) - len(written.messages),
        preserved=account.preserved(decisions),
        summarized=account.summarized(decisions),
        archived=account.archived(archive, request.location),
        discarded=account.discarded(decisions),
        recovery_instructions=account.recovery(archive, written),
        facts_added=max(_lines_of(written.record) - _lines_of(scene.past), 0),
        fidelity=found,
        cache=account.prefix_kept(scene.messages, written.messages, request.counter, request.usage.tokens),
        metrics=account.metrics(
            (request.usage.tokens, after), found, composer, written, scene.verdicts.failures, recallable, outcome.cut
        ),
        floor=floor,
    )


def _checkable(request: Request, scene: Scene, outcome: Outcome) -> AbstractSet[str]:
    """The references in the new context of which can be told whether their originals are archived.

    Without an archive of earlier compactions those that stood in the context before are not among them.
    """
    cited = outcome.written.cited()
    if request.archived is not None or scene.past is None:
        return cited
    return cited - set(ID.findall(context_text(scene.messages))).difference(each.id for each in outcome.archive)


def _cut_reason(outcome: Outcome) -> str:
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
