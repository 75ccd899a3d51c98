"""`compactor worker`: does the jobs of a store, beside a server or alone."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_compactor.cli.opening import open_store, store_url
from context_compactor.cli.options import StoreUrl
from context_compactor.cli.output import paper
from context_compactor.errors import BadSetting
from context_compactor.messages.printing import one_line

if TYPE_CHECKING:
    from context_compactor.events.event import Event, EventType

Concurrency = Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Jobs worked on at once.")]
Grace = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long jobs under way may take once it is told to stop.")
]
_TOLD: tuple[EventType, ...] = ("session.compacted", "job.retried", "job.dropped")
_LONGEST_LINE = 200


def worker(store: StoreUrl = None, concurrency: Concurrency = 2, grace: Grace = 30.0) -> None:
    """Do the jobs of a store: compactions, and facts in quiet times. Run as many of these as you like.

    Ctrl-C or SIGTERM finishes the jobs under way and begins no other; those that take longer than the grace, and all
    at a second Ctrl-C, are returned for another worker. The jobs of one that is killed go to others within seconds.

    Example: `compactor worker --store sqlite:///.compactor/compactor.db --concurrency 4`
    """
    if store_url(store) == "memory:":
        raise BadSetting("store: one in memory has no jobs of other programs. Try: --store with the server's address.")
    from context_compactor.events.bus import Bus
    from context_compactor.events.kept import DeskSink
    from context_compactor.jobs.engine import WAKING, Engine
    from context_compactor.store.notices import notices_of

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # what it says at every try is said once by ourselves
    out, bus = paper(beside_output=True), Bus()
    with open_store(store) as kept:
        engine = Engine(kept, workers=concurrency, bus=bus)
        bus.subscribe(DeskSink(engine.desk))
        bus.subscribe(lambda event: out.print(_line(event)), types=_TOLD)
        notices = notices_of(kept, lambda kind: engine.wake() if kind in WAKING else None)
        with _signals(engine.hurry) as stop:
            engine.start()
            if notices is not None:
                notices.start()
            out.print(f"working on {kept.path}, {concurrency} jobs at once; Ctrl-C stops")
            stop.wait()
            out.print(f"stopping; {len(engine.status().running)} jobs under way")
            engine.stop(timeout=grace)
            if notices is not None:
                notices.stop()
    out.print("stopped; every job is done or waits for another worker")


@contextmanager
def _signals(hurry: Callable[[], None]) -> Iterator[Flag]:
    """A flag that the first SIGTERM or Ctrl-C sets; every further one hurries."""
    stop = Flag()

    def told(*_: Any) -> None:
        if stop.is_set():
            hurry()
        stop.set()

    before = {each: signal.signal(each, told) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, known in before.items():
            signal.signal(each, known)


def _line(event: Event) -> str:
    told = event.payload
    if event.type == "session.compacted":
        what = f"{told['tokens_before']:,} → {told['tokens_after']:,} tokens"
    else:
        what = f"{event.type} {told.get('what', '')}, attempt {told.get('attempt', 0)}: {told.get('reason', '')}"
    return one_line(f"{event.created_at[11:19]} {event.session_id}: {what}", _LONGEST_LINE)
