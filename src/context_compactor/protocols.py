"""The shapes you may implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from context_compactor.engine.layouts import Room, Zone
    from context_compactor.engine.options import Option
    from context_compactor.engine.view import PlanningView
    from context_compactor.store.contents import PackedContent
    from context_compactor.store.event_log import EventTable
    from context_compactor.store.events import Event
    from context_compactor.store.idempotency import IdempotencyTable
    from context_compactor.store.jobs import JobTable
    from context_compactor.store.proxied import ProxyTable
    from context_compactor.store.rows import (
        FactRow,
        FoundRun,
        IndexPart,
        LineageEntry,
        LogEntry,
        NewOriginal,
        OriginalRow,
        SessionRow,
        Unindexed,
    )
    from context_compactor.store.webhooks import AttemptTable, WebhookTable
    from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens the way one model does.

    `name` is what a report calls it; `margin` is the share by which the truth may be higher (0.0 when exact).
    """

    name: str
    margin: float

    def count(self, text: str) -> int:
        """The tokens of one text."""

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text; one call is cheaper than many."""


@runtime_checkable
class Strategy(Protocol):
    """A way to save tokens: looks at a conversation and proposes options. It changes nothing itself."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def propose(self, view: PlanningView) -> Iterable[Option]:
        """Options for any of the view's sources."""


@runtime_checkable
class Layout(Protocol):
    """Decides which turns stay, which are shortened in place and which are folded."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """The zone of every turn by its number, or None when this layout does not serve here."""


class Model(Protocol):
    """A model that writes. Any thread may call it, and several at once.

    `name` is what the user called it, `window` the tokens it accepts in one request, `most_output` the largest answer.
    It has to listen to `control` while it writes: nobody else ends a call that is cancelled or past its deadline.
    """

    name: str
    window: int
    most_output: int

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """Its answer, or a `ModelError`, which says in `billed` whether the call may have to be paid for."""


class Store(Protocol):
    """Where sessions are stored. It keeps bytes and knows nothing of messages; `tests/store` says what it must do.

    Entries are only ever added. Whatever returns has been written to the disk; whatever raises has written nothing.
    Every verb may be called from any thread, and other processes may use the same store at the same time.
    """

    path: str

    def close(self) -> None:
        """Give back what is held."""

    def open_session(self, session_id: str, profile: bytes, now: str) -> SessionRow:
        """The session of this id; it is made when there is none."""

    def session(self, session_id: str) -> SessionRow:
        """The session of this id, as it is now, or `UnknownSession`."""

    def sessions(self, *, limit: int = -1, after: str = "") -> list[SessionRow]:
        """Sessions by their ids, those behind `after`."""

    def save_profile(self, session_id: str, profile: bytes) -> None:
        """What the session is from now on."""

    def save_state(self, session_id: str, state: bytes) -> None:
        """What the session wants to remember beside its log."""

    def writing(self, session_id: str) -> AbstractContextManager[SessionRow]:
        """The session as it is; until the end of the block nobody else writes to it, and all happens or nothing.

        A block within another belongs to it: when it raises, the other one cannot be kept either.
        """

    def append(
        self, session_id: str, kind: str, bodies: Iterable[bytes | PackedContent], now: str, times: Sequence[str] = ()
    ) -> int:
        """Add entries of a kind behind the last one; the position of the last of them.

        `times` are those of the entries where they are not from `now`.
        """

    def entries(
        self, session_id: str, *, kinds: Sequence[str] = (), after: int = 0, until: int | None = None
    ) -> list[LogEntry]:
        """Entries in order, those behind `after` and up to `until`."""

    def message_position(self, session_id: str, count: int) -> int | None:
        """The position of the message with so many messages up to and with it; None when there are fewer."""

    def fork(self, session_id: str, new_id: str, until: int, now: str) -> SessionRow:
        """A new session with profile, log and lineage of another one up to a position; `SessionExists` if there is one.

        The archive, the facts and the state are not copied.
        """

    def lineage(self, session_id: str, after: int = 0) -> list[LineageEntry]:
        """What the messages behind number `after` say, by their numbers, as far as it was noted."""

    def lineage_ends(self, session_id: str) -> tuple[LineageEntry, LineageEntry] | None:
        """The same for the first and the last message of which it was noted; None when it was for none."""

    def add_lineage(self, session_id: str, entries: Iterable[LineageEntry]) -> None:
        """Note what messages say."""

    def ready(self, contents: Iterable[bytes]) -> list[PackedContent]:
        """Contents made ready to be put or appended: what takes long is done before anybody waits for it."""

    def ready_list(self, parts: Sequence[bytes]) -> list[PackedContent]:
        """A JSON list whose values are contents of their own, made ready to be put; the list is the last of them."""

    def put(self, contents: Iterable[bytes | PackedContent]) -> list[str]:
        """Keep contents under their hashes, each once."""

    def get(self, hashes: Iterable[str]) -> dict[str, bytes]:
        """Contents by their hashes, each checked against it, or `DamagedContent`."""

    def archive(self, session_id: str, items: Sequence[NewOriginal], now: str) -> list[str]:
        """Put originals into the archive; the ids of those that were not there. The first under an id stays.

        That one is not `is_indexed` is noted in the same transaction, until `index` has put all of it into the index.
        """

    def unindexed(self, session_id: str) -> list[Unindexed]:
        """The originals of which the index does not have all passages yet, in the order of archiving."""

    def index(self, session_id: str, parts: Sequence[IndexPart]) -> dict[int, int]:
        """Put runs of unindexed originals into the index, each where it follows what is there; else it is left out.

        For those of the originals that are not whole yet: how many passages the index has now. Somebody else may index
        the same original at the same time.
        """

    def original(self, session_id: str, ref: str) -> OriginalRow | None:
        """The original under an id."""

    def originals(
        self,
        session_id: str,
        *,
        kind: str = "",
        since: str = "",
        until: str = "",
        after: int = 0,
        limit: int = 0,
        newest: int = 0,
    ) -> list[OriginalRow]:
        """The originals of a session in the order in which they were archived.

        Of those behind `after` only the first `limit`, or the `newest`, if given.
        """

    def search(
        self,
        session_id: str,
        terms: Mapping[str, float],
        *,
        most: int,
        kind: str = "",
        since: str = "",
        until: str = "",
    ) -> list[FoundRun]:
        """Runs of passages of this session, in their order, of about `most` characters; all while there are few.

        Of many, those that hold the rarest terms, with their neighbours; without a term the newest.
        """

    def beginnings(self, session_id: str, refs: Sequence[str], most: int) -> list[FoundRun]:
        """The first runs of passages of some originals, in their order, of about `most` passages of each."""

    def put_facts(self, session_id: str, facts: Iterable[FactRow], now: str) -> None:
        """Keep facts; one of the same kind, turn and content takes the place of what was known."""

    def drop_facts(self, session_id: str, from_turn: int) -> None:
        """Forget what was extracted from this turn on: it is about to be extracted again."""

    def facts(self, session_id: str, kind: str = "") -> list[FactRow]:
        """Facts by turn."""

    def sessions_with(self, patterns: Sequence[str]) -> dict[str, set[str]]:
        """The sessions in which a fact with each of these patterns was seen."""

    def hold(self, session_id: str, holder: str, now: str) -> None:
        """Note that somebody has the session open."""

    def release(self, session_id: str, holder: str) -> None:
        """Note that somebody has closed it."""

    def holders(self, session_id: str) -> dict[str, str]:
        """Who has the session open, and since when; a killed process may still be among them."""

    def open_sessions(self) -> list[tuple[str, str, str]]:
        """Who has which session open: session, holder, and since when."""

    def delete(self, session_id: str) -> None:
        """Delete a session: nobody finds it from now on, nor its events, jobs and answers; else `UnknownSession`."""

    def expire(self, before: str, spare: Collection[str] = ()) -> list[str]:
        """Delete the sessions last used before a time, all but those that are spared; their ids."""

    def clear_deleted(self, terms_of: Callable[[bytes], str], *, thorough: bool = False) -> None:
        """Remove what deleted sessions have left behind, and nothing that others need; others write meanwhile.

        `terms_of` gives the terms of a run of passages. With `thorough` no word of it stays in any index.
        """

    def verify(self, session_id: str | None = None) -> Iterator[str]:
        """Hash everything again; one line for each thing that is not as it was stored."""


class ServiceStore(Protocol):
    """What a service needs and a library does not: jobs, events, answers to repeat, webhooks, and what a proxy saw.

    It is in the same database as the sessions: what is written here within `writing` of a store belongs to that
    transaction. `tests/store/test_service_store.py` says what each must do.
    """

    jobs: JobTable
    events: EventTable
    answers: IdempotencyTable
    webhooks: WebhookTable
    attempts: AttemptTable
    proxied: ProxyTable

    def writing(self) -> AbstractContextManager[None]:
        """A transaction over all of it; within one of the store it is that one."""

    def savepoint(self) -> AbstractContextManager[None]:
        """A part of the transaction under way, of which all or nothing happens, while the rest goes on."""

    def record_event(self, event: Event) -> int:
        """Store an event and queue its deliveries to webhooks; its number."""

    def delete_expired(self, now: datetime) -> None:
        """Delete what is too old to be asked for."""
