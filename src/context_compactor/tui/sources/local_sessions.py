"""The open sessions of a local store, each used by one thread at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from context_compactor.dialects.messages import Message
from context_compactor.dialects.turns import Turn
from context_compactor.sessions.append import AppendOutcome
from context_compactor.sessions.core import Clock, Core
from context_compactor.sessions.events import Bus
from context_compactor.sessions.lifecycle import open_core
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_profile
from context_compactor.sessions.token_series import MessageWeights
from context_compactor.sessions.views import history, report_of
from context_compactor.store.rows import SessionRow
from context_compactor.tui.sources.base import TextPiece, TurnPage
from context_compactor.tui.sources.turns import TurnDecisions, TurnIndex, TurnSpan, turn_line, turn_pieces

T = TypeVar("T")

_MAX_OPEN = 6
INDEX_STEP = 5_000
"""Messages that are looked at before the list is shown again."""


class LocalSession:
    """A session that is open, and what was found out about its turns."""

    def __init__(self, row: SessionRow, url: str, clock: Clock) -> None:
        self.core: Core = open_core(
            row.id,
            window=None,
            store=url,
            dialect="auto",
            model=None,
            settings=None,
            count_tokens=None,
            bus=Bus(),
            clock=clock,
        )
        self.session = Session(self.core, owns_store=True)
        self.lock = Lock()
        self.users = 0
        self.weighing = Lock()
        self.weighed = MessageWeights()
        self._is_checked = False
        self._index = TurnIndex()
        self._decided: tuple[int, TurnDecisions] = -1, TurnDecisions(())

    def is_unchanged(self, row: SessionRow) -> bool:
        """Whether it was opened as what the session is now."""
        return row.created_at == self.core.created_at and read_profile(row.profile) == self.core.profile

    def record(
        self, messages: Mapping[str, Any] | Sequence[Mapping[str, Any]], usage: Mapping[str, Any] | None
    ) -> AppendOutcome:
        """Write messages. What was seen with them is to be answered."""
        self._is_checked = True
        return self.session.record(messages, usage)

    def check(self, twin: Session) -> None:
        """Before the first request after opening: see whether a level is reached."""
        if not self._is_checked:
            self._is_checked = True
            twin.check()

    def turns(self, first: int, count: int) -> TurnPage:
        """Some turns; what is not known yet of the history is looked at, a step at a time."""
        core, index = self.core, self._index
        row = core.row()
        if index.messages < row.messages:
            start = index.wanted
            index.take(self._messages(start, index.messages - start + INDEX_STEP))
        counter = core.counter(core.dialect())
        span = index.span(first, count)
        decided = self.decided(row)
        lines = [turn_line(first + at, turn, counter, decided) for at, turn in enumerate(self._read(span))]
        return TurnPage(lines, len(index), index.messages >= row.messages)

    def turn(self, at: int) -> list[TextPiece]:
        """A turn in full."""
        return [piece for turn in self._read(self._index.span(at, 1)) for piece in turn_pieces(turn)]

    def _read(self, span: TurnSpan) -> list[Turn]:
        return span.turns(self._messages(span.start, span.end - span.start)) if span.count else []

    def _messages(self, after: int, limit: int) -> list[Message]:
        raws = history(self.core, after, limit)
        return self.core.dialect(raws).parse(raws)

    def decided(self, row: SessionRow) -> TurnDecisions:
        """What the compactions that count have made of the turns."""
        if self._decided[0] != row.view:
            made = self.core.context_reader.log_state(row.head).compactions
            self._decided = row.view, TurnDecisions(report_of(self.core, each) for each in made if each.is_active)
        return self._decided[1]


class LocalSessions:
    """At most a few sessions stay open, those used last; one that is in use is never closed."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._lock = Lock()
        self._known: OrderedDict[str, LocalSession] = OrderedDict()

    def use(self, row: SessionRow, work: Callable[[LocalSession], T]) -> T:
        """Do something with a session while no other thread does."""
        with self._opened(row) as opened, opened.lock:
            return work(opened)

    def use_twin(self, row: SessionRow, work: Callable[[Session, LocalSession], T]) -> T:
        """Do something long with a session while others look at it."""
        with self._opened(row) as opened, opened.session.clone() as twin:
            return work(twin, opened)

    def cancel(self, session_id: str) -> None:
        """End the compaction of a session that is under way."""
        with self._lock:
            opened = self._known.get(session_id)
        if opened is not None:
            opened.session.cancel()

    def close_session(self, session_id: str) -> None:
        """End what is under way in a session and close it."""
        with self._lock:
            opened = self._known.pop(session_id, None)
        if opened is not None:
            opened.session.cancel()
            opened.session.close()

    @contextmanager
    def _opened(self, row: SessionRow) -> Iterator[LocalSession]:
        with self._lock:
            opened = self._known.get(row.id)
            if opened is not None and not opened.users and not opened.is_unchanged(row):
                self._known.pop(row.id).session.close()
                opened = None
            if opened is None:
                opened = self._known[row.id] = LocalSession(row, self._url, self._clock)
            self._known.move_to_end(row.id)
            opened.users += 1
        try:
            yield opened
        finally:
            with self._lock:
                opened.users -= 1
                for name in list(self._known)[: max(len(self._known) - _MAX_OPEN, 0)]:
                    if not self._known[name].users:
                        self._known.pop(name).session.close()

    def close(self) -> None:
        """End what is under way and close all of them."""
        with self._lock:
            opened = list(self._known.values())
            self._known.clear()
        for each in opened:
            each.session.cancel()
            each.session.close()
