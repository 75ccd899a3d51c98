"""The report of a new context, counted from what was really written, and the compaction that callers get."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from math import ceil
from typing import Any, Protocol

from msgspec import Struct, structs

from context_compactor.archive.display import (
    TURN,
    Surroundings,
    neighbours,
    render_original,
    results_beside,
    turn_entry,
)
from context_compactor.archive.originals import Archive, Original
from context_compactor.archive.search.passages import Hit, texts_of
from context_compactor.archive.search.search import Searcher
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import Message, Opaque, Text, ToolCall, ToolResult
from context_compactor.dialects.record import Record, render_record
from context_compactor.dialects.turns import REFERENCE_PATTERN, ToolUse, Turn, reference_id
from context_compactor.engine.apply import Composer, WrittenContext
from context_compactor.engine.classify import ParsedContext, turn_positions
from context_compactor.engine.explain import explain_decisions
from context_compactor.engine.layouts import REFERENCE_TOKENS, Zone
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import (
    Archived,
    Cache,
    Cost,
    Discarded,
    Fidelity,
    FloorPart,
    Metrics,
    Missing,
    Preserved,
    Report,
    Summarized,
)
from context_compactor.engine.request import CompactionRun
from context_compactor.engine.tiers import PINNED, RECENT, Tier, TierOverrides, pinned_turns, unanswered_turns
from context_compactor.engine.truncation import INSTRUCTIONS
from context_compactor.facts.calls import call_body
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import RESOLVED, Failure, call_text, group_failures
from context_compactor.facts.kinds import Voice
from context_compactor.facts.outputs import leading_words, mentions_error, mentions_failure
from context_compactor.json_values import copy_containers
from context_compactor.protocols import TokenCounter
from context_compactor.settings import ModelEntry
from context_compactor.text import flat_text
from context_compactor.tokens.budget import Usage
from context_compactor.tokens.counting import FixedTokens, message_bytes
from context_compactor.tokens.models import PromptCache
from context_compactor.tokens.prices import ModelUsage, call_cost, price_of


class CompactedContext(Struct, frozen=True):
    """A new context with everything that explains it. `damage` says why it may not be used.

    `cut` has the tokens that shortened instructions and an open question had before, by turn.
    """

    written: WrittenContext
    composer: Composer
    archive: Archive
    damage: list[str]
    cut: dict[int, int]


class CompactionResult(Struct, frozen=True):
    """What a run has come to: the new context, its report, and the decisions behind it."""

    run: CompactionRun
    context: CompactedContext
    report: Report
    decisions: tuple[Decision, ...]

    @property
    def record(self) -> Record | None:
        """The record in the new context."""
        return self.context.written.record

    @property
    def folded(self) -> list[Turn]:
        """The turns that leave the context."""
        view = self.context.composer.view
        return [turn for turn in view.turns if view.zones[turn.number] is Zone.FOLDED]


class Summarizer(Protocol):
    """Whoever may write another record for a compaction. What it returns is used."""

    def summarize(self, result: CompactionResult) -> CompactionResult:
        """The compaction with another record, or as it was."""
        ...

    def estimate(self, result: CompactionResult) -> CompactionResult:
        """The compaction as it was, with what `summarize` would ask a model."""
        ...


class Compaction(Struct, frozen=True, dict=True):
    """What `compact` returns: the messages to send, the report, the decisions, and the originals."""

    messages: list[Any]
    report: Report
    decisions: tuple[Decision, ...]
    usage: Usage
    archive: Archive
    counter: TokenCounter
    facts: tuple[Fact, ...] = ()
    spans: dict[int, tuple[int, int]] = {}
    """For each turn the index of its first message and the one behind its last, among those that went in."""
    dialect: str = "auto"
    """The dialect of the messages."""
    sources: tuple[int | None, ...] = ()
    """For each message the index of the input message that it is, or None for one that was written or changed."""

    def recall(self, ref: str) -> str:
        """The original with this id, as text: a tool result byte for byte, a turn as JSON."""
        return self.archive.find(ref).text

    def read(self, ref: str) -> str:
        """The original with this id, for reading: a turn as a conversation, with the ids of its neighbours."""
        every: list[Original] = list(self.archive)
        at = every.index(self.archive.find(ref))
        if every[at].kind != TURN:
            return every[at].readable
        entries = [turn_entry(each.id, each.summary, each.tokens) for each in every if each.kind == TURN]
        return render_original(every[at], Surroundings(*neighbours(entries, ref), results_beside(every, at)))

    def original(self, ref: str) -> Original:
        """The original with this id as the value it was, with its kind and summary."""
        return self.archive.find(ref)

    def search(self, text: str, *, tokens: int = 2000, limit: int | None = None) -> list[Hit]:
        """Search the originals: matching lines, best first; `render_hits` turns them into text.

        The text has at most so many `tokens`. Lines whose names the context still shows come after lines it lost.
        """
        return self._searcher.search(text, tokens=tokens, limit=limit)

    @cached_property
    def _searcher(self) -> Searcher:
        shown = texts_of(find_dialect(self.dialect, self.messages).parse(self.messages))
        return Searcher(self.archive, self.counter, shown)


def finish(result: CompactionResult) -> Compaction:
    """What the caller gets: the new context, or the old one where the new one is not used."""
    run, report = result.run, result.report
    if run.request.model is not None and report.changed:
        entries = run.request.settings.models
        report = structs.replace(report, cost=agent_cost(report, run.request.model, entries, run.request.cache))
    if not report.changed:
        return _unchanged(run, report, result.decisions)
    return Compaction(
        [copy_containers(message.raw) for message in result.context.written.messages],
        report,
        result.decisions,
        run.usage,
        result.context.archive,
        run.config.counter.counter,
        tuple(run.parsed.facts),
        turn_positions(run.parsed, run.steps, len(run.given)),
        run.config.dialect.name,
        message_sources(run, result.context.written.messages),
    )


def unchanged(run: CompactionRun) -> Compaction:
    """What the caller gets when there is nothing to do."""
    return _unchanged(run, unchanged_report(run, run.goal.reason))


def _unchanged(run: CompactionRun, report: Report, decisions: tuple[Decision, ...] = ()) -> Compaction:
    messages = [copy_containers(message.raw) for message in run.legal]
    counter, sources = run.config.counter.counter, message_sources(run, run.legal)
    name = run.config.dialect.name
    return Compaction(messages, report, decisions, run.usage, Archive(), counter, dialect=name, sources=sources)


def message_sources(run: CompactionRun, messages: Iterable[Message]) -> tuple[int | None, ...]:
    """For each message the index of what the caller gave for it, where it was not changed."""
    known = {id(message.raw): index for message, index in zip(run.given, run.indexes, strict=True)}
    return tuple(known.get(id(message.raw)) for message in messages)


def span_attributes(report: Report) -> dict[str, Any]:
    """What the span of a compaction says of it: numbers and names, and nothing that was said."""
    names = ("status", "trigger", "session_id", "tokens_before", "tokens_after", "messages_before", "messages_after")
    return {"level": report.level or "none", **{name: getattr(report, name) for name in names}}


def unchanged_report(run: CompactionRun, reason: str) -> Report:
    """The report when nothing is to be done."""
    return Report.unchanged(reason, tokens=run.usage.tokens, messages=len(run.legal), **run.report_head())


def build_result(
    run: CompactionRun, context: CompactedContext, decisions: tuple[Decision, ...] | None = None
) -> CompactionResult:
    """The report of a new context. When it may not be used, the report says so and has the old numbers.

    `decisions` are given where they are not those of the plan.
    """
    settings = run.request.settings
    after = context.written.tokens + run.fixed.total
    if decisions is None:
        decisions = explain_decisions(context.composer, context.cut, context.written.detached)
    gain = 1 - after / max(run.usage.tokens, 1)
    if context.damage:
        refused = unchanged_report(run, f"refused: {'; '.join(context.damage[:3])}")
        report = structs.replace(refused, status="failed")
    elif gain * 100 < settings.min_gain_percent:
        least = f"{settings.min_gain_percent:g} %"
        why = f"only {max(gain, 0):.0%} could be saved, less than min_gain_percent of {least}"
        report = _no_gain(run, context, why)
    elif not context.cut and is_already_compacted(run.parsed, run.request.tier_overrides or {}):
        report = _no_gain(run, context, "nothing that could be folded has come since the last compaction")
    else:
        report = _report(run, context, after, decisions)
    return CompactionResult(run, context, report, decisions)


def is_already_compacted(parsed: ParsedContext, overrides: TierOverrides) -> bool:
    """Whether a compaction has been here before and nothing that could be folded has come since."""
    pinned = {*unanswered_turns(parsed.turns), *(number for number, tier in overrides.items() if tier is Tier.KEEP)}
    return parsed.past is not None and all(turn.is_fixed or turn.number in pinned for turn in parsed.turns)


def _no_gain(run: CompactionRun, context: CompactedContext, why: str) -> Report:
    floor = floor_parts(context.composer, run.fixed, context.cut)
    reason = f"{why}; the largest part that must stay is {_largest_part(floor)}{_fixed_alone(run)}"
    if run.request.is_free:
        return unchanged_report(run, f"not enough to compact: {reason}")
    return structs.replace(unchanged_report(run, reason), status="partial", target_tokens=run.goal.target, floor=floor)


def _largest_part(floor: Sequence[FloorPart]) -> str:
    return f"{floor[0].what} with {floor[0].tokens:,} tokens" if floor else "the frame"


def _fixed_alone(run: CompactionRun) -> str:
    """Why no compaction can reach the target, where what is sent beside the messages is more than that."""
    if run.fixed.total < run.goal.target:
        return ""
    return (
        f"; what is sent beside the messages ({run.fixed}) is no less than the target of {run.goal.target:,}. "
        "Try: fewer tools, a shorter system prompt, or a larger target"
    )


def _report(run: CompactionRun, context: CompactedContext, after: int, decisions: tuple[Decision, ...]) -> Report:
    written, composer, archive, parsed = context.written, context.composer, context.archive, run.parsed
    size = sum(map(message_bytes, written.messages))
    fits = after <= run.goal.target and size <= run.goal.bytes
    floor = () if fits else floor_parts(composer, run.fixed, context.cut)
    compaction_id, text = _id_and_text(written.messages)
    archived = (run.archive.archived() if run.archive.archived else frozenset()) | {original.id for original in archive}
    fidelity = measure_fidelity(composer, written, archived, parsed.facts, text)
    cited = _checkable_references(run, context, archived)
    tiers = {tier: [decision for decision in decisions if decision.tier is tier] for tier in Tier}
    left = f"{after:,} tokens in {size:,} bytes are left; the largest part is {_largest_part(floor)}{_fixed_alone(run)}"
    return Report(
        status="success" if fits else "partial",
        reason="; ".join([*(_shortened_reasons(context) if fits else [left]), *composer.refused]),
        **run.report_head(),
        compaction_id=compaction_id,
        tokens_before=run.usage.tokens,
        tokens_after=after,
        target_tokens=run.goal.target,
        messages_before=len(run.legal),
        messages_after=len(written.messages),
        messages_removed=len(run.legal) - len(written.messages),
        preserved=tuple(
            Preserved(d.target, d.tokens_after, max(d.turn, 0), d.kind.value, d.reason) for d in tiers[Tier.KEEP]
        ),
        summarized=tuple(
            Summarized(d.ref, d.kind.value, d.target, d.tokens_before, d.tokens_after, d.reason)
            for d in tiers[Tier.SUMMARIZE]
        ),
        archived=tuple(
            Archived(one.id, one.kind, one.summary, one.tokens, run.archive.location, one.recovery) for one in archive
        ),
        discarded=tuple(Discarded(d.ref, d.kind.value, d.target, d.tokens_before, d.reason) for d in tiers[Tier.DROP]),
        recovery_instructions=recovery_instructions(archive, written),
        facts_added=max(_lines_of(written.record) - _lines_of(parsed.past), 0),
        fidelity=fidelity,
        cache=cached_prefix(run, written.messages),
        metrics=Metrics(
            shrink_factor=run.usage.tokens / after if after else None,
            retained_share=fidelity.retained / fidelity.checked if fidelity.checked else None,
            failures_share=failures_share(parsed.verdicts.failures, composer.view.turns, written.messages, text),
            recallable_share=sum(ref in archived for ref in cited) / len(cited) if cited else None,
            pins_share=pins_share(composer, written, context.cut),
        ),
        floor=floor,
        notes=tuple(filter(None, (*run.notes, run.config.dialect.compaction_note, _loop_note(run)))),
    )


def _loop_note(run: CompactionRun) -> str:
    """What a caller must know who compacts a history that goes on, whenever a level is reached."""
    if run.archive.session_id or run.trigger.kind != "threshold":
        return ""
    return "called before every request, this rewrites the prefix each time; a Session does so once per compaction"


def _checkable_references(
    run: CompactionRun, context: CompactedContext, archived: AbstractSet[str]
) -> AbstractSet[str]:
    """The references in the new context of which can be known whether their originals are archived.

    Ids that the conversation's own messages name are not among them unless they are archived here: they are quoted, or
    stand for originals that were archived elsewhere, such as by an earlier compaction whose result the caller has.
    """
    cited = context.written.cited()
    if cited <= archived:
        return cited
    if run.archive.foreign is not None:
        return cited - run.archive.foreign()
    return cited - (named_references(run.parsed.messages) - archived)


def named_references(messages: Iterable[Message]) -> set[str]:
    """Every id that stands in a text of these messages."""
    return {ref for text in context_texts(messages) for ref in REFERENCE_PATTERN.findall(text)}


def _shortened_reasons(context: CompactedContext) -> Iterator[str]:
    """What was shortened before anything was planned, and where it is whole."""
    instructions = [turn for turn in context.cut if turn <= 0]
    question = [turn for turn in context.cut if turn > 0]
    for what, turns, whole in (
        ("the instructions", instructions, INSTRUCTIONS),
        ("what was pasted into the open question", question, reference_id("turn", question[-1] if question else 0)),
    ):
        if turns:
            before = sum(context.cut[turn] for turn in turns)
            after = sum(context.composer.turn_tokens[turn] for turn in turns)
            yield (
                f"{what}, {before:,} tokens, would leave too little of the target: shortened to {after:,}, "
                f'recall("{whole}") has it whole'
            )


def _lines_of(record: Record | None) -> int:
    return sum(len(lines) for lines in record.sections.values()) if record else 0


def context_texts(messages: Iterable[Message]) -> Iterator[str]:
    """Everything a model reads in a context, part by part."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield f"{part.name} {call_body(part)}"
            elif isinstance(part, (Text, ToolResult, Opaque)):
                yield part.text


def _id_and_text(messages: Iterable[Message]) -> tuple[str, str]:
    """The id of a compaction, by all that a model reads after it, and that as one text with single blanks.

    The context itself is as large as what may stay, so it is not joined to one text first.
    """
    digest = sha256()
    flat: list[str] = []
    for at, text in enumerate(context_texts(messages)):
        digest.update(("\n" if at else "").encode())
        for start in range(0, len(text), _HASHED):
            digest.update(text[start : start + _HASHED].encode("utf-8", "replace"))
        flat.append(flat_text(text))
    return f"cmp_{digest.hexdigest()[:12]}", " ".join(filter(None, flat))


_HASHED = 100_000
_CHECKED = ("failure", "constraint", "decision")
_START = 60


def measure_fidelity(
    composer: Composer, written: WrittenContext, archived: Container[str], facts: Sequence[Fact], text: str
) -> Fidelity:
    """Look for every name, failure, rule and decision of the removed texts in the context and behind its references.

    `text` is the context with single blanks. Facts are looked for by their first words.
    """
    view, names_of = composer.view, composer.draft.names_of
    # What a model can act on: the ids in the text, and the range that the record's first line names.
    turns = written.record.turns if written.record else 0
    visible = {*REFERENCE_PATTERN.findall(text), *(f"turn_{number:03d}" for number in range(1, turns + 1))}
    reachable = {ref for ref in visible if ref in archived}
    standing = view.names.met_in(text)
    gone: set[int] = set()
    behind: set[int] = set()
    home: dict[int, str] = {}
    for source in view.open_sources():
        if source.is_loose or source.voice is Voice.THINKING:
            continue
        names, zone = names_of[source.number], view.zones[source.turn]
        ref = reference_id("turn", source.turn) if zone is Zone.FOLDED else source.ref
        if zone is Zone.PLACED and source.part not in written.texts.edits.get((source.turn, source.message), {}):
            # A name that was cut at the end of a block is none of the text's own, though the text stands as it was.
            standing.update(names)
        gone.update(names)
        if ref in reachable:
            behind.update(names)
        else:
            home.update(dict.fromkeys(names, ref))
    missing = [Missing("identifier", view.names.names[name], home[name]) for name in sorted(gone - standing - behind)]
    retained = len(gone & standing)
    found = len(gone) - retained - len(missing)
    for fact in facts:
        if fact.kind in _CHECKED and view.zones.get(fact.turn) is Zone.FOLDED:
            if " ".join(fact.content.split())[:_START] in text:
                retained += 1
            elif reference_id("turn", fact.turn) in reachable:
                found += 1
            else:
                missing.append(Missing(fact.kind, fact.content[:200], fact.ref))
    return Fidelity(retained, found, tuple(missing))


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
    flat = _id_and_text(context)[1] if text is None else text
    exchanges = {exchange.number: exchange for turn in turns for exchange in turn.exchanges}
    calls, results = defaultdict[str, list[ToolCall]](list), defaultdict[str, list[ToolResult]](list)
    for part in (part for message in context for part in message.parts):
        if isinstance(part, ToolCall):
            calls[part.id].append(part)
        elif isinstance(part, ToolResult):
            results[part.call_id].append(part)

    def is_kept(failure: Failure) -> bool:
        exchange = exchanges.get(failure.exchange)
        stands = exchange is not None and _stands(failure, exchange, calls, results)
        return stands or mentions_failure(failure.command, failure.error, flat)

    kept = [len(group) if is_kept(group[0]) else sum(map(is_kept, group)) for group in groups]
    return sum(kept) / sum(map(len, groups))


def _stands(
    failure: Failure, exchange: ToolUse, calls: dict[str, list[ToolCall]], results: dict[str, list[ToolResult]]
) -> bool:
    """Whether a call and its error stand in a context.

    Results are compared as a whole first: a failure's error has neither the colours nor the frame of its result.
    """
    call, result = exchange.call, exchange.result
    has_call = call is None or any(
        each == call or leading_words(call_text(each)) == leading_words(call_text(call)) for each in calls[call.id]
    )
    return (
        has_call
        and result is not None
        and any(
            each == result or mentions_error(failure.error, " ".join(each.text.split()))
            for each in results[result.call_id]
        )
    )


def pins_share(composer: Composer, written: WrittenContext, cut: Container[int] = ()) -> float | None:
    """The share of what must stay that stands unchanged in the context; `cut` turns do not.

    Instructions and unanswered words must, and what the user wants to keep.
    """
    pinned = {*unanswered_turns(composer.view.turns), *composer.view.kept_turns()}
    turns = [turn for turn in composer.view.turns if turn.is_fixed or turn.number in pinned]
    parts = [(turn.number, part) for turn in turns for message in turn.messages for part in message.parts]
    standing = [part for message in written.messages for part in message.parts]
    return sum(turn not in cut and part in standing for turn, part in parts) / len(parts) if parts else None


def cached_prefix(run: CompactionRun, after: Sequence[Message]) -> Cache:
    """How much of the old request's beginning stands unchanged: tools and system prompt, then messages."""
    same = takewhile(lambda pair: pair[0] is pair[1], zip(run.legal, after, strict=False))
    kept = run.fixed.tools + run.fixed.system + sum(run.config.counter.count(old) for old, _ in same)
    return Cache(kept, max(run.usage.tokens - kept, 0))


def floor_parts(composer: Composer, fixed: FixedTokens, cut: Container[int]) -> tuple[FloorPart, ...]:
    """What could not be made shorter, largest first. `fixed` is sent with every request beside the messages.

    `cut` are the turns that were shortened already.
    """
    parts = [
        FloorPart("tools", fixed.tools, "tool definitions are sent with every request"),
        FloorPart("system", fixed.system, "the system prompt is sent with every request"),
        FloorPart("overhead_tokens", fixed.other, "sent with every request: a system prompt or tools kept apart"),
    ]
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
    must = sum(count(line.written) + 2 for line in composer.record_content.must)
    quotes = sum(count(quote.text) for quote in composer.record_content.quotes)
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


# No agent makes so many requests with one context.
_NEVER = 1_000_000
_WARM = PromptCache()


def agent_cost(
    report: Report, model: str, entries: Mapping[str, ModelEntry] | None = None, cache: PromptCache = _WARM
) -> Cost | None:
    """The bill of an agent that works with this model; None when the model's price is not known.

    When the cache has expired, the next request would write the whole old context to it: the new one is no more.
    """
    if price_of(model, entries) is None:
        return None

    def cost(kept: int, new: int = 0) -> float:
        return call_cost(ModelUsage(cache_read=kept, cache_write=new), model, entries, cache.seconds) or 0.0

    kept = min(report.cache.prefix_tokens_kept, report.tokens_after)
    before, after = cost(report.tokens_before), cost(report.tokens_after)
    rewrite = 0.0 if cache.is_cold else max(cost(kept, report.tokens_after - kept) - after, 0.0)
    spent = report.spent_on_models
    turns = None if spent is None else break_even(before, after, rewrite + spent)
    return Cost(before, after, rewrite, spent, turns, cache.in_words() if cache.is_cold else "")


def break_even(before: float, after: float, once: float) -> int | None:
    """The fewest requests after which `once` and then `after` each is no more than `before` each; None if never."""
    if once <= 0 and after <= before:
        return 0
    if once >= _NEVER * (before - after):
        return None
    turns = ceil(once / (before - after))
    # A division rounds; the promise is about the sums.
    return turns if once + after * turns <= before * turns else turns + 1
