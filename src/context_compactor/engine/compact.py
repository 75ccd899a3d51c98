"""READ FIRST: one compaction, from the request to the result.

messages → parse → measure → goal → plan → write → verify → report → summarize → result
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import structs

from context_compactor.archive.originals import Archive
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.dialect import indexed_messages
from context_compactor.dialects.repair import repair_with_indexes
from context_compactor.engine.apply import fill_target, fit_turns, follow_overrides, gather_originals, plan_context
from context_compactor.engine.classify import ParsedContext, parse_context
from context_compactor.engine.layouts import measure_room, zones_to_try
from context_compactor.engine.provider_summary import separate_summary, summary_original, without_large_summary
from context_compactor.engine.request import (
    ArchiveScope,
    CompactionRequest,
    CompactionRun,
    EngineConfig,
    Goal,
    fixed_tokens,
    measure_context,
    request_counter,
    request_goal,
    request_trigger,
)
from context_compactor.engine.result import (
    CompactedContext,
    Compaction,
    Summarizer,
    build_result,
    finish,
    span_attributes,
    unchanged,
)
from context_compactor.engine.strategies import configure
from context_compactor.engine.verify import find_damage
from context_compactor.engine.view import turn_texts
from context_compactor.protocols import Layout, Strategy
from context_compactor.tracing import traced


@traced("compact", lambda compaction: span_attributes(compaction.report))
def run_request(
    messages: Sequence[object],
    request: CompactionRequest,
    *,
    tools: object = None,
    system: object = None,
    dialect: str = "auto",
    count_tokens: Callable[[str], int] | None = None,
    strategies: Sequence[Strategy] = (),
    layouts: Sequence[Layout] = (),
    summarizer: Summarizer | None = None,
    archive: ArchiveScope = ArchiveScope(),  # noqa: B008  it is frozen
    dry_run: bool = False,
) -> Compaction:
    """Compact as asked. Every surface comes through here.

    `tools` and `system` are counted; `strategies` and `layouts` are the caller's own, beside ours. A `summarizer` may
    replace the engine's record; in a dry run the report says what it would be asked.
    """
    began = time.perf_counter()
    raws, indexes = indexed_messages(messages)
    found = find_dialect(dialect, raws).for_model(request.model)
    given = found.parse(raws)
    steps, repairs = repair_with_indexes(given, found) if request.settings.enabled else (list(enumerate(given)), [])
    legal = [message for _, message in steps]
    steps = separate_summary(steps, found)
    parsed = parse_context([message for _, message in steps], found, with_secrets=not request.settings.redact_secrets)
    counter = request_counter(request, found.name, count_tokens)
    fixed = fixed_tokens(request, counter, tools, system)
    usage = measure_context(parsed, request, counter, fixed)
    trigger = request_trigger(request, usage)
    config = configure(request, found, counter, strategies, layouts)
    goal = request_goal(request, usage, trigger)
    mended = tuple(repair.what for repair in repairs)
    run = CompactionRun(
        request, config, parsed, usage, trigger, goal, fixed, legal, steps, given, indexes, mended, archive, began
    )
    run = without_large_summary(run, counter)
    if run.goal.reason:
        return unchanged(run)
    result = build_result(run, write_context(run.parsed, run.effective_goal, config))
    if summarizer is not None:
        result = traced("write")(summarizer.estimate if dry_run else summarizer.summarize)(result)
    return finish(result)


def write_context(parsed: ParsedContext, goal: Goal, config: EngineConfig) -> CompactedContext:
    """A context within the goal, with the originals of everything that left it."""
    instructions, question = fit_turns(parsed, goal, config)
    parsed = structs.replace(parsed, turns=question.turns)
    config = follow_overrides(config, parsed.turns)
    room = measure_room(parsed.turns, config.counter, goal.target, goal.shares, config.tier_overrides)
    kept = room.share_of_history(parsed.past.tokens if parsed.past else 0)
    texts = tuple(turn_texts(parsed.readable_turns, config.counter))
    for zoned in zones_to_try(room, config.layouts, config.custom_layouts, config.tier_overrides):
        composer = plan_context(parsed, zoned, texts, room, goal.bytes, config)
        written = fill_target(composer, goal.target, kept)
        damage = find_damage(parsed.messages, written.messages, config.dialect)
        if written.tokens <= goal.target and not damage:
            break
    folded = gather_originals(parsed, zoned.zones, composer.turn_tokens, written)
    summary = summary_original(parsed, config.counter)
    archive = Archive((*instructions.originals, *summary, *folded, *question.originals))  # the last of an id counts
    return CompactedContext(written, composer, archive, damage, instructions.cut | question.cut)
