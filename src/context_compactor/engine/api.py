"""The public verbs: compact a list of messages, and recall and search what left it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, get_args

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
from context_compactor.dialects.dialect import dicts_of, refuse_depth
from context_compactor.dialects.messages import Message
from context_compactor.dialects.repair import repair_with_indexes
from context_compactor.dialects.turns import split_turns, turn_spans
from context_compactor.engine import compact as flow
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import Report
from context_compactor.engine.request import CompactionRequest, request_budget, request_goal, request_trigger
from context_compactor.engine.result import (
    CompactionResult,
    PreparedRequest,
    Summarizer,
    build_result,
    effective_goal,
    unchanged_report,
)
from context_compactor.engine.strategies import DEFAULT_LAYOUTS, DEFAULT_STRATEGIES, ONE_MESSAGE_LAYOUTS
from context_compactor.errors import BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.json_values import copy_containers
from context_compactor.protocols import Model, Store, TokenCounter
from context_compactor.settings import LayoutName, Level, Settings, check_agent_model, load_settings
from context_compactor.tokens.budget import Usage, measure
from context_compactor.tokens.counting import MessageCounter, message_counter_for
from context_compactor.tracing import traced

if TYPE_CHECKING:
    from context_compactor.summarize.model import ModelStep
    from context_compactor.summarize.summarizer import ModelSummarizer


class Compaction(Struct, frozen=True, dict=True):
    """What `compact` returns: the messages to send, the report, the decisions, and the originals."""

    messages: list[dict[str, Any]]
    report: Report
    decisions: tuple[Decision, ...]
    usage: Usage
    archive: Archive
    counter: TokenCounter
    facts: tuple[Fact, ...] = ()
    spans: dict[int, tuple[int, int]] = {}
    """For each turn the index of its first message and the one behind its last, among those that went in."""

    def recall(self, ref: str) -> str:
        """The original behind an id, as text: a tool result byte for byte, a turn as JSON. `read` is for readers."""
        return self.archive.find(ref).text

    def read(self, ref: str) -> str:
        """The original behind an id for a reader: a turn as a conversation, with ids of what stands beside it."""
        every: list[Original] = list(self.archive)
        at = every.index(self.archive.find(ref))
        if every[at].kind != TURN:
            return every[at].readable
        entries = [turn_entry(each.id, each.summary, each.tokens) for each in every if each.kind == TURN]
        return render_original(every[at], Surroundings(*neighbours(entries, ref), results_beside(every, at)))

    def original(self, ref: str) -> Original:
        """The original behind an id as the value it was, with its kind and summary."""
        return self.archive.find(ref)

    def search(self, text: str, *, tokens: int = 2000, limit: int | None = None) -> list[Hit]:
        """The lines of the originals that answer a question, best first; `render_hits` makes them a text.

        The text has at most so many `tokens`. Lines whose names the context still shows come after lines it lost.
        """
        return self._searcher.search(text, tokens=tokens, limit=limit)

    @cached_property
    def _searcher(self) -> Searcher:
        shown = texts_of(find_dialect("auto", self.messages).parse(self.messages))
        return Searcher(self.archive, self.counter, shown)


def compact(
    messages: Sequence[dict[str, Any]],
    *,
    window: int | None = None,
    target_tokens: int | None = None,
    level: str | None = None,
    focus: str | None = None,
    model: str | None = None,
    summarizer: str | Model | None = None,
    layout: LayoutName = "auto",
    dialect: str = "auto",
    count_tokens: Callable[[str], int] | None = None,
    settings: Settings | None = None,
    store: str | None = None,
) -> Compaction:
    """Bring a list of messages under its target, or leave it alone when it is small enough.

    With `target_tokens` the result has at most that many; with `level` that level's target of the window; with only a
    window it is compacted when a level's threshold is reached. The input is never changed. With `store` the originals
    are kept there as well, under the session that `report.session_id` names. `model` is the name of the model that runs
    the agent: its window, its tokenizer and its prices are used. `summarizer`, by its name or as an object, is the one
    that writes summaries; without one, nor one in the settings, nothing leaves the machine. `layout` is
    `tail` (the record, then the newest turns) or `record` (one message); `auto` is what the settings say.
    """
    settings = with_layout(settings or load_settings().settings, layout)
    model = settings.model if model is None else model
    check_agent_model(model, settings.summarizer if summarizer is None else summarizer)
    ask = CompactionRequest(window, target_tokens, parse_level(level), focus or "", settings, model)
    teller = summarizer_for(settings, summarizer)
    if store is None:
        return run_request(messages, ask, dialect=dialect, count_tokens=count_tokens, teller=teller)
    from context_compactor.addresses import without_password
    from context_compactor.store.connect import connect

    with closing(connect(store)) as kept:
        place = without_password(store)
        made = run_request(messages, ask, dialect=dialect, count_tokens=count_tokens, location=place, teller=teller)
        return store_originals(made, kept, without_secrets=ask.settings.redact_secrets)


async def acompact(
    messages: Sequence[dict[str, Any]],
    *,
    window: int | None = None,
    target_tokens: int | None = None,
    level: str | None = None,
    focus: str | None = None,
    model: str | None = None,
    summarizer: str | Model | None = None,
    layout: LayoutName = "auto",
    dialect: str = "auto",
    count_tokens: Callable[[str], int] | None = None,
    settings: Settings | None = None,
    store: str | None = None,
) -> Compaction:
    """The same as `compact`, for async callers: the work is done in a thread, so the event loop goes on."""
    import asyncio  # takes a tenth of a second to load, and most callers never need it

    return await asyncio.to_thread(
        compact,
        messages,
        window=window,
        target_tokens=target_tokens,
        level=level,
        focus=focus,
        model=model,
        summarizer=summarizer,
        layout=layout,
        dialect=dialect,
        count_tokens=count_tokens,
        settings=settings,
        store=store,
    )


def with_layout(settings: Settings, layout: LayoutName) -> Settings:
    """The settings with another layout, where one is named."""
    if layout not in get_args(LayoutName):
        raise BadSetting(f"layout is {layout!r:.40}; it must be one of {', '.join(get_args(LayoutName))}")
    return settings if layout == "auto" else structs.replace(settings, layout=layout)


def summarizer_for(
    settings: Settings,
    summarizer: str | Model | None = None,
    on_text: Callable[[str], None] | None = None,
    on_step: Callable[[ModelStep], None] | None = None,
) -> ModelSummarizer | None:
    """The summarizer that is named, else that of the settings. Without either nothing is imported.

    `on_text` is shown the text while it is written, `on_step` each call and each retry.
    """
    wanted = settings.summarizer if summarizer is None else summarizer
    if wanted is None:
        return None
    from context_compactor.summarize.summarizer import open_summarizer

    return open_summarizer(wanted, settings, on_text, on_step)


def estimating_summarizer(settings: Settings) -> ModelSummarizer | None:
    """One that only says what the settings' summarizer would be asked: it needs no key and can send nothing."""
    if settings.summarizer is None:
        return None
    from context_compactor.summarize.clients.names import describe_model
    from context_compactor.summarize.summarizer import open_summarizer

    return open_summarizer(describe_model(settings.summarizer, settings), settings)


def store_originals(result: Compaction, store: Store, *, without_secrets: bool = False) -> Compaction:
    """The result with its originals in a store, where other processes can recall them."""
    from context_compactor.archive.redaction import redact
    from context_compactor.archive.storage import index_archived, prepare_items, store_items

    if not len(result.archive):
        return result
    session_id = result.report.compaction_id
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    store.open_session(session_id, b"{}", now)
    originals = list(result.archive)
    ready = prepare_items(redact(originals).value if without_secrets else originals, store)
    with store.writing(session_id):
        store.archive(session_id, store_items(ready, store), now)
    index_archived(store, session_id)
    return structs.replace(result, report=structs.replace(result.report, session_id=session_id))


def parse_level(level: str | None) -> Level | None:
    """The level of this name."""
    try:
        return None if level is None else Level(level)
    except ValueError:
        raise BadSetting(f"unknown level {level!r:.40}; known levels: {', '.join(Level)}") from None


def span_attributes(report: Report) -> dict[str, Any]:
    """What the span of a compaction says of it: numbers and names, and nothing that was said."""
    names = ("status", "trigger", "session_id", "tokens_before", "tokens_after", "messages_before", "messages_after")
    return {"level": report.level or "none", **{name: getattr(report, name) for name in names}}


@traced("compact", lambda made: span_attributes(made.report))
def run_request(
    messages: Sequence[dict[str, Any]],
    ask: CompactionRequest,
    *,
    dialect: str = "auto",
    count_tokens: Callable[[str], int] | None = None,
    session_id: str = "",
    location: str = "memory",
    teller: Summarizer | None = None,
    dry_run: bool = False,
    archived: Callable[[], AbstractSet[str]] | None = None,
) -> Compaction:
    """Compact as asked. Every surface comes through here. `location` is where the originals will rest.

    `archived` gives the ids of the originals that earlier compactions of the same conversation have archived.
    With a `teller` a model tells the story of what is folded, where that leaves the context no worse; in a dry run the
    report says what it would be asked.
    """
    began = time.perf_counter()
    spoken = find_dialect(dialect, messages)
    refuse_depth(dicts_of(messages))
    given = spoken.parse(messages)
    steps, repairs = repair_with_indexes(given, spoken) if ask.settings.enabled else (list(enumerate(given)), [])
    read = [message for _, message in steps]
    scene = flow.parse_context(read, spoken, with_secrets=not ask.settings.redact_secrets)
    counter = request_counter(ask, spoken.name, count_tokens)
    usage = measure_context(scene, ask, counter)
    request = PreparedRequest(
        ask=ask,
        trigger=request_trigger(ask, usage),
        usage=usage,
        counter=counter,
        repairs=tuple(repair.what for repair in repairs),
        session_id=session_id,
        location=location,
        began=began,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        archived=archived,
    )
    is_one_message = ask.settings.layout == "record"
    layouts = ONE_MESSAGE_LAYOUTS if is_one_message else DEFAULT_LAYOUTS
    config = flow.EngineConfig(
        spoken,
        counter,
        DEFAULT_STRATEGIES,
        layouts,
        focus=ask.focus,
        steers=ask.steers or {},
        is_one_message=is_one_message,
    )
    made = _result_of(request, scene, config, teller, dry_run)
    if isinstance(made, Report):
        return _unchanged_compaction(scene.messages, made, usage, counter)
    return _changed_compaction(request, made, scene, lambda: turn_positions(scene, steps, len(given)))


def _result_of(
    request: PreparedRequest,
    scene: flow.ParsedContext,
    config: flow.EngineConfig,
    teller: Summarizer | None,
    dry_run: bool,
) -> CompactionResult | Report:
    """The compaction, told where there is a teller; a report alone when there is nothing to do."""
    goal = request_goal(request.ask, request.usage, request.trigger)
    if isinstance(goal, str):
        return unchanged_report(request, scene.messages, goal)
    made = build_result(request, goal, scene, flow.compact_context(scene, effective_goal(goal, request), config))
    if teller is None:
        return made
    asked = teller.expect if dry_run else teller.tell
    return traced("write")(asked)(request, goal, scene, config, made)


def _changed_compaction(
    request: PreparedRequest,
    made: CompactionResult,
    scene: flow.ParsedContext,
    spans: Callable[[], dict[int, tuple[int, int]]],
) -> Compaction:
    usage, counter, report = request.usage, request.counter, _with_cost(made.report, request.ask)
    if not report.changed or report.tokens_after == report.tokens_before:
        return _unchanged_compaction(scene.messages, report, usage, counter, made.decisions)
    out = [copy_containers(message.raw) for message in made.outcome.written.messages]
    return Compaction(
        out, report, made.decisions, usage, made.outcome.archive, counter.counter, tuple(scene.facts), spans()
    )


def _with_cost(report: Report, ask: CompactionRequest) -> Report:
    """The report with what it means for the agent's bill, where the agent's model is known."""
    if ask.model is None or not report.changed:
        return report
    from context_compactor.summarize.prices import agent_cost

    return structs.replace(report, cost=agent_cost(report, ask.model, ask.settings.prices))


def turn_positions(
    scene: flow.ParsedContext, steps: Sequence[tuple[int, Message]], given: int
) -> dict[int, tuple[int, int]]:
    """For each turn of a scene where its messages stand among those that were given, before `steps` repaired them."""
    return turn_spans(scene.turns, [*steps, *_position_behind_record(scene, steps)], given)


def _position_behind_record(
    scene: flow.ParsedContext, steps: Sequence[tuple[int, Message]]
) -> list[tuple[int, Message]]:
    """A message that stood behind the record in one and the same message has that message's place."""
    known = {id(message) for _, message in steps}
    rest = next((message for turn in scene.turns for message in turn.messages if id(message) not in known), None)
    place = next((place for place, message in steps if message.role not in ("system", "developer")), 0)
    return [(place, rest)] if rest is not None else []


@traced("measure")
def measure_context(scene: flow.ParsedContext, ask: CompactionRequest, counter: MessageCounter) -> Usage:
    """Weigh a context against the budget of its model."""
    budget = request_budget(ask, counter.dialect_name, counter.margin)
    return measure(
        split_turns(scene.messages),
        budget,
        counter,
        fixed_tokens=ask.settings.overhead_tokens,
        files_loaded=scene.verdicts.files.loaded,
        levels=ask.settings.levels,
    )


def request_counter(
    ask: CompactionRequest, dialect_name: str, count_tokens: Callable[[str], int] | None
) -> MessageCounter:
    """The counter for what was asked; a caller's own function is not remembered."""
    if count_tokens is not None:
        return message_counter_for(ask.model, dialect_name, count_tokens)
    return _cached_counter(ask.model, dialect_name)


@lru_cache(maxsize=16)
def _cached_counter(model: str | None, dialect_name: str) -> MessageCounter:
    """One counter for each model and dialect: a text that was counted once is never counted again."""
    return message_counter_for(model, dialect_name)


def _unchanged_compaction(
    messages: Sequence[Message],
    report: Report,
    usage: Usage,
    counter: MessageCounter,
    decisions: tuple[Decision, ...] = (),
) -> Compaction:
    out = [copy_containers(message.raw) for message in messages]
    return Compaction(out, report, decisions, usage, Archive(), counter.counter)
