"""Appending: make messages ready, shorten long outputs, write them in one transaction, and check which thresholds
they reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.originals import Original
from context_compactor.archive.storage import PreparedItem, prepare_items, store_items
from context_compactor.dialects.detection import distinctive_dialect, find_dialect, foreign_message, is_built_in
from context_compactor.dialects.dialect import Dialect, one_or_several, plain_messages
from context_compactor.dialects.messages import Message, ReportedUsage, Thinking, ToolResult, read_usage
from context_compactor.dialects.repair import repair
from context_compactor.dialects.turns import ToolUse, split_turns, without_recall
from context_compactor.engine.classify import parse_context, result_original
from context_compactor.engine.truncation import MAX_OUTPUT_TOKENS, truncate_output
from context_compactor.errors import BadMessage, BadSetting
from context_compactor.facts.tasks import find_task_boundary
from context_compactor.json_values import json_bytes
from context_compactor.sessions.core import Core, conversation_raws
from context_compactor.sessions.facts import lessons_text
from context_compactor.sessions.log import REPEATED, REVISION, Raw, Revision
from context_compactor.sessions.state import (
    ReplacedContext,
    SessionState,
    TokenGauge,
    add_messages,
    has_moment_without_open_calls,
    is_late_report,
    read_profile,
    read_session_state,
)
from context_compactor.settings import Level
from context_compactor.store.contents import PackedContent
from context_compactor.store.rows import MESSAGE, Job, SessionRow
from context_compactor.tokens.budget import (
    Budget,
    Suggestion,
    SuggestionCounters,
    Trigger,
    TriggerState,
    level_at,
    with_token_limit,
)
from context_compactor.tokens.counting import MessageCounter, message_bytes
from context_compactor.tokens.models import PromptCache

RETRY_SECONDS = 60.0
# No provider's cache forgets sooner.
_SHORTEST_CACHE = 60.0
# A level that could not be left fires again when the context has grown by so much.
_GROWTH_TO_RETRY = 1.05
# How much fuller than its threshold the context may get while a soft compaction waits for a task boundary.
_LONGEST_WAIT_SHARE = 0.05


class AppendOutcome(Struct, frozen=True):
    """What a check of the thresholds has found, and the jobs that were queued for it.

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
    expired_cache: PromptCache | None = None
    """The provider's cache, when it has expired and a compaction is worth suggesting for that."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing follows from it: there is no event to emit, and nothing to do now."""
        has_event = self.is_plateau or self.is_extraction_due or any(job.kind != "idle" for job in self.jobs)
        has_event = has_event or self.expired_cache is not None
        return self.trigger is None and not self.suggestions and not has_event


def check_thresholds(
    core: Core, state: SessionState, counter: MessageCounter, boundary: str = "", *, ignore_open_calls: bool = False
) -> tuple[SessionState, AppendOutcome]:
    """The state after its thresholds were checked, and what is to be done. While calls wait for results nothing is.

    Unless the caller knows of a moment at which none waited: whoever appends results together with the next calls
    leaves no other. A soft compaction waits for a task boundary, unless the caller knows that this is one.
    """
    if state.gauge.open_calls and not ignore_open_calls:
        return state, AppendOutcome()
    budget = core.budget(counter)
    tokens = core.tokens(state)
    size_share = state.gauge.bytes / budget.bytes
    now, trigger = _trigger_state(core, state, budget).observe(tokens, budget.tokens, core.seconds(), size_share)
    level, is_crossing = level_at(now.share, now.levels), trigger is not None
    if trigger is None and level is not None and 0 < state.attempted * _GROWTH_TO_RETRY <= tokens:
        trigger = Trigger("threshold", tokens, budget.tokens, level, size_share=size_share)
    if trigger is None and state.is_waiting and now.fired is Level.SOFT:
        trigger = Trigger("threshold", tokens, budget.tokens, Level.SOFT, size_share=size_share)
    boundary, is_waiting = _wait(core, trigger, now, now.share - state.share, boundary)
    counters, suggestions = _counters(core, state).observe(state.gauge.tool_results, len(state.gauge.files))
    plateau, is_plateau = state.plateau.observe(now.share)
    expired = _expired_cache(core, state, now) if trigger is None or is_waiting else None
    state = structs.replace(
        state,
        share=now.share,
        fired=now.fired or "",
        failed_at=now.failed_at,
        attempted=tokens if trigger and not is_waiting else state.attempted,
        is_waiting=is_waiting,
        counters=counters,
        plateau=plateau,
        is_cold_said=state.is_cold_said or expired is not None,
    )
    return state, AppendOutcome(
        trigger, is_crossing, boundary, is_waiting, suggestions, is_plateau, expired_cache=expired
    )


def _expired_cache(core: Core, state: SessionState, now: TriggerState) -> PromptCache | None:
    """The provider's cache when it has expired since the last reply and that was not said yet.

    Below the first target a compaction would bring nothing.
    """
    if state.is_cold_said or core.seconds() - state.answered_at < _SHORTEST_CACHE or now.share < now.levels[0].target:
        return None
    found = core.prompt_cache(state)
    return found if found.is_cold else None


def is_wanted(core: Core, outcome: AppendOutcome) -> bool:
    """Whether a check of the thresholds leads to a compaction."""
    by_counter = bool(outcome.suggestions) and core.settings.counters_compact
    is_due = outcome.trigger is not None and not outcome.is_waiting
    return core.settings.enabled and core.settings.automatic and (is_due or by_counter)


def is_urgent(core: Core, outcome: AppendOutcome) -> bool:
    """Whether that compaction waits for nobody."""
    is_emergency = outcome.trigger is not None and outcome.trigger.level is Level.EMERGENCY
    return is_emergency and is_wanted(core, outcome)


def is_left_to_jobs(core: Core, outcome: AppendOutcome) -> bool:
    """Whether that compaction is a job's business."""
    return core.schedule is not None and not is_urgent(core, outcome) and is_wanted(core, outcome)


def share_now(core: Core, state: SessionState) -> float:
    """How full the context is. `state.share` may be older: while calls wait for results nothing is checked."""
    return core.budget(core.counter(core.dialect())).share(core.tokens(state))


def with_level_unanswered(before: SessionState, state: SessionState) -> SessionState:
    """The state until an emergency is answered: when that never happens, the next check finds it again."""
    return structs.replace(
        state, share=before.share, fired=before.fired, failed_at=before.failed_at, attempted=before.attempted
    )


def with_level_answered(state: SessionState, trigger: Trigger) -> SessionState:
    """The state after a level was answered: it fires again when the context has grown."""
    return structs.replace(state, share=trigger.share, fired=trigger.level or "", attempted=trigger.current_tokens)


def _wait(core: Core, trigger: Trigger | None, now: TriggerState, step: float, boundary: str) -> tuple[str, bool]:
    """At which task boundary a soft compaction comes, and whether it waits for one.

    It waits while another step like the last one would not reach the next level, which brings the context down further.
    """
    settings = core.settings
    if trigger is None or trigger.level is not Level.SOFT or not (settings.wait_for_boundary and settings.automatic):
        return "", False
    found = boundary or _boundary(core)
    first, *others = sorted(rule.threshold for rule in now.levels)
    return found, not found and now.share + max(step, 0.0) < min(first + _LONGEST_WAIT_SHARE, *others, 1.0)


def _boundary(core: Core) -> str:
    raws = conversation_raws(core.current_context())
    return find_task_boundary(split_turns(core.dialect(raws).parse(raws)))


def measure_now(core: Core, row: SessionRow) -> tuple[SessionState, Trigger | None]:
    """The state with the gauge of the context that `row` stands for, and the trigger it pulls, if any.

    After an undo nothing does until the next message: what was taken back is not to come again by itself.
    """
    counter = core.counter(core.dialect(core.current_context(row).raws))
    state = read_session_state(row.state)
    state = structs.replace(state, gauge=core.gauge(row, state, counter))
    return state, None if state.held else _crossed(core, state, counter)


def is_level_due(core: Core, row: SessionRow, level: Level | None) -> bool:
    """Whether the context that `row` stands for is at a level or above; without one, whether a counter has run out.

    Between the check that asked for a compaction and its turn somebody else may have compacted.
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
    budget, size = core.budget(counter), state.gauge.bytes
    fresh = structs.replace(_trigger_state(core, state, budget), share=0.0, fired=None, failed_at=None)
    return fresh.observe(core.tokens(state), budget.tokens, core.seconds(), size / budget.bytes)[1]


def _trigger_state(core: Core, state: SessionState, budget: Budget) -> TriggerState:
    now, failed_at = core.seconds(), state.failed_at
    if failed_at is not None and now < failed_at:
        failed_at = now - RETRY_SECONDS  # a clock went backwards since: it has been waited for long enough
    return TriggerState(
        with_token_limit(core.settings.levels, core.settings.model_auto_compact_token_limit, budget.tokens),
        core.settings.rearm_margin,
        RETRY_SECONDS,
        state.share,
        Level(state.fired) if state.fired else None,
        failed_at,
    )


def _counters(core: Core, state: SessionState) -> SuggestionCounters:
    return structs.replace(
        state.counters, tool_step=core.settings.suggest_tool_results, file_limit=core.settings.suggest_files
    )


def after_context_change(core: Core, state: SessionState, counter: MessageCounter) -> SessionState:
    """The state after the context was changed on purpose: only growth from here on can pull a trigger."""
    budget, tokens = core.budget(counter), core.tokens(state)
    now = _trigger_state(core, state, budget).compacted(tokens, budget.tokens, state.gauge.bytes / budget.bytes)
    counters = _counters(core, state).compacted(state.gauge.tool_results, len(state.gauge.files))
    return structs.replace(
        state,
        share=now.share,
        fired=now.fired or "",
        failed_at=None,
        attempted=tokens if now.fired else 0,
        is_waiting=False,
        counters=counters,
        plateau=state.plateau.compacted(),
    )


def is_too_long(message: Message, counter: MessageCounter, most: int) -> bool:
    """Whether a message holds an output of more tokens than `most`, judged without counting where that is clear."""
    results = (part for part in message.parts if isinstance(part, ToolResult) and not part.media)
    return any(len(part.text) > most and counter.text(part.text) > most for part in results)


def shorten_outputs(
    messages: Sequence[Message],
    indexes: Sequence[int],
    dialect: Dialect,
    counter: MessageCounter,
    most: int,
    *,
    can_recall: bool = True,
) -> list[tuple[int, Raw, list[Original]]]:
    """The messages at these indexes with their long outputs cut: each with its index and the originals of the outputs.

    Their ids are those of the whole conversation. `can_recall` says whether the reader has a tool named `recall`.
    """
    content = parse_context(repair(messages, dialect)[0], dialect)  # ids are those of the history a compaction sees
    # The last one under a call's id is the one that has just come.
    exchanges = {each.result.call_id: each for turn in content.turns for each in turn.exchanges if each.result}
    found = []
    for at in indexes:
        message = messages[at]
        edits: dict[int, str | None] = {}
        originals: list[Original] = []
        for index, part in enumerate(message.parts):
            if not isinstance(part, ToolResult) or part.media or part.call_id not in exchanges:
                continue
            tokens, exchange = counter.text(part.text), exchanges[part.call_id]
            if tokens <= most:
                continue
            verdict = content.verdicts.exchanges[exchange.number]
            edits[index] = truncate_output(part.text, tokens, verdict, min(most, MAX_OUTPUT_TOKENS))
            originals.append(result_original(ToolUse(exchange.number, exchange.call, part), verdict))
        if not can_recall:
            edits = {index: text and without_recall(text) for index, text in edits.items()}
        edited = dialect.edit(message, edits) if edits else None
        if edited is not None:
            found.append((at, edited.raw, originals))
    return found


# A session that long has facts worth keeping even if nothing was compacted.
_EXTRACT_SECONDS = 30 * 60
# How often messages are made ready: others may write to the same session meanwhile.
_ATTEMPTS = 3


class ReadyShortening(Struct, frozen=True):
    """A message with a shorter output, ready to be written; `at` is its index among those that are appended."""

    at: int
    body: PackedContent
    ref: str
    items: list[PreparedItem]
    tokens: int
    bytes: int
    """How much less it is than the whole message."""


class ReadyMessages(Struct, frozen=True):
    """Messages ready to be appended: as they are stored, as they are read, and the tokens and bytes of each.

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
    message: object,
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
    reported = reported_usage(usage)
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


def make_ready(core: Core, message: object, *, shorten: bool = True) -> ReadyMessages:
    """Read, count, pack and shorten messages: all that takes long and needs no transaction. What is none is refused."""
    given = plain_messages(one_or_several(message))
    return _with_cuts(core, _read(core, core.without_secrets(given), shorten))


def _write(
    core: Core, ready: ReadyMessages, row: SessionRow, reported: ReportedUsage | None, within: Callable[[], None]
) -> AppendOutcome:
    within()
    ready = _in_its_dialect(core, ready, row)
    counter, state = ready.counter, read_session_state(row.state)
    gauge = core.gauge(row, state, counter)
    head = core.store.append(core.id, MESSAGE, ready.bodies, core.now(), ready.times)
    first = head - len(ready.raws) + 1
    repeated = _repeated(core, ready, state)
    state = structs.replace(state, last_message=ready.bodies[-1].hash)
    whole, ready = ready, _without(ready, repeated)
    after = add_messages(gauge, ready.messages, counter, ready.tokens, ready.sizes)
    answered = _answered(gauge, ready) if reported else 0
    state = _note_reply(core, _calibrate(state, gauge, after, answered, reported), whole, reported)
    state = structs.replace(state, gauge=structs.replace(state.gauge, head=head, view=row.view))
    state = _remind(core, whole, state, first - 1)
    state = _shorten(core, ready.cuts, state, first)
    state = _hide(core, whole, repeated, state, first)
    state = structs.replace(
        state,
        tool_calls=state.tool_calls + sum(len(message.calls) for message in ready.messages),
        appended_tokens=state.appended_tokens + sum(ready.tokens),
    )
    ignore_open_calls = has_moment_without_open_calls(gauge, ready.messages)
    before, (state, outcome) = state, check_thresholds(core, state, counter, ignore_open_calls=ignore_open_calls)
    core.save(with_level_unanswered(before, state) if is_urgent(core, outcome) else state)
    age = core.seconds() - datetime.fromisoformat(state.extracted_at or row.created_at).timestamp()
    outcome = structs.replace(
        outcome,
        is_extraction_due=core.settings.extract_facts and age >= _EXTRACT_SECONDS,
        messages=row.messages + len(whole.raws),
        tokens=state.gauge.tokens,
        share=share_now(core, state) if state.gauge.open_calls else state.share,
        fired=state.fired,
    )
    return core.schedule(core, outcome) if core.schedule else outcome


def _repeated(core: Core, ready: ReadyMessages, state: SessionState) -> frozenset[int]:
    """The indexes of messages that equal the one directly before, such as one that is sent again after a timeout."""
    if not core.settings.enabled:
        return frozenset()
    hashes = [state.last_message, *(body.hash for body in ready.bodies)]
    return frozenset(at for at, (before, own) in enumerate(pairwise(hashes)) if before == own)


def _without(ready: ReadyMessages, repeated: frozenset[int]) -> ReadyMessages:
    """What is counted and shortened of messages that are appended: each once. The cuts keep their indexes."""
    if not repeated:
        return ready
    kept = [at for at in range(len(ready.raws)) if at not in repeated]
    return structs.replace(
        ready,
        raws=[ready.raws[at] for at in kept],
        bodies=[ready.bodies[at] for at in kept],
        messages=[ready.messages[at] for at in kept],
        tokens=[ready.tokens[at] for at in kept],
        sizes=[ready.sizes[at] for at in kept],
        cuts=[cut for cut in ready.cuts if cut.at not in repeated],
    )


def _hide(core: Core, ready: ReadyMessages, repeated: frozenset[int], state: SessionState, first: int) -> SessionState:
    """Leave messages that came twice out of the context; the history has them."""
    if not repeated:
        return state
    revisions = [Revision(why=REPEATED, hash=ready.bodies[at].hash, position=first + at) for at in sorted(repeated)]
    head = core.store.append(core.id, REVISION, [msgspec.json.encode(each) for each in revisions], core.now())
    return structs.replace(state, gauge=structs.replace(state.gauge, head=head, view=head))


def _remind(core: Core, ready: ReadyMessages, state: SessionState, before: int) -> SessionState:
    """A new session begins with what others have learned, behind its instructions."""
    roles = (message.role for message in ready.messages)
    first = next((at for at, role in enumerate(roles) if role not in ("system", "developer")), None)
    if state.is_reminded or first is None or not core.settings.enabled:
        return state
    state = structs.replace(state, is_reminded=True)
    text = lessons_text(core)
    if not text:
        return state
    message = ready.dialect.user_text(text)
    (name,) = core.store.put([json_bytes(message.raw)])
    revision = Revision(why="memory", hash=name, after=before + first)
    head = core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())
    gauge = add_messages(state.gauge, [message], ready.counter)
    return structs.replace(state, gauge=structs.replace(gauge, head=head, view=head))


def _read(core: Core, raws: list[Raw], shorten: bool) -> ReadyMessages:
    """Refuse what is no message before anything is written."""
    found = distinctive_dialect(raws) if core.profile.dialect == "auto" else ""
    dialect = find_dialect(found, raws) if found else core.dialect(raws)
    messages, counter = _parse(core, dialect, raws), core.counter(dialect)
    bodies = core.store.ready([_body(raw, at) for at, raw in enumerate(raws)])
    sizes = [message_bytes(message) for message in messages]
    return ReadyMessages(raws, bodies, messages, dialect, counter, counter.count_many(messages), sizes, shorten)


def _parse(core: Core, dialect: Dialect, raws: list[Raw]) -> list[Message]:
    """The messages in the session's dialect; an error that names both when one is of another dialect.

    A dialect that the caller has named reads what it can; so does one that was registered, which may be another one's
    with something added.
    """
    is_found = core.profile.dialect != "auto" and not core.profile.is_dialect_named and is_built_in(dialect)
    foreign = foreign_message(dialect, raws) if is_found else None
    try:
        if foreign is None:
            return dialect.parse(raws)
    except BadMessage:
        foreign = foreign_message(dialect, raws)
        if foreign is None:
            raise
    index, other = foreign
    problem = (
        f"it is {other}, but session {core.id!r:.80} is {dialect.name}. "
        f"Try: convert it to {dialect.name}, or append it to a session of its own"
    )
    raise BadMessage(index, "message", problem)


def _in_its_dialect(core: Core, ready: ReadyMessages, row: SessionRow) -> ReadyMessages:
    """The messages in the session's dialect. The first that show it settle it, perhaps those of another process."""
    stored = read_profile(row.profile)
    if stored.dialect == "auto":
        found = distinctive_dialect(ready.raws)
        if found:
            core.save_profile(structs.replace(core.profile, dialect=found, prompt=stored.prompt))
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
    return add_messages(before, ready.messages[:end], ready.counter, ready.tokens[:end], ready.sizes[:end]).tokens


def _calibrate(
    state: SessionState, before: TokenGauge, after: TokenGauge, answered: int, reported: ReportedUsage | None
) -> SessionState:
    state = structs.replace(state, gauge=after, held=False)
    if reported is None or not reported.prompt:
        return state
    if is_late_report(state, before.tokens, reported.prompt):
        left = structs.replace(state.replaced, reports=state.replaced.reports - 1)
        return structs.replace(state, replaced=left)
    calibration = state.calibration.learn(before.tokens, reported.prompt)
    anchored = structs.replace(after, anchor=(reported.total, answered))
    return structs.replace(state, gauge=anchored, calibration=calibration, replaced=ReplacedContext())


def _note_reply(core: Core, state: SessionState, ready: ReadyMessages, reported: ReportedUsage | None) -> SessionState:
    """The state after a reply: when it came, and how long the provider keeps what it has cached for it.

    A prompt that is larger than the window was thought to be shows that it is not so small.
    """
    replies = [at for at, message in enumerate(ready.messages) if message.role == "assistant"]
    if not replies:
        return state
    is_window_set = (core.profile.window or core.settings.window) is not None
    if reported is not None and not is_window_set and reported.prompt > core.budget(ready.counter).window.tokens:
        core.save_profile(structs.replace(core.profile, largest_prompt=reported.prompt))
    at = datetime.fromisoformat(ready.times[replies[-1]]).timestamp() if ready.times else core.seconds()
    is_hour_cache = state.is_hour_cache
    if reported is not None and reported.cache_write:
        is_hour_cache = reported.cache_write_hour > 0
    return structs.replace(state, answered_at=at, is_hour_cache=is_hour_cache, is_cold_said=False)


def reported_usage(usage: object) -> ReportedUsage | None:
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
    # Reasoning is bound to all that was before it: an output that it was written behind stays as it was sent.
    thought = [any(isinstance(part, Thinking) for part in message.parts) for message in ready.messages]
    first = len(thought) - thought[::-1].index(True) if any(thought) else 0
    long = [at for at, message in enumerate(ready.messages) if at >= first and is_too_long(message, counter, most)]
    if not long:
        return ready
    row = row or core.row()
    before = conversation_raws(core.current_context(row))
    messages = ready.dialect.parse([*before, *ready.raws])
    cuts = []
    indexes = [len(before) + at for at in long]
    shortened = shorten_outputs(messages, indexes, ready.dialect, counter, most, can_recall=core.can_recall)
    for index, raw, originals in shortened:
        at, shorter = index - len(before), ready.dialect.parse([raw])[0]
        (body,) = core.store.ready([json_bytes(raw)])
        tokens, size = ready.tokens[at] - counter.count(shorter), ready.sizes[at] - message_bytes(shorter)
        items = prepare_items(originals, core.store)
        cuts.append(ReadyShortening(at, body, originals[0].id, items, tokens, size))
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
