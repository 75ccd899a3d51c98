"""The parts of a report, each counted from what was really written: what stayed, what left, and what became of its
names and facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile

from context_compactor.archive.originals import Archive
from context_compactor.dialects.messages import Message, Opaque, Text, ToolCall, ToolResult
from context_compactor.dialects.record import Record, render_record
from context_compactor.dialects.turns import REFERENCE_PATTERN, ToolUse, Turn, reference_id
from context_compactor.engine.apply import Composer, WrittenContext
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
    Summarized,
)
from context_compactor.engine.tiers import PINNED, RECENT, Tier, pinned_turns, unanswered_turns
from context_compactor.engine.view import call_body
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import RESOLVED, Failure, call_text, group_failures
from context_compactor.facts.kinds import Voice
from context_compactor.facts.names import NameTable
from context_compactor.facts.outputs import leading_words, mentions_error, mentions_failure
from context_compactor.text import flat_text
from context_compactor.tokens.counting import MessageCounter


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
    removed: Sequence[tuple[str, Collection[int]]], standing: set[int], names: NameTable, reachable: set[str]
) -> Fidelity:
    """`removed` are the names of each removed text with the id of its original; `standing` those of the new context."""
    gone: set[int] = set()
    found: set[int] = set()
    home: dict[int, str] = {}
    for ref, ids in removed:
        gone.update(ids)
        if ref in reachable:
            found.update(ids)
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
    flat = flat_text(text)
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


def failures_share(
    failures: Sequence[Failure], turns: Sequence[Turn], context: Sequence[Message], text: str | None = None
) -> float | None:
    """Of the failed attempts that were not resolved, the share whose command and error can be read in the context.

    Either the call and its result stand there, the result perhaps shortened to its error, or a line names both, of it
    or of another attempt that failed in the same way.
    """
    groups = [group for group in group_failures(failures) if group[-1].status != RESOLVED]
    if not groups:
        return None
    flat = flat_text(context_text(context) if text is None else text)
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
    text: str,
) -> Metrics:
    """Numbers that were measured on this compaction. `tokens` are those before and after; `text` is the context's."""
    before, after = tokens
    return Metrics(
        shrink_factor=before / after if after else None,
        retained_share=found.retained / found.checked if found.checked else None,
        failures_share=failures_share(failures, composer.view.turns, written.messages, text),
        recallable_share=recallable,
        pins_share=pins_share(composer, written, cut),
    )
