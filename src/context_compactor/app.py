"""The verbs every surface calls: compact a list of messages, or show what that would do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct, structs

from context_compactor import flow
from context_compactor.archive.archive import Archive, Original
from context_compactor.archive.conversation import TURN, Beside, neighbours, read_aloud, results_beside, turn_entry
from context_compactor.archive.search.hits import Hit
from context_compactor.archive.search.passages import texts_of
from context_compactor.archive.search.search import Searcher
from context_compactor.archive.spans import turn_spans
from context_compactor.ask import Ask, budget_of, goal_of, trigger_of
from context_compactor.errors import BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.levels import Level
from context_compactor.measure.count import MessageCounter, message_counter_for
from context_compactor.measure.usage import Usage, measure
from context_compactor.messages.boundaries import repair_steps
from context_compactor.messages.copying import copy_containers
from context_compactor.messages.depth import refuse_depth
from context_compactor.messages.detect import find_dialect
from context_compactor.messages.dialect import dicts_of
from context_compactor.messages.message import Message
from context_compactor.messages.turn import split_turns
from context_compactor.plan.plan import Decision
from context_compactor.protocols import Model, Store, TokenCounter
from context_compactor.report import Report
from context_compactor.settings import LayoutName, Settings, load_settings
from context_compactor.settle import Request, Settled, Storyteller, aim, settle, unchanged
from context_compactor.strategies import DEFAULT_STRATEGIES, LAYOUT_LADDER, ONE_MESSAGE
from context_compactor.tracing import traced

if TYPE_CHECKING:
    from context_compactor.llm.model import Step
    from context_compactor.story import Teller


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
        return read_aloud(every[at], Beside(*neighbours(entries, ref), results_beside(every, at)))

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
    model: str | Model | None = None,
    layout: LayoutName = "auto",
    dialect: str = "auto",
    count_tokens: Callable[[str], int] | None = None,
    settings: Settings | None = None,
    store: str | None = None,
) -> Compaction:
    """Bring a list of messages under its target, or leave it alone when it is small enough.

    With `target_tokens` the result has at most that many; with `level` that level's target of the window; with only a
    window it is compacted when a level's threshold is reached. The input is never changed. With `store` the originals
    are kept there as well, under the session that `report.session_id` names. A `model`, by its name or as an object,
    tells the story of what is folded; without one, nor one in the settings, nothing leaves the machine. `layout` is
    `tail` (the record, then the newest turns) or `record` (one message); `auto` is what the settings say.
    """
    settings = with_layout(settings or load_settings().settings, layout)
    ask = Ask(window, target_tokens, level_of(level), focus or "", settings)
    teller = teller_for(ask.settings, model)
    if store is None:
        return run(messages, ask, dialect=dialect, count_tokens=count_tokens, teller=teller)
    from context_compactor.store.address import without_password
    from context_compactor.store.connect import connect

    with closing(connect(store)) as kept:
        place = without_password(store)
        made = run(messages, ask, dialect=dialect, count_tokens=count_tokens, location=place, teller=teller)
        return keep_originals(made, kept, without_secrets=ask.settings.redact_secrets)


async def acompact(
    messages: Sequence[dict[str, Any]],
    *,
    window: int | None = None,
    target_tokens: int | None = None,
    level: str | None = None,
    focus: str | None = None,
    model: str | Model | None = None,
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


def teller_for(
    settings: Settings,
    model: str | Model | None = None,
    on_text: Callable[[str], None] | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Teller | None:
    """Who tells the story: the model that is named, else that of the settings. Without either nothing is imported.

    `on_text` is shown the text while it is written, `on_step` each call and each retry.
    """
    wanted = settings.model if model is None else model
    if wanted is None:
        return None
    from context_compactor.story import open_teller

    return open_teller(wanted, settings, on_text, on_step)


def expecting_teller(settings: Settings) -> Teller | None:
    """One that only says what would be asked of the model of the settings: it needs no key and can send nothing."""
    if settings.model is None:
        return None
    from context_compactor.llm.names import name_model
    from context_compactor.story import open_teller

    return open_teller(name_model(settings.model, settings), settings)


def keep_originals(result: Compaction, store: Store, *, without_secrets: bool = False) -> Compaction:
    """The result with its originals in a store, where other processes can recall them."""
    from context_compactor.archive.redact import redact
    from context_compactor.archive.shelve import index_archived, keep_items, ready_items

    if not len(result.archive):
        return result
    session_id = result.report.compaction_id
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    store.open_session(session_id, b"{}", now)
    originals = list(result.archive)
    ready = ready_items(redact(originals).value if without_secrets else originals, store)
    with store.writing(session_id):
        store.archive(session_id, keep_items(ready, store), now)
    index_archived(store, session_id)
    return structs.replace(result, report=structs.replace(result.report, session_id=session_id))


def level_of(level: str | None) -> Level | None:
    """The level of this name."""
    try:
        return None if level is None else Level(level)
    except ValueError:
        raise BadSetting(f"unknown level {level!r:.40}; known levels: {', '.join(Level)}") from None


def told_of(report: Report) -> dict[str, Any]:
    """What the span of a compaction says of it: numbers and names, and nothing that was said."""
    names = ("status", "trigger", "session_id", "tokens_before", "tokens_after", "messages_before", "messages_after")
    return {"level": report.level or "none", **{name: getattr(report, name) for name in names}}


@traced("compact", lambda made: told_of(made.report))
def run(
    messages: Sequence[dict[str, Any]],
    ask: Ask,
    *,
    dialect: str = "auto",
    count_tokens: Callable[[str], int] | None = None,
    session_id: str = "",
    location: str = "memory",
    teller: Storyteller | None = None,
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
    steps, repairs = repair_steps(given, spoken) if ask.settings.enabled else (list(enumerate(given)), [])
    read = [message for _, message in steps]
    scene = flow.read_scene(read, spoken, tells_secrets=not ask.settings.redact_secrets)
    counter = counter_of(ask, spoken.name, count_tokens)
    usage = measure_scene(scene, ask, counter)
    request = Request(
        ask=ask,
        trigger=trigger_of(ask, usage),
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
    ladder = ONE_MESSAGE if is_one_message else LAYOUT_LADDER
    kit = flow.Kit(
        spoken,
        counter,
        DEFAULT_STRATEGIES,
        ladder,
        focus=ask.focus,
        steers=ask.steers or {},
        is_one_message=is_one_message,
    )
    made = _settled(request, scene, kit, teller, dry_run)
    if isinstance(made, Report):
        return _unchanged(scene.messages, made, usage, counter)
    return _compaction(request, made, scene, lambda: spans_of(scene, steps, len(given)))


def _settled(
    request: Request, scene: flow.Scene, kit: flow.Kit, teller: Storyteller | None, dry_run: bool
) -> Settled | Report:
    """The compaction, told where there is a teller; a report alone when there is nothing to do."""
    goal = goal_of(request.ask, request.usage, request.trigger)
    if isinstance(goal, str):
        return unchanged(request, scene.messages, goal)
    made = settle(request, goal, scene, flow.compact(scene, aim(goal, request), kit))
    if teller is None:
        return made
    asked = teller.expect if dry_run else teller.tell
    return traced("write")(asked)(request, goal, scene, kit, made)


def _compaction(
    request: Request, made: Settled, scene: flow.Scene, spans: Callable[[], dict[int, tuple[int, int]]]
) -> Compaction:
    usage, counter, report = request.usage, request.counter, _with_cost(made.report, request.ask)
    if not report.changed or report.tokens_after == report.tokens_before:
        return _unchanged(scene.messages, report, usage, counter, made.decisions)
    out = [copy_containers(message.raw) for message in made.outcome.written.messages]
    return Compaction(
        out, report, made.decisions, usage, made.outcome.archive, counter.counter, tuple(scene.facts), spans()
    )


def _with_cost(report: Report, ask: Ask) -> Report:
    """The report with what it means for the agent's bill, where the agent's model is known."""
    if ask.model is None or not report.changed:
        return report
    from context_compactor.llm.savings import cost_of

    return structs.replace(report, cost=cost_of(report, ask.model, ask.settings.prices))


def spans_of(scene: flow.Scene, steps: Sequence[tuple[int, Message]], given: int) -> dict[int, tuple[int, int]]:
    """For each turn of a scene where its messages stand among those that were given, before `steps` repaired them."""
    return turn_spans(scene.turns, [*steps, *_record_place(scene, steps)], given)


def _record_place(scene: flow.Scene, steps: Sequence[tuple[int, Message]]) -> list[tuple[int, Message]]:
    """A message that stood behind the record in one and the same message has that message's place."""
    known = {id(message) for _, message in steps}
    rest = next((message for turn in scene.turns for message in turn.messages if id(message) not in known), None)
    place = next((place for place, message in steps if message.role not in ("system", "developer")), 0)
    return [(place, rest)] if rest is not None else []


@traced("measure")
def measure_scene(scene: flow.Scene, ask: Ask, counter: MessageCounter) -> Usage:
    """Weigh a context against the budget of its model."""
    budget = budget_of(ask, counter.dialect_name, counter.margin)
    return measure(
        split_turns(scene.messages),
        budget,
        counter,
        fixed_tokens=ask.settings.overhead_tokens,
        files_loaded=scene.verdicts.files.loaded,
        levels=ask.settings.levels,
    )


def counter_of(ask: Ask, dialect_name: str, count_tokens: Callable[[str], int] | None) -> MessageCounter:
    """The counter for what was asked; a caller's own function is not remembered."""
    if count_tokens is not None:
        return message_counter_for(ask.model, dialect_name, count_tokens)
    return _counter(ask.model, dialect_name)


@lru_cache(maxsize=16)
def _counter(model: str | None, dialect_name: str) -> MessageCounter:
    """One counter for each model and dialect: a text that was counted once is never counted again."""
    return message_counter_for(model, dialect_name)


def _unchanged(
    messages: Sequence[Message],
    report: Report,
    usage: Usage,
    counter: MessageCounter,
    decisions: tuple[Decision, ...] = (),
) -> Compaction:
    out = [copy_containers(message.raw) for message in messages]
    return Compaction(out, report, decisions, usage, Archive(), counter.counter)
