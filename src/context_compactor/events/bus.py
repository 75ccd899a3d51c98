"""The bus: tells everybody who asked what happened. Whatever they do with it, the one who tells goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock, local
from typing import Protocol, runtime_checkable

from msgspec import Struct

from context_compactor.errors import BadSetting
from context_compactor.events.event import EVENT_TYPES, Event, EventType

_LONGEST_ERROR = 500
# A sink may emit in answer to an event, and another one in answer to that; a longer chain is a loop.
_LONGEST_CHAIN = 4


@runtime_checkable
class Sink(Protocol):
    """Takes events. It may be called from several threads at once, and what it raises is counted, not passed on."""

    def write(self, event: Event) -> None:
        """Take one event; do not change it."""
        ...


@runtime_checkable
class KeepingSink(Sink, Protocol):
    """A sink in the database of what it is told of: it can keep an event in the transaction of what that tells."""

    def write_within(self, event: Event) -> None:
        """Take one event as a part of the transaction that is under way, or raise."""
        ...


class SinkFailure(Struct, frozen=True):
    """How often a sink failed, and what it said last."""

    sink: str
    count: int
    last_error: str


class _Subscription:
    def __init__(self, sink: Sink | Callable[[Event], None], types: frozenset[str], session_id: str | None) -> None:
        self.name = _name(sink)
        self.write = _writer(sink)
        self.write_within = sink.write_within if isinstance(sink, KeepingSink) else None
        self.types = types
        self.session_id = session_id
        self.is_active = True

    def wants(self, event: Event) -> bool:
        return self.is_active and event.type in self.types and self.session_id in (None, event.session_id)


class _Emitting(local):
    """What one thread is about: the events it has yet to deliver, how long their chain is, and to whom."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Event, bool]] = deque()
        self.chain = 0
        self.sink = ""


class Bus:
    """Delivers each event to every sink that wants it, in the order they subscribed, before `emit` returns.

    An event that a sink emits while it writes waits until the current one has reached everybody.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._failures: dict[str, SinkFailure] = {}
        self._emitting = _Emitting()

    def subscribe(
        self,
        sink: Sink | Callable[[Event], None],
        types: Iterable[EventType] | None = None,
        session_id: str | None = None,
    ) -> Callable[[], None]:
        """Tell this sink of all events, or of some types or one session only. The answer unsubscribes it again."""
        subscription = _Subscription(sink, _checked(types), session_id)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

        def unsubscribe() -> None:
            subscription.is_active = False
            with self._lock:
                self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

        return unsubscribe

    def keep(self, event: Event) -> None:
        """Have an event kept with the transaction that is under way; what a sink raises is raised.

        When it is committed, `emit` it with `is_kept`, so that everybody else is told.
        """
        for subscription in self._subscriptions:
            if subscription.write_within is not None and subscription.wants(event):
                subscription.write_within(event)

    def emit(self, event: Event, *, is_kept: bool = False) -> None:
        """Deliver an event. Never raises what a sink raised: see `failures`."""
        mine = self._emitting
        if mine.chain >= _LONGEST_CHAIN:
            self._note(mine.sink, f"{event.type} was not delivered: the sink answers its own events without end")
            return
        mine.waiting.append((mine.chain + 1, event, is_kept))
        if mine.chain == 0:
            self._deliver(mine)

    @property
    def failures(self) -> tuple[SinkFailure, ...]:
        """Sinks that failed since the bus was made, by name."""
        with self._lock:
            return tuple(self._failures.values())

    def _deliver(self, mine: _Emitting) -> None:
        try:
            while mine.waiting:
                mine.chain, event, is_kept = mine.waiting.popleft()
                for subscription in self._subscriptions:
                    if subscription.wants(event) and not (is_kept and subscription.write_within):
                        mine.sink = subscription.name
                        self._write(subscription, event)
        finally:
            mine.chain = 0
            mine.waiting.clear()

    def _write(self, subscription: _Subscription, event: Event) -> None:
        try:
            subscription.write(event)
        except Exception as problem:  # noqa: BLE001 - a sink is somebody else's code and must not stop a compaction
            from traceback import format_exception_only  # which prints what cannot be printed, too

            self._note(subscription.name, format_exception_only(problem)[-1].strip())

    def _note(self, sink: str, error: str) -> None:
        error = error[:_LONGEST_ERROR]
        with self._lock:
            count = self._failures[sink].count + 1 if sink in self._failures else 1
            self._failures[sink] = SinkFailure(sink, count, error)
        if count == 1:
            from logging import getLogger

            said = "events do not reach %s: %s (said once; `failures` of the bus counts on)"
            getLogger("context_compactor").warning(said, sink, error)


def _name(sink: object) -> str:
    named = getattr(sink, "name", None) or getattr(sink, "__qualname__", None)
    return named if isinstance(named, str) else type(sink).__qualname__


def _writer(sink: Sink | Callable[[Event], None]) -> Callable[[Event], None]:
    from inspect import iscoroutinefunction

    write = getattr(sink, "write", sink)
    if not callable(write) or iscoroutinefunction(write):
        raise BadSetting(
            f"sink: {sink!r} takes no events: give a function of one event or an object with write(event), not async"
        )
    taken: Callable[[Event], None] = write
    return taken


def _checked(types: Iterable[EventType] | None) -> frozenset[str]:
    if types is None:
        return frozenset(EVENT_TYPES)
    named = frozenset([types] if isinstance(types, str) else types)
    unknown = sorted(str(each) for each in named.difference(EVENT_TYPES))
    if unknown:
        raise BadSetting(f"types: {unknown[0]!r} is no type of event; there are {', '.join(EVENT_TYPES)}")
    return named
