"""What every verb of a session works with: its store, its settings, its counter, its clock, and its bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from context_compactor.app import counter_of, expecting_teller, spans_of, teller_for
from context_compactor.archive.shelve import index_archived
from context_compactor.ask import Ask, budget_of
from context_compactor.errors import CompactorError, DeletedSession, StoreError, UnknownSession
from context_compactor.events.bus import Bus
from context_compactor.events.event import EventType, make_event
from context_compactor.flow import Scene, read_scene
from context_compactor.measure.budget import Budget
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.boundaries import repair_steps
from context_compactor.messages.detect import find_dialect
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.message import Message
from context_compactor.protocols import Store
from context_compactor.session import gauge as gauging
from context_compactor.session.lens import Lens, Raw, Seen
from context_compactor.session.project import Project
from context_compactor.session.running import Running
from context_compactor.session.values import Gauge, Profile, State, read_state
from context_compactor.settings import Settings
from context_compactor.store.desk_rows import timestamp
from context_compactor.store.rows import SessionRow

if TYPE_CHECKING:
    from context_compactor.llm.model import Control, Step
    from context_compactor.session.watch import Watched
    from context_compactor.story import Teller

    Schedule = Callable[["Core", Watched], Watched]
    """Queues what a look at the gauge asks for, in the transaction of what was looked at; the look with its jobs."""

Clock = Callable[[], datetime]


def wall_clock() -> datetime:
    """The time of day."""
    return datetime.now(UTC)


class TakenApart(Struct, frozen=True):
    """A context, its scene, and which of its messages became which after what is illegal was repaired."""

    seen: Seen
    dialect: Dialect
    given: int
    steps: list[tuple[int, Message]]
    scene: Scene

    def spans(self) -> dict[int, tuple[int, int]]:
        """For each turn where its messages stand in the context."""
        return spans_of(self.scene, self.steps, self.given)


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
        origin: Core | None = None,
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
        self.lens = Lens(store, session_id)
        self.created_at: str = origin.created_at if origin else ""
        """When the session was made: one of the same name that was made at another time is another session."""
        self.running: Running = origin.running if origin else Running()
        self.idle_due_at = ""
        """Until then work for quiet times is known to wait."""
        self._budget: tuple[Profile, Settings, MessageCounter | None, Budget | None] = profile, settings, None, None
        self._origin = origin
        self._teller: Teller | None = None
        self._taken_apart: tuple[Seen, TakenApart] | None = None
        self.leave: Callable[[], None] = lambda: None
        """Ends what was subscribed for this session alone."""

    def twin(self) -> Core:
        """The same for another thread: what it has read is its own."""
        return Core(
            self.store,
            self.id,
            self.profile,
            self.settings,
            bus=self.bus,
            project=self.project,
            clock=self.clock,
            count_tokens=self.count_tokens,
            schedule=self.schedule,
            origin=self,
        )

    # Time and events

    def now(self) -> str:
        """The time, as it is stored."""
        return timestamp(self.clock())

    def seconds(self) -> float:
        """The time in seconds."""
        return self.clock().timestamp()

    def emit(self, kind: EventType, **payload: Any) -> None:
        """Tell whoever listens. A listener that fails stops nobody, and of a deleted session nothing more is told."""
        if self._is_deleted():
            return
        self.bus.emit(make_event(kind, self.id, payload, self.clock()))

    def without_secrets(self, value: Any) -> Any:
        """A value that is about to be written, with its secrets replaced when the settings say so."""
        if not self.settings.redact_secrets:
            return value
        from context_compactor.archive.redact import redact  # its patterns take time to build

        return redact(value).value

    # Reading messages

    def dialect(self, raws: Sequence[Mapping[str, Any]] | None = None) -> Dialect:
        """The session's dialect. While its messages do not tell, they are looked at each time."""
        if self.profile.dialect != "auto":
            return find_dialect(self.profile.dialect, raws or ())
        return find_dialect("auto", list(raws) if raws is not None else self.seen().raws)

    def counter(self, dialect: Dialect) -> MessageCounter:
        """The counter for the session's model."""
        return counter_of(self.ask(), dialect.name, self.count_tokens)

    def budget(self, counter: MessageCounter) -> Budget:
        """What a request may hold. It is asked for with every message, and hardly ever another one."""
        profile, settings, known, budget = self._budget
        if budget is None or profile is not self.profile or settings is not self.settings or known is not counter:
            budget = budget_of(self.ask(), counter.dialect_name, counter.margin)
            self._budget = self.profile, self.settings, counter, budget
        return budget

    def ask(self, **more: Any) -> Ask:
        """A request to compact, with what is the same for all of them."""
        return Ask(window=self.profile.window, settings=self.settings, model=self.profile.model, **more)

    def teller(self) -> Teller | None:
        """Who tells stories with the model of the settings; opened once, when it is first needed."""
        if self._origin is not None:
            return self._origin.teller()
        if self._teller is None:
            self.use_teller(teller_for(self.settings))
        return self._teller

    def expecting(self) -> Teller | None:
        """Who says what would be asked, without asking anybody."""
        return self._teller or expecting_teller(self.settings)

    def use_teller(self, teller: Teller | None) -> None:
        """Have stories told by this one."""
        self._teller = teller
        if teller is not None:
            teller.watchers.append(self._heard)

    def _heard(self, step: Step) -> None:
        if step.kind == "retried":
            self.emit("job.retried", what="summary by a model", attempt=step.number, reason=step.reason)

    def cancel(self) -> None:
        """End a model's call that is under way; what waits for it raises `ModelStopped`."""
        self.running.cancel("compaction", "ahead")

    def end(self) -> None:
        """End what is under way, since the session closes. A twin leaves that to the one it was made from."""
        if self._origin is None:
            self.running.close()

    def seen(self, row: SessionRow | None = None) -> Seen:
        """The context as it is now."""
        return self.lens.now(row or self.row())

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
            "Try: open it again, which begins a new one."
        )

    def _is_deleted(self) -> bool:
        try:
            self.row()
        except UnknownSession:
            return True
        except StoreError:  # which is told elsewhere
            return False
        return False

    def take_apart(self, seen: Seen | None = None) -> TakenApart:
        """The context as it is now, or one that was seen, taken apart; once for each context."""
        seen = seen or self.seen()
        if self._taken_apart is None or self._taken_apart[0] is not seen:
            raws = raws_of(seen)
            dialect = self.dialect(raws)
            steps, _ = repair_steps(dialect.parse(raws), dialect)
            scene = read_scene([message for _, message in steps], dialect)
            self._taken_apart = seen, TakenApart(seen, dialect, len(raws), steps, scene)
        return self._taken_apart[1]

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
            self.lens.forget()
            self.idle_due_at = ""
            raise

    # What is remembered

    def gauge(self, row: SessionRow, state: State, counter: MessageCounter) -> Gauge:
        """The gauge of the context as it is now: as it was stored, or counted again when somebody else changed it."""
        gauge = state.gauge
        if (gauge.head, gauge.view, gauge.counter) == (row.head, row.view, counter.counter.name):
            return gauge
        seen = self.seen(row)
        counted = gauging.weigh(self.dialect(seen.raws).parse(seen.raws), counter)
        return structs.replace(counted, head=row.head, view=row.view)

    def save(self, state: State) -> None:
        """Keep the state."""
        self.store.save_state(self.id, msgspec.json.encode(state))

    def change(self, change: Callable[[State], State]) -> None:
        """Change the state whatever others have made of it meanwhile."""
        with self.writing() as row:
            self.save(change(read_state(row.state)))

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

    def keep_profile(self, profile: Profile) -> None:
        """The profile from now on, for other processes too."""
        self.profile = profile
        self.store.save_profile(self.id, msgspec.json.encode(profile))


def raws_of(seen: Seen) -> list[Raw]:
    """The conversation's own messages."""
    return [raw for _, raw in seen.own()]
