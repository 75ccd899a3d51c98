"""Appending: make messages ready, shorten long outputs, write them in one transaction, and check which thresholds
they reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.originals import Original, result_original
from context_compactor.archive.storage import PreparedItem, prepare_items, store_items
from context_compactor.dialects.detection import distinctive_dialect, find_dialect
from context_compactor.dialects.dialect import Dialect, dicts_of, refuse_depth
from context_compactor.dialects.messages import Message, ReportedUsage, ToolResult, read_usage
from context_compactor.dialects.repair import repair
from context_compactor.dialects.turns import ToolUse, split_turns
from context_compactor.engine.compact import parse_context
from context_compactor.engine.truncation import MAX_OUTPUT_TOKENS, truncate_output
from context_compactor.errors import BadMessage, BadSetting
from context_compactor.facts.tasks import find_task_boundary
from context_compactor.json_values import json_bytes
from context_compactor.sessions import state as gauging
from context_compactor.sessions.core import Core, conversation_raws
from context_compactor.sessions.facts import lessons_text
from context_compactor.sessions.log import REVISION, Raw, Revision
from context_compactor.sessions.state import (
    ReplacedContext,
    SessionState,
    TokenGauge,
    read_profile,
    read_session_state,
    tokens_now,
)
from context_compactor.settings import Level
from context_compactor.store.contents import PackedContent
from context_compactor.store.rows import MESSAGE, Job, SessionRow
from context_compactor.tokens.budget import Budget, level_at
from context_compactor.tokens.counting import MessageCounter, message_bytes
from context_compactor.tokens.triggers import Suggestion, SuggestionCounters, Trigger, TriggerState, with_token_limit

RETRY_SECONDS = 60.0
# A level that could not be left fires again when the context has grown by so much.
_GROWTH_TO_RETRY = 1.05
# How much fuller than its threshold the context may get while a soft compaction waits for a task boundary.
_LONGEST_WAIT_SHARE = 0.05


class AppendOutcome(Struct, frozen=True):
    """What a look at the gauge has shown, and the jobs that were queued for it.

    `boundary` says at which task boundary a soft compaction comes; while it waits for one, `is_waiting`. After an
    append `messages` is how many there are in all, `tokens` and `share` how full the context is, and `fired` the level
    that was reached last and not left since.
    """

    trigger: Trigger | None = None
    is_crossing: bool = False
    boundary: str = ""
    is_waiting: bool = False
    suggestions: tuple[Suggestion, ...] = ()
    is_plateau: bool = False
    is_extraction_due: bool = False
    jobs: tuple[Job, ...] = ()
    messages: int = 0
    tokens: int = 0
    share: float = 0.0
    fired: str = ""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing follows from it: nobody is to be told, and nothing is to be done now."""
        is_told = self.is_plateau or self.is_extraction_due or any(job.kind != "idle" for job in self.jobs)
        return self.trigger is None and not self.suggestions and not is_told


def check_thresholds(
    core: Core, state: SessionState, counter: MessageCounter, boundary: str = "", *, is_at_rest: bool = False
) -> tuple[SessionState, AppendOutcome]:
    """The state after a look at its gauge, and what is to be done. While calls wait for results nothing is.

    Unless the caller knows of a moment at which none waited: whoever appends results together with the next calls
    leaves no other. A soft compaction waits for a task boundary, unless the caller knows that this is one.
    """
    if state.gauge.open_calls and not is_at_rest:
        return state, AppendOutcome()
    budget = core.budget(counter)
    tokens = tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)
    size_share = state.gauge.bytes / budget.bytes
    seen, trigger = _known(core, state, budget).observe(tokens, budget.tokens, core.seconds(), size_share)
    level, is_crossing = level_at(seen.share, seen.levels), trigger is not None
    if trigger is None and level is not None and 0 < state.attempted * _GROWTH_TO_RETRY <= tokens:
        trigger = Trigger("threshold", tokens, budget.tokens, level, size_share=size_share)
    if trigger is None and state.is_waiting and seen.fired is Level.SOFT:
        trigger = Trigger("threshold", tokens, budget.tokens, Level.SOFT, size_share=size_share)
    boundary, is_waiting = _wait(core, trigger, seen, seen.share - state.share, boundary)
    counters, suggestions = _counters(core, state).observe(state.gauge.tool_results, len(state.gauge.files))
    plateau, is_plateau = state.plateau.observe(seen.share)
    state = structs.replace(
        state,
        share=seen.share,
        fired=seen.fired or "",
        failed_at=seen.failed_at,
        attempted=tokens if trigger and not is_waiting else state.attempted,
        is_waiting=is_waiting,
        counters=counters,
        plateau=plateau,
    )
    return state, AppendOutcome(trigger, is_crossing, boundary, is_waiting, suggestions, is_plateau)


def is_wanted(core: Core, watched: AppendOutcome) -> bool:
    """Whether a look at the gauge leads to a compaction."""
    by_counter = bool(watched.suggestions) and core.settings.counters_compact
    is_due = watched.trigger is not None and not watched.is_waiting
    return core.settings.enabled and core.settings.automatic and (is_due or by_counter)


def is_urgent(core: Core, watched: AppendOutcome) -> bool:
    """Whether that compaction waits for nobody."""
    is_emergency = watched.trigger is not None and watched.trigger.level is Level.EMERGENCY
    return is_emergency and is_wanted(core, watched)


def is_left_to_jobs(core: Core, watched: AppendOutcome) -> bool:
    """Whether that compaction is a job's business."""
    return core.schedule is not None and not is_urgent(core, watched) and is_wanted(core, watched)


def share_now(core: Core, state: SessionState) -> float:
    """How full the context is. What the watch remembers may be older: while calls wait for results it does not look."""
    budget = core.budget(core.counter(core.dialect()))
    return budget.share(tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens))


def with_level_unanswered(before: SessionState, state: SessionState) -> SessionState:
    """The state until an emergency is answered: when that never happens, the next look sees it again."""
    return structs.replace(
        state, share=before.share, fired=before.fired, failed_at=before.failed_at, attempted=before.attempted
    )


def with_level_answered(state: SessionState, trigger: Trigger) -> SessionState:
    """The state after a level was answered: it fires again when the context has grown."""
    return structs.replace(state, share=trigger.share, fired=trigger.level or "", attempted=trigger.current_tokens)


def _wait(core: Core, trigger: Trigger | None, seen: TriggerState, step: float, boundary: str) -> tuple[str, bool]:
    """At which task boundary a soft compaction comes, and whether it waits for one.

    It waits while another step like the last one would not reach the next level, which brings the context down further.
    """
    settings = core.settings
    if trigger is None or trigger.level is not Level.SOFT or not (settings.wait_for_boundary and settings.automatic):
        return "", False
    found = boundary or _boundary(core)
    first, *others = sorted(rule.threshold for rule in seen.levels)
    return found, not found and seen.share + max(step, 0.0) < min(first + _LONGEST_WAIT_SHARE, *others, 1.0)


def _boundary(core: Core) -> str:
    raws = conversation_raws(core.seen(core.row()))
    return find_task_boundary(split_turns(core.dialect(raws).parse(raws)))


def measure_now(core: Core, row: SessionRow) -> tuple[SessionState, Trigger | None]:
    """The state with the gauge of the context that `row` stands for, and the trigger it pulls, if any.

    After an undo nothing does until the next message: what was taken back is not to come again by itself.
    """
    counter = core.counter(core.dialect(core.seen(row).raws))
    state = read_session_state(row.state)
    state = structs.replace(state, gauge=core.gauge(row, state, counter))
    return state, None if state.held else _crossed(core, state, counter)


def is_level_due(core: Core, row: SessionRow, level: Level | None) -> bool:
    """Whether the context that `row` stands for is at a level or above; without one, whether a counter has run out.

    Between the look that asked for a compaction and its turn somebody else may have compacted.
    """
    state, trigger = measure_now(core, row)
    if level is None:
        counters = structs.replace(_counters(core, state), next_tools=0, files_said=False)
        return bool(counters.observe(state.gauge.tool_results, len(state.gauge.files))[1])
    return trigger is not None and _threshold(core, trigger.level) >= _threshold(core, level)


def _threshold(core: Core, level: Level | None) -> float:
    return next((rule.threshold for rule in core.settings.levels if rule.level == level), 0.0)


def _crossed(core: Core, state: SessionState, counter: MessageCounter) -> Trigger | None:
    """The trigger that the gauge pulls as it is, whatever has fired before; None below all levels."""
    budget = core.budget(counter)
    tokens = tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)
    fresh = structs.replace(_known(core, state, budget), share=0.0, fired=None, failed_at=None)
    return fresh.observe(tokens, budget.tokens, core.seconds(), state.gauge.bytes / budget.bytes)[1]


def _known(core: Core, state: SessionState, budget: Budget) -> TriggerState:
    """The watch as the session remembers it."""
    limit = core.settings.model_auto_compact_token_limit
    return TriggerState(
        with_token_limit(core.settings.levels, limit, budget.tokens),
        core.settings.rearm_margin,
        RETRY_SECONDS,
        state.share,
        Level(state.fired) if state.fired else None,
        _failed_at(state.failed_at, core.seconds()),
    )


def _failed_at(failed_at: float | None, now: float) -> float | None:
    """A failure that lies in the future was before a clock went backwards: it has been waited for long enough."""
    return now - RETRY_SECONDS if failed_at is not None and now < failed_at else failed_at


def _counters(core: Core, state: SessionState) -> SuggestionCounters:
    return structs.replace(
        state.counters, tool_step=core.settings.suggest_tool_results, file_limit=core.settings.suggest_files
    )


def after_context_change(core: Core, state: SessionState, counter: MessageCounter) -> SessionState:
    """The state after the context was changed on purpose: only growth from here on can pull a trigger."""
    budget = core.budget(counter)
    tokens = tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)
    seen = _known(core, state, budget).compacted(tokens, budget.tokens, state.gauge.bytes / budget.bytes)
    counters = _counters(core, state).compacted(state.gauge.tool_results, len(state.gauge.files))
    return structs.replace(
        state,
        share=seen.share,
        fired=seen.fired or "",
        failed_at=None,
        attempted=tokens if seen.fired else 0,
        is_waiting=False,
        counters=counters,
        plateau=state.plateau.compacted(),
    )


class ShortenedMessage(Struct, frozen=True):
    """A message with a shorter output in it. `at` is its place among the messages of the context."""

    at: int
    raw: dict[str, Any]
    originals: tuple[Original, ...]


def is_too_long(message: Message, counter: MessageCounter, most: int) -> bool:
    """Whether a message holds an output of more tokens than `most`, judged without counting where that is clear."""
    return any(len(part.text) > most and counter.text(part.text) > most for part in _plain_results(message))


def _plain_results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult) and not part.media]


def shorten_outputs(
    messages: Sequence[Message], places: Sequence[int], dialect: Dialect, counter: MessageCounter, most: int
) -> list[ShortenedMessage]:
    """The messages at these places with their long outputs cut; the ids are those of the whole conversation."""
    scene = parse_context(repair(messages, dialect)[0], dialect)  # ids are those of the history a compaction sees
    # The last one under a call's id is the one that has just come.
    answered = [(each.result, each) for turn in scene.turns for each in turn.exchanges if each.result]
    exchanges = {result.call_id: exchange for result, exchange in answered}
    found: list[ShortenedMessage] = []
    for at in places:
        message = messages[at]
        edits: dict[int, str | None] = {}
        originals: list[Original] = []
        for index, part in enumerate(message.parts):
            exchange = exchanges.get(part.call_id) if isinstance(part, ToolResult) and not part.media else None
            if exchange is None or not isinstance(part, ToolResult) or counter.text(part.text) <= most:
                continue
            verdict = scene.verdicts.exchanges[exchange.number]
            edits[index] = truncate_output(part.text, counter.text(part.text), verdict, min(most, MAX_OUTPUT_TOKENS))
            originals.append(result_original(_with_result(exchange, part), verdict))
        edited = dialect.edit(message, edits) if edits else None
        if edited is not None:
            found.append(ShortenedMessage(at, edited.raw, tuple(originals)))
    return found


def _with_result(exchange: ToolUse, result: ToolResult) -> ToolUse:
    return ToolUse(exchange.number, exchange.call, result)


# A session that long has facts worth keeping even if nothing was compacted.
_EXTRACT_SECONDS = 30 * 60
# How often messages are made ready: others may write to the same session meanwhile.
_ATTEMPTS = 3


class ReadyShortening(Struct, frozen=True):
    """A message with a shorter output, ready to be written; `at` is its place among those that are appended."""

    at: int
    body: PackedContent
    ref: str
    items: list[PreparedItem]
    tokens: int
    bytes: int
    """How much less it is than the whole message."""


class ReadyMessages(Struct, frozen=True):
    """Messages ready to be appended: as they are stored, as they are read, and what each weighs.

    `cuts` are those whose outputs are too long. They are numbered by all that was said before, so they are right as
    long as the session is as it was at `base`, its head and view.
    """

    raws: list[Raw]
    bodies: list[PackedContent]
    messages: list[Message]
    dialect: Dialect
    counter: MessageCounter
    tokens: list[int]
    sizes: list[int]
    shorten: bool
    times: list[str] = []
    """When each was written, where that is known of any of them."""
    cuts: list[ReadyShortening] = []
    base: tuple[int, int] | None = None

    def fits(self, row: SessionRow) -> bool:
        """Whether it is right for a session as it is."""
        return self.base in (None, (row.head, row.view))


def append(
    core: Core,
    message: Mapping[str, Any] | Sequence[Mapping[str, Any]] | ReadyMessages,
    usage: object,
    within: Callable[[], None] = lambda: None,
    *,
    shorten: bool = True,
    times: Sequence[str] = (),
) -> AppendOutcome:
    """Append one message or several, all or none of them. `within` is called in the transaction and may refuse it.

    Without `shorten` outputs stay whole, however long: somebody else decides what the model sees. The original of one
    that is cut is put into the index in quiet time, or by the first search. `times` say when each was written, those
    that are empty now.
    """
    reported = _reported(usage)
    ready = message if isinstance(message, ReadyMessages) else make_ready(core, message, shorten=shorten)
    if any(times):
        ready = structs.replace(ready, times=[at or core.now() for at in times])
    if not ready.raws:
        return AppendOutcome()
    for _ in range(_ATTEMPTS - 1):
        with core.writing() as row:
            if ready.fits(row):
                return _write(core, ready, row, reported, within)
        ready = _with_cuts(core, ready)  # somebody else has written meanwhile: do it again, while nobody waits for it
    with core.writing() as row:
        return _write(core, ready if ready.fits(row) else _with_cuts(core, ready, row), row, reported, within)


def make_ready(
    core: Core, message: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, shorten: bool = True
) -> ReadyMessages:
    """Read, count, pack and shorten messages: all that takes long and needs no transaction. What is none is refused."""
    return _with_cuts(core, _read(core, _plain(core, message), shorten))


def _write(
    core: Core, ready: ReadyMessages, row: SessionRow, reported: ReportedUsage | None, within: Callable[[], None]
) -> AppendOutcome:
    within()
    ready = _in_its_dialect(core, ready, row)
    counter, state = ready.counter, read_session_state(row.state)
    gauge = core.gauge(row, state, counter)
    head = core.store.append(core.id, MESSAGE, ready.bodies, core.now(), ready.times)
    first = head - len(ready.raws) + 1
    after = gauging.add_messages(gauge, ready.messages, counter, ready.tokens, ready.sizes)
    answered = _answered(gauge, ready) if reported else 0
    state = _calibrate(state, gauge, after, answered, reported)
    state = structs.replace(state, gauge=structs.replace(state.gauge, head=head, view=row.view))
    state = _remind(core, ready, state, first - 1)
    state = _shorten(core, ready.cuts, state, first)
    state = structs.replace(
        state,
        tool_calls=state.tool_calls + sum(len(message.calls) for message in ready.messages),
        appended_tokens=state.appended_tokens + sum(ready.tokens),
    )
    is_at_rest = gauging.comes_to_rest(gauge, ready.messages)
    before, (state, watched) = state, check_thresholds(core, state, counter, is_at_rest=is_at_rest)
    core.save(with_level_unanswered(before, state) if is_urgent(core, watched) else state)
    is_due = core.settings.extract_facts and _age(core, state.extracted_at or row.created_at) >= _EXTRACT_SECONDS
    watched = structs.replace(
        watched,
        is_extraction_due=is_due,
        messages=row.messages + len(ready.raws),
        tokens=state.gauge.tokens,
        share=share_now(core, state) if state.gauge.open_calls else state.share,
        fired=state.fired,
    )
    return core.schedule(core, watched) if core.schedule else watched


def _age(core: Core, since: str) -> float:
    return core.seconds() - datetime.fromisoformat(since).timestamp()


def _remind(core: Core, ready: ReadyMessages, state: SessionState, before: int) -> SessionState:
    """A new session begins with what others have learned, behind its instructions."""
    told = [at for at, message in enumerate(ready.messages) if message.role not in ("system", "developer")]
    if state.is_reminded or not told or not core.settings.enabled:
        return state
    text = lessons_text(core)
    state = structs.replace(state, is_reminded=True)
    if not text:
        return state
    message = ready.dialect.user_text(text)
    (name,) = core.store.put([json_bytes(message.raw)])
    revision = Revision(why="memory", hash=name, after=before + told[0])
    head = core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())
    gauge = gauging.add_messages(state.gauge, [message], ready.counter)
    return structs.replace(state, gauge=structs.replace(gauge, head=head, view=head))


def _plain(core: Core, message: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Raw]:
    given = dicts_of([message] if isinstance(message, Mapping) else message)
    refuse_depth(given)
    raws: list[Raw] = core.without_secrets(given)
    return raws


def _read(core: Core, raws: list[Raw], shorten: bool) -> ReadyMessages:
    """Refuse what is no message before anything is written."""
    told = distinctive_dialect(raws) if core.profile.dialect == "auto" else ""
    dialect = find_dialect(told, raws) if told else core.dialect(raws)
    messages, counter = dialect.parse(raws), core.counter(dialect)
    bodies = core.store.ready([_body(raw, at) for at, raw in enumerate(raws)])
    sizes = [message_bytes(message) for message in messages]
    return ReadyMessages(raws, bodies, messages, dialect, counter, counter.count_many(messages), sizes, shorten)


def _in_its_dialect(core: Core, ready: ReadyMessages, row: SessionRow) -> ReadyMessages:
    """The messages as the session speaks. The first that tell settle it, perhaps those of another process."""
    stored = read_profile(row.profile)
    if stored.dialect == "auto":
        told = distinctive_dialect(ready.raws)
        if told:
            core.keep_profile(structs.replace(core.profile, dialect=told))
        return ready
    if core.profile.dialect != stored.dialect:
        core.profile = structs.replace(core.profile, dialect=stored.dialect)
    if ready.dialect.name == stored.dialect:
        return ready
    again = structs.replace(_read(core, ready.raws, ready.shorten), times=ready.times)
    return _with_cuts(core, again, row)


def _body(raw: Raw, at: int) -> bytes:
    try:
        return json_bytes(raw)
    except ValueError as error:
        raise BadMessage(at, "message", f"{error}; a message can only contain JSON values") from error


def _answered(before: TokenGauge, ready: ReadyMessages) -> int:
    """Our count up to and with the reply: what a provider reports ends there, whatever came with it."""
    replies = [at for at, message in enumerate(ready.messages) if message.role == "assistant"]
    if not replies:
        return before.tokens
    end = replies[-1] + 1
    return gauging.add_messages(
        before, ready.messages[:end], ready.counter, ready.tokens[:end], ready.sizes[:end]
    ).tokens


def _calibrate(
    state: SessionState, before: TokenGauge, after: TokenGauge, answered: int, reported: ReportedUsage | None
) -> SessionState:
    state = structs.replace(state, gauge=after, held=False)
    if reported is None or not reported.prompt:
        return state
    if gauging.is_late_report(state, before.tokens, reported.prompt):
        left = structs.replace(state.replaced, reports=state.replaced.reports - 1)
        return structs.replace(state, replaced=left)
    calibration = state.calibration.learn(before.tokens, reported.prompt)
    anchored = structs.replace(after, anchor=(reported.total, answered))
    return structs.replace(state, gauge=anchored, calibration=calibration, replaced=ReplacedContext())


def _reported(usage: object) -> ReportedUsage | None:
    """What a provider reported, as its dictionary or as the object of its library."""
    if usage is None:
        return None
    plain = usage.model_dump() if hasattr(usage, "model_dump") else usage
    if isinstance(plain, Struct):
        plain = msgspec.to_builtins(plain)
    if not isinstance(plain, Mapping):
        raise BadSetting(
            f"usage: {usage!r:.60} is not a usage report. Try: pass the `usage` of the provider's response unchanged."
        )
    return read_usage(plain)


def _with_cuts(core: Core, ready: ReadyMessages, row: SessionRow | None = None) -> ReadyMessages:
    """Cut outputs that are too long, for the session as it is."""
    if not ready.shorten or not core.settings.enabled:
        return ready
    counter, most = ready.counter, core.settings.max_output_tokens
    long = [at for at, message in enumerate(ready.messages) if is_too_long(message, counter, most)]
    if not long:
        return ready
    row = row or core.row()
    before = conversation_raws(core.seen(row))
    messages = ready.dialect.parse([*before, *ready.raws])
    places = [len(before) + at for at in long]
    cuts = []
    for cut in shorten_outputs(messages, places, ready.dialect, counter, most):
        at, shorter = cut.at - len(before), ready.dialect.parse([cut.raw])[0]
        (body,) = core.store.ready([json_bytes(cut.raw)])
        tokens, size = ready.tokens[at] - counter.count(shorter), ready.sizes[at] - message_bytes(shorter)
        cuts.append(
            ReadyShortening(at, body, cut.originals[0].id, prepare_items(cut.originals, core.store), tokens, size)
        )
    return structs.replace(ready, cuts=cuts, base=(row.head, row.view))


def _shorten(core: Core, cuts: Sequence[ReadyShortening], state: SessionState, first: int) -> SessionState:
    """Show shorter outputs in the place of long ones, the originals archived in the same transaction."""
    if not cuts:
        return state
    items = store_items([item for cut in cuts for item in cut.items], core.store)
    core.store.archive(core.id, items, core.now())
    core.store.put([cut.body for cut in cuts])
    revisions = [Revision(why="shortened", hash=cut.body.hash, position=first + cut.at, ref=cut.ref) for cut in cuts]
    head = core.store.append(core.id, REVISION, [msgspec.json.encode(each) for each in revisions], core.now())
    gauge = structs.replace(
        state.gauge,
        tokens=state.gauge.tokens - sum(cut.tokens for cut in cuts),
        bytes=state.gauge.bytes - sum(cut.bytes for cut in cuts),
        head=head,
        view=head,
    )
    return structs.replace(state, gauge=gauge)
