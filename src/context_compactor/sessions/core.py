"""What every operation on a session works with: its store, settings, counter, clock, bus, and the work under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from datetime import UTC, datetime
from math import inf
from threading import Condition, Event, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.storage import index_archived
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message
from context_compactor.dialects.repair import repair_with_indexes
from context_compactor.engine.classify import ParsedContext, parse_context, turn_positions
from context_compactor.engine.request import CompactionRequest, request_budget, request_counter
from context_compactor.errors import CompactorError, DeletedSession, StoreError, UnknownSession
from context_compactor.library import estimating_summarizer, summarizer_for
from context_compactor.protocols import Layout, Store, Strategy
from context_compactor.sessions.events import Bus
from context_compactor.sessions.log import ContextReader, Raw, SessionContext
from context_compactor.sessions.project import Project
from context_compactor.sessions.state import (
    Profile,
    SessionState,
    TokenGauge,
    explain_hidden,
    measure_messages,
    read_profile,
    read_session_state,
    tokens_now,
)
from context_compactor.settings import Settings
from context_compactor.store.events import EventType, make_event
from context_compactor.store.rows import SessionRow, timestamp
from context_compactor.summarize.model import Control
from context_compactor.tokens.budget import Budget
from context_compactor.tokens.counting import MessageCounter, PromptSize, declares_recall
from context_compactor.tokens.models import PromptCache, cache_seconds_for

WorkKind = Literal["compaction", "preparation"]
# A model that does not listen to its cancel is left behind; its thread ends with the program.
_MAX_CLOSE_SECONDS = 5.0
_POLL_SECONDS = 0.05
_HOUR = 3_600


class RunningWork:
    """The work of one open session, whichever threads do it. Only what is under way is ended, never what comes next."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._under_way: dict[Control, tuple[WorkKind, int]] = {}
        self._at_close: dict[object, Callable[[], None]] = {}
        self.is_closed = False
        """Whether the session is closed: from then on its store belongs to somebody else."""

    @contextmanager
    def begin(self, work: WorkKind) -> Iterator[Control]:
        """While the block runs, what it is ended by."""
        control = Control(inf, Event())
        with self._changed:
            self._under_way[control] = work, get_ident()
        try:
            yield control
        finally:
            with self._changed:
                del self._under_way[control]
                self._changed.notify_all()

    def has(self, work: WorkKind) -> bool:
        """Whether such work is under way."""
        with self._changed:
            return any(kind == work for kind, _ in self._under_way.values())

    def cancel(self, *kinds: WorkKind) -> bool:
        """End what is under way of these kinds; whether there was anything."""
        with self._changed:
            ended = [control for control, (work, _) in self._under_way.items() if work in kinds]
        for control in ended:
            control.cancel.set()
        return bool(ended)

    @contextmanager
    def or_at_close(self, cleanup: Callable[[], None]) -> Iterator[None]:
        """A block that may outlive the session: then `cleanup` is done before the session closes."""
        key = object()
        with self._changed:
            self._at_close[key] = cleanup
        try:
            yield
        finally:
            with self._changed:
                self._at_close.pop(key, None)

    def close(self) -> None:
        """Cancel preparation in other threads and wait for it; what does not end is left behind, its cleanup done."""
        give_up = monotonic() + _MAX_CLOSE_SECONDS
        with self._changed:
            while monotonic() < give_up and (running := self._preparing_elsewhere()):
                for control in running:  # again and again: what can be cancelled may only be about to begin
                    control.cancel.set()
                self._changed.wait(_POLL_SECONDS)
            self.is_closed = True
            left, self._at_close = list(self._at_close.values()), {}
        for cleanup in reversed(left):
            cleanup()

    def _preparing_elsewhere(self) -> list[Control]:
        own = get_ident()
        running = self._under_way.items()
        return [control for control, (work, thread) in running if work == "preparation" and thread != own]


if TYPE_CHECKING:
    from context_compactor.sessions.append import AppendOutcome
    from context_compactor.summarize.model import ModelStep
    from context_compactor.summarize.summarizer import ModelSummarizer

    Schedule = Callable[["Core", AppendOutcome], AppendOutcome]
    """Queues what an append leads to, in the transaction of the append; returns its outcome with the jobs."""

Clock = Callable[[], datetime]


def wall_clock() -> datetime:
    """The time of day."""
    return datetime.now(UTC)


class ParsedSession(Struct, frozen=True):
    """A context, parsed, and which of its messages became which after what is illegal was repaired."""

    context: SessionContext
    dialect: Dialect
    given: int
    steps: list[tuple[int, Message]]
    content: ParsedContext

    def spans(self) -> dict[int, tuple[int, int]]:
        """For each turn where its messages stand in the context."""
        return turn_positions(self.content, self.steps, self.given)


class Core:
    """The inside of a session."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        profile: Profile,
        settings: Settings,
        *,
        bus: Bus,
        project: Project | None,
        clock: Clock,
        count_tokens: Callable[[str], int] | None,
        schedule: Schedule | None = None,
    ) -> None:
        self.store = store
        self.id = session_id
        self.profile = profile
        self.settings = settings
        self.bus = bus
        self.project = project
        self.clock = clock
        self.count_tokens = count_tokens
        self.schedule = schedule
        """When set, what would be done at once or in a thread of this session is left to jobs, all but emergencies."""
        self.strategies: tuple[Strategy, ...] = ()
        self.layouts: tuple[Layout, ...] = ()
        self.context_reader = ContextReader(store, session_id)
        self.created_at = ""
        """When the session was made: one of the same name that was made at another time is another session."""
        self.running = RunningWork()
        self.idle_due_at = ""
        """Until then a job for quiet times is known to wait."""
        self.unsubscribe: Callable[[], None] = lambda: None
        """Ends what was subscribed for this session alone."""
        self._counters: dict[tuple[str, str | None], MessageCounter] = {}
        self._budget: tuple[Profile, Settings, MessageCounter, Budget] | None = None
        self._origin: Core | None = None
        self._summarizer: ModelSummarizer | None = None
        self._parsed: ParsedSession | None = None

    def clone(self) -> Core:
        """The same for another thread: what it has read is its own."""
        clone = copy(self)
        clone.reset_reading()
        clone.unsubscribe = lambda: None
        clone._origin, clone._summarizer = self, None
        return clone

    def reset_reading(self) -> None:
        """Have read nothing yet."""
        self.context_reader = ContextReader(self.store, self.id)
        self.idle_due_at = ""
        self._parsed = None

    # Time and events

    def now(self) -> str:
        """The time, as it is stored."""
        return timestamp(self.clock())

    def seconds(self) -> float:
        """The time in seconds."""
        return self.clock().timestamp()

    def emit(self, kind: EventType, **payload: Any) -> None:
        """Emit an event. A sink that fails stops nobody, and of a deleted session nothing more is emitted."""
        try:
            self.row()
        except UnknownSession:
            return
        except StoreError:
            pass  # whether it was deleted is not known, and what is wrong with the store is reported elsewhere
        self.bus.emit(make_event(kind, self.id, payload, self.clock()))

    def without_secrets(self, value: Any) -> Any:
        """A value that is about to be written, with its secrets replaced when the settings say so."""
        if not self.settings.redact_secrets:
            return value
        from context_compactor.archive.redaction import redact  # its patterns take time to build

        return redact(value).value

    # Reading messages

    def dialect(self, raws: Sequence[Mapping[str, Any]] | None = None) -> Dialect:
        """The session's dialect. While its messages do not show it, they are looked at each time."""
        if self.profile.dialect != "auto":
            return find_dialect(self.profile.dialect, raws or ()).for_model(self.model)
        found = find_dialect("auto", list(raws) if raws is not None else self.current_context().raws)
        return found.for_model(self.model)

    def counter(self, dialect: Dialect) -> MessageCounter:
        """The counter for the session's model. It is asked for with every message, and hardly ever another one."""
        key = dialect.name, self.profile.model
        known = self._counters.get(key)
        return known or self._counters.setdefault(key, request_counter(self.ask(), dialect.name, self.count_tokens))

    def budget(self, counter: MessageCounter) -> Budget:
        """What a request may hold."""
        if self._budget is not None:
            profile, settings, known, budget = self._budget
            if profile is self.profile and settings is self.settings and known is counter:
                return budget
        budget = request_budget(self.ask(), counter.dialect_name, counter.margin)
        self._budget = self.profile, self.settings, counter, budget
        return budget

    @property
    def model(self) -> str | None:
        """The model that runs the agent, where it is known."""
        return self.profile.model or self.settings.model

    @property
    def can_recall(self) -> bool:
        """Whether the agent can call a tool named `recall`."""
        known = self.settings.recall_tool
        return self.profile.offers_recall if known is None else known

    def ask(self, **more: Any) -> CompactionRequest:
        """A request to compact, with what is the same for all of them."""
        return CompactionRequest(
            window=self.profile.window,
            settings=self.settings,
            model=self.model,
            prompt=self.profile.prompt or PromptSize(),
            largest_prompt=self.profile.largest_prompt,
            can_recall=self.can_recall,
            **more,
        )

    def prompt_cache(self, state: SessionState) -> PromptCache:
        """What is known of the provider's cache of the conversation."""
        seconds = cache_seconds_for(self.model, self.settings.models)
        if state.is_hour_cache:
            seconds = max(seconds or 0, _HOUR)
        return PromptCache(self.seconds() - state.answered_at if state.answered_at else None, seconds)

    def summarizer(self) -> ModelSummarizer | None:
        """Who summarizes with the model of the settings; opened once, when it is first needed."""
        if self._origin is not None:
            return self._origin.summarizer()
        if self._summarizer is None:
            self.use_summarizer(summarizer_for(self.settings))
        return self._summarizer

    def estimating_summarizer(self) -> ModelSummarizer | None:
        """Who says what would be asked, without asking anybody."""
        return self._summarizer or estimating_summarizer(self.settings)

    def use_summarizer(self, summarizer: ModelSummarizer | None) -> None:
        """Have summaries written by this one."""
        self._summarizer = summarizer
        if summarizer is not None:
            summarizer.watchers.append(self._emit_retry)

    def _emit_retry(self, step: ModelStep) -> None:
        if step.kind == "retried":
            self.emit("job.retried", what="summary by a model", attempt=step.number, reason=step.reason)

    def cancel(self) -> bool:
        """End a model's call that is under way, whether there was one; what waits for it raises `ModelStopped`."""
        return self.running.cancel("compaction", "preparation")

    def end(self) -> None:
        """End what is under way, since the session closes. A clone leaves that to the one it was made from."""
        if self._origin is None:
            self.running.close()

    def current_context(self, row: SessionRow | None = None) -> SessionContext:
        """The context as it is now."""
        return self.context_reader.now(row or self.row())

    def row(self) -> SessionRow:
        """The session as it is now; `DeletedSession` when it is no longer there."""
        with self._found():
            row = self.store.session(self.id)
        self.refuse_other(row)
        return row

    def refuse_other(self, row: SessionRow) -> None:
        """Raise `DeletedSession` when what has the session's name by now is another one."""
        if self.created_at not in ("", row.created_at):
            raise self._deleted()

    @contextmanager
    def _found(self) -> Iterator[None]:
        try:
            yield
        except UnknownSession as error:
            raise self._deleted() from error

    def _deleted(self) -> DeletedSession:
        return DeletedSession(
            f"session {self.id!r:.80} was deleted while it was open, so nothing more is written to it. "
            "Try: open it again, which creates a new one."
        )

    def parse_context(self, context: SessionContext | None = None) -> ParsedSession:
        """The context as it is now, or one that was read, parsed; once for each context."""
        context = context or self.current_context()
        if self._parsed is None or self._parsed.context is not context:
            raws = conversation_raws(context)
            dialect = self.dialect(raws)
            steps, _ = repair_with_indexes(dialect.parse(raws), dialect)
            content = parse_context([message for _, message in steps], dialect)
            self._parsed = ParsedSession(context, dialect, len(raws), steps, content)
        return self._parsed

    @contextmanager
    def writing(self) -> Iterator[SessionRow]:
        """A transaction on the session. What was read in one that fails never was, so it is forgotten."""
        try:
            with ExitStack() as transaction:
                with self._found():
                    row = transaction.enter_context(self.store.writing(self.id))
                self.refuse_other(row)
                yield row
        except BaseException:
            self.context_reader.forget()
            self.idle_due_at = ""
            raise

    # What is remembered

    def gauge(self, row: SessionRow, state: SessionState, counter: MessageCounter) -> TokenGauge:
        """The gauge of the context as it is now: as it was stored, or counted again when somebody else changed it."""
        gauge, fixed = state.gauge, self.fixed_tokens(counter, row)
        if (gauge.head, gauge.view, gauge.counter) == (row.head, row.view, counter.counter.name):
            return gauge.with_fixed(fixed)
        context = self.current_context(row)
        counted = measure_messages(self.dialect(context.raws).parse(context.raws), counter, fixed)
        return structs.replace(counted, head=row.head, view=row.view)

    def fixed_tokens(self, counter: MessageCounter, row: SessionRow | None = None) -> int:
        """The tokens of the tools and the system prompt; with a row, as another process may have set them."""
        if row is not None:
            prompt = read_profile(row.profile).prompt
            if prompt != self.profile.prompt:
                self.profile = structs.replace(self.profile, prompt=prompt)
        return counter.fixed_tokens(self.profile.prompt or PromptSize()).total

    def set_prompt(self, tools: object, system: object) -> None:
        """The tools and the system prompt from now on, for other processes too; what is None is as it was."""
        if tools is None and system is None:
            return
        with self.writing() as row:
            counter = self.counter(self.dialect(self.current_context(row).raws))
            stored, state = read_profile(row.profile), read_session_state(row.state)
            prompt = counter.prompt_size(tools, system, stored.prompt)
            offers_recall = stored.offers_recall or (tools is not None and declares_recall(tools))
            if (prompt, offers_recall) == (stored.prompt, stored.offers_recall):
                return
            if stored.prompt is None:
                state = explain_hidden(state, counter.fixed_tokens(prompt).total)
            self.save_profile(structs.replace(stored, prompt=prompt, offers_recall=offers_recall))
            self.save(structs.replace(state, gauge=self.gauge(self.row(), state, counter)))

    def offer_recall(self) -> None:
        """Note that the agent has a tool named `recall`, so that what it reads may name it."""
        if not self.profile.offers_recall:
            with self.writing() as row:
                self.save_profile(structs.replace(read_profile(row.profile), offers_recall=True))

    def tokens(self, state: SessionState) -> int:
        """The tokens of the next request."""
        return tokens_now(state.gauge, state.calibration, self.settings.overhead_tokens)

    def save(self, state: SessionState) -> None:
        """Keep the state."""
        self.store.save_state(self.id, msgspec.json.encode(state))

    def change(self, change: Callable[[SessionState], SessionState]) -> None:
        """Change the state whatever others have made of it meanwhile."""
        with self.writing() as row:
            self.save(change(read_session_state(row.state)))

    def index(self, control: Control | None = None) -> None:
        """Put into the index what was archived, in transactions of its own, so that no search has to.

        What is missing afterwards the next search makes up for: so nothing that fails here is raised.
        """
        try:
            index_archived(self.store, self.id, control.cancel.is_set if control else lambda: False)
        except CompactorError as error:
            self.emit("job.dropped", what="index of the archive", reason=str(error))

    def note(self, name: str, value: Any) -> None:
        """Remember something small under a name."""
        self.change(lambda state: structs.replace(state, notes={**state.notes, name: value}))

    def save_profile(self, profile: Profile) -> None:
        """The profile from now on, for other processes too."""
        self.profile = profile
        self.store.save_profile(self.id, msgspec.json.encode(profile))


def conversation_raws(context: SessionContext) -> list[Raw]:
    """The conversation's own messages."""
    return [raw for _, raw in context.own()]
