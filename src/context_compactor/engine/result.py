"""The report of a new context, counted from what was really written, and the compaction that callers get."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from itertools import takewhile
from typing import Any, Protocol

from msgspec import Struct, structs

from context_compactor.archive.originals import Archive
from context_compactor.dialects.messages import Message, Opaque, Text, ToolCall, ToolResult
from context_compactor.dialects.record import Record, render_record
from context_compactor.dialects.turns import REFERENCE_PATTERN, ToolUse, Turn, reference_id
from context_compactor.engine.apply import Composer, WrittenContext
from context_compactor.engine.compact import CompactedContext, EngineConfig, ParsedContext
from context_compactor.engine.decisions import explain_decisions
from context_compactor.engine.layouts import REFERENCE_TOKENS, Zone
from context_compactor.engine.options import TextSource
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import (
    Archived,
    Cache,
    Discarded,
    Fidelity,
    FloorPart,
    Metrics,
    Missing,
    Preserved,
    Report,
    Summarized,
)
from context_compactor.engine.request import CompactionRequest, Goal
from context_compactor.engine.tiers import PINNED, RECENT, Tier, TierOverrides, pinned_turns, unanswered_turns
from context_compactor.engine.truncation import INSTRUCTIONS
from context_compactor.facts.calls import call_body
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import RESOLVED, Failure, call_text, group_failures
from context_compactor.facts.kinds import Voice
from context_compactor.facts.names import NameTable
from context_compactor.facts.outputs import leading_words, mentions_error, mentions_failure
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

    def tell(
        self, request: PreparedRequest, goal: Goal, scene: ParsedContext, config: EngineConfig, digest: CompactionResult
    ) -> CompactionResult:
        """The compaction with another record, or as it was."""
        ...

    def expect(
        self, request: PreparedRequest, goal: Goal, scene: ParsedContext, config: EngineConfig, digest: CompactionResult
    ) -> CompactionResult:
        """The compaction as it was, with what `tell` would ask a model."""
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
    floor = floor_parts(outcome.composer, request.ask.settings.overhead_tokens, outcome.cut)
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
    floor = () if fits else floor_parts(composer, request.ask.settings.overhead_tokens, outcome.cut)
    text = context_text(written.messages)
    earlier = request.archived() if request.archived else frozenset()
    archived = earlier | {original.id for original in archive}
    found = measure_fidelity(composer, written, archived, scene.facts, text)
    recallable = recallable_share(_checkable_references(request, scene, outcome), archived)
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
        preserved=preserved_items(decisions),
        summarized=summarized_items(decisions),
        archived=archived_items(archive, request.location),
        discarded=discarded_items(decisions),
        recovery_instructions=recovery_instructions(archive, written),
        facts_added=max(_lines_of(written.record) - _lines_of(scene.past), 0),
        fidelity=found,
        cache=cached_prefix(scene.messages, written.messages, request.counter, request.usage.tokens),
        metrics=measure_metrics(
            (request.usage.tokens, after), found, composer, written, scene.verdicts.failures, recallable, outcome.cut
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


def context_text(messages: Iterable[Message]) -> str:
    """Everything a model reads in a context, as one text."""
    lines: list[str] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                lines.append(f"{part.name} {call_body(part)}")
            elif isinstance(part, (Text, ToolResult, Opaque)):
                lines.append(part.text)
    return "\n".join(lines)


def count_names(
    removed: Sequence[tuple[str, set[int]]], standing: set[int], names: NameTable, reachable: set[str]
) -> Fidelity:
    """`removed` are the names of each removed text with the id of its original; `standing` those of the new context."""
    gone: set[int] = set()
    found: set[int] = set()
    home: dict[int, str] = {}
    for ref, ids in removed:
        gone |= ids
        if ref in reachable:
            found |= ids
        else:
            home.update(dict.fromkeys(ids, ref))
    lost = sorted(gone - standing - found)
    missing = tuple(Missing("identifier", names.names[name], home[name]) for name in lost)
    retained = len(gone & standing)
    return Fidelity(retained, len(gone) - retained - len(missing), missing)


_CHECKED = ("failure", "constraint", "decision")
_START = 60


def count_facts(fidelity: Fidelity, facts: Iterable[Fact], text: str, reachable: set[str]) -> Fidelity:
    """The same with the failures, rules and decisions of the folded turns, each looked for by its first words."""
    flat = " ".join(text.split())
    retained, behind, missing = fidelity.retained, fidelity.reachable, list(fidelity.missing)
    for fact in facts:
        if fact.kind in _CHECKED:
            if " ".join(fact.content.split())[:_START] in flat:
                retained += 1
            elif reference_id("turn", fact.turn) in reachable:
                behind += 1
            else:
                missing.append(Missing(fact.kind, fact.content[:200], fact.ref))
    return Fidelity(retained, behind, tuple(missing))


def preserved_items(decisions: Sequence[Decision]) -> tuple[Preserved, ...]:
    """What stands word for word."""
    kept = [decision for decision in decisions if decision.tier is Tier.KEEP]
    return tuple(Preserved(d.target, d.tokens_after, max(d.turn, 0), d.kind.value, d.reason) for d in kept)


def summarized_items(decisions: Sequence[Decision]) -> tuple[Summarized, ...]:
    """What stands in fewer words."""
    short = [decision for decision in decisions if decision.tier is Tier.SUMMARIZE]
    return tuple(Summarized(d.ref, d.kind.value, d.target, d.tokens_before, d.tokens_after, d.reason) for d in short)


def discarded_items(decisions: Sequence[Decision]) -> tuple[Discarded, ...]:
    """What left nothing behind but its original in the archive."""
    gone = [decision for decision in decisions if decision.tier is Tier.DROP]
    return tuple(Discarded(d.ref, d.kind.value, d.target, d.tokens_before, d.reason) for d in gone)


def archived_items(archive: Archive, location: str) -> tuple[Archived, ...]:
    """Every original that left the context."""
    return tuple(Archived(one.id, one.kind, one.summary, one.tokens, location, one.recovery) for one in archive)


def visible_ids(text: str, written: WrittenContext) -> set[str]:
    """The ids a model can act on: those in the text, and the range that the record's first line names."""
    turns = written.record.turns if written.record else 0
    return {*REFERENCE_PATTERN.findall(text), *(f"turn_{number:03d}" for number in range(1, turns + 1))}


def measure_fidelity(
    composer: Composer, written: WrittenContext, archived: Container[str], facts: Sequence[Fact], text: str
) -> Fidelity:
    """Look for every name, failure, rule and decision of the removed texts in the context and behind its references."""
    visible = visible_ids(text, written)
    view, names_of = composer.view, composer.draft.names_of
    open_sources = [each for each in view.open_sources() if not each.is_loose and each.voice is not Voice.THINKING]
    removed = [(_original_ref(source, view.zones), names_of[source.number]) for source in open_sources]
    # A name that was cut at the end of a block is none of the text's own, though the text stands as it was.
    untouched = (names_of[source.number] for source in open_sources if _is_untouched(source, view.zones, written))
    reachable = {ref for ref in visible if ref in archived}
    names = count_names(removed, view.names.ids(text).union(*untouched), view.names, reachable)
    gone = [fact for fact in facts if view.zones.get(fact.turn) is Zone.FOLDED]
    return count_facts(names, gone, text, reachable)


def _is_untouched(source: TextSource, zones: dict[int, Zone], written: WrittenContext) -> bool:
    edited = written.texts.edits.get((source.turn, source.message), {})
    return zones[source.turn] is Zone.PLACED and source.part not in edited


def _original_ref(source: TextSource, zones: dict[int, Zone]) -> str:
    return reference_id("turn", source.turn) if zones[source.turn] is Zone.FOLDED else source.ref


def failures_share(failures: Sequence[Failure], turns: Sequence[Turn], context: Sequence[Message]) -> float | None:
    """Of the failed attempts that were not resolved, the share whose command and error can be read in the context.

    Either the call and its result stand there, the result perhaps shortened to its error, or a line names both, of it
    or of another attempt that failed in the same way.
    """
    groups = [group for group in group_failures(failures) if group[-1].status != RESOLVED]
    if not groups:
        return None
    flat = " ".join(context_text(context).split())
    exchanges = {exchange.number: exchange for turn in turns for exchange in turn.exchanges}
    calls, results = defaultdict[str, list[ToolCall]](list), defaultdict[str, list[ToolResult]](list)
    for part in (part for message in context for part in message.parts):
        if isinstance(part, ToolCall):
            calls[part.id].append(part)
        elif isinstance(part, ToolResult):
            results[part.call_id].append(part)

    def is_kept(failure: Failure) -> bool:
        exchange = exchanges.get(failure.exchange)
        stands = exchange is not None and _call_stands(exchange, calls) and _error_stands(failure, exchange, results)
        return stands or mentions_failure(failure.command, failure.error, flat)

    kept = [len(group) if is_kept(group[0]) else sum(map(is_kept, group)) for group in groups]
    return sum(kept) / sum(map(len, groups))


def _call_stands(exchange: ToolUse, calls: dict[str, list[ToolCall]]) -> bool:
    call = exchange.call
    if call is None:
        return True
    return any(
        each == call or leading_words(call_text(each)) == leading_words(call_text(call)) for each in calls[call.id]
    )


def _error_stands(failure: Failure, exchange: ToolUse, results: dict[str, list[ToolResult]]) -> bool:
    """Compared as a whole first: a failure's error has neither the colours nor the frame of its result."""
    result = exchange.result
    if result is None:
        return False
    return any(
        each == result or mentions_error(failure.error, " ".join(each.text.split())) for each in results[result.call_id]
    )


def recallable_share(cited: AbstractSet[str], archived: Container[str]) -> float | None:
    """Of the references in the new context, the share whose original is in the archive."""
    return sum(ref in archived for ref in cited) / len(cited) if cited else None


def pins_share(composer: Composer, written: WrittenContext, cut: Container[int] = ()) -> float | None:
    """The share of what must stay that stands unchanged in the context; `cut` turns do not.

    Instructions and unanswered words must, and what the user wants to keep.
    """
    pinned = {*unanswered_turns(composer.view.turns), *composer.view.kept_turns()}
    turns = [turn for turn in composer.view.turns if turn.is_instruction or turn.number in pinned]
    parts = [(turn.number, part) for turn in turns for message in turn.messages for part in message.parts]
    standing = [part for message in written.messages for part in message.parts]
    return sum(turn not in cut and part in standing for turn, part in parts) / len(parts) if parts else None


def cached_prefix(
    before: Sequence[Message], after: Sequence[Message], counter: MessageCounter, tokens_before: int
) -> Cache:
    """How much of the old prompt's beginning stands unchanged."""
    same = takewhile(lambda pair: pair[0] is pair[1], zip(before, after, strict=False))
    kept = sum(counter.count(old) for old, _ in same)
    return Cache(kept, max(tokens_before - kept, 0))


def floor_parts(composer: Composer, overhead: int, cut: Container[int]) -> tuple[FloorPart, ...]:
    """What could not be made shorter, largest first. `overhead` is sent with every request beside the messages.

    `cut` are the turns that were shortened already.
    """
    parts = [FloorPart("overhead_tokens", overhead, "sent with every request: a system prompt or tools kept apart")]
    count = composer.counter.text
    pins = pinned_turns(composer.view.turns) | dict.fromkeys(composer.view.kept_turns(), PINNED)
    for turn in composer.view.turns:
        zone = composer.view.zones[turn.number]
        tokens = composer.turn_tokens[turn.number]
        if zone is Zone.FIXED:
            why = "instructions, shortened already" if turn.number in cut else "instructions are left alone"
            parts.append(FloorPart(f"{turn.role} message", tokens, why))
        elif zone is Zone.VERBATIM:
            why = pins.get(turn.number) or composer.view.why.get(turn.number, RECENT)
            done = ", shortened already" if turn.number in cut else ""
            parts.append(FloorPart(f"turn {turn.number} ({turn.role})", tokens, why + done))
    must = sum(count(line.written) + 2 for line in composer.ledger.must)
    quotes = sum(count(quote.text) for quote in composer.ledger.quotes)
    frame = count(render_record(Record(0, 0, 0, 0)))
    shortened = sum(1 for zone in composer.view.zones.values() if zone is Zone.PLACED) * REFERENCE_TOKENS
    parts.append(FloorPart("the record's first and last line", frame, "they say what the record is"))
    parts.append(FloorPart("shortened turns", shortened, "a call needs its result, if only a reference"))
    parts.append(FloorPart("ledgers of the record", must, "failed attempts, rules and open work are never lost"))
    parts.append(FloorPart("the user's task", quotes, "quoted in the record"))
    return tuple(sorted((part for part in parts if part.tokens > 0), key=lambda part: -part.tokens))


def recovery_instructions(archive: Archive, written: WrittenContext) -> tuple[str, ...]:
    """How to get originals back."""
    if not len(archive):
        return ()
    examples = [original.id for original in archive][:2]
    lines = [f'recall("{ref}") returns the original of {archive.find(ref).summary}' for ref in examples]
    if written.record:
        lines.append(f"turn_001 to turn_{written.record.turns:03d} are the whole turns behind the record")
    return tuple(lines)


def measure_metrics(
    tokens: tuple[int, int],
    found: Fidelity,
    composer: Composer,
    written: WrittenContext,
    failures: Sequence[Failure],
    recallable: float | None,
    cut: Container[int],
) -> Metrics:
    """Numbers that were measured on this compaction. `tokens` are those before and after."""
    before, after = tokens
    return Metrics(
        shrink_factor=before / after if after else None,
        retained_share=found.retained / found.checked if found.checked else None,
        failures_share=failures_share(failures, composer.view.turns, written.messages),
        recallable_share=recallable,
        pins_share=pins_share(composer, written, cut),
    )
