"""Archive everything that was said so far, whether or not anything of it leaves the context.

Before an agent compacts by itself nobody knows what it will keep. So all of it is archived, each turn and each result
under the id that a compaction of ours would give it, and can be recalled and searched from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from context_compactor.archive.archive import Original
from context_compactor.archive.gather import result_original, turn_original
from context_compactor.classify.calls import is_own
from context_compactor.flow import Scene
from context_compactor.measure.count import MessageCounter
from context_compactor.session import keep
from context_compactor.session.core import Core, TakenApart


class Shelf(Struct, frozen=True):
    """A context taken apart, and what of it was not archived yet."""

    taken: TakenApart
    new: list[Original]


def look(core: Core, *, is_closed: bool) -> Shelf:
    """What is to be archived. The last turn may still grow, unless the conversation `is_closed`: then it waits."""
    taken = core.take_apart()
    turns = taken.scene.turns
    known = {each.ref for each in core.store.originals(core.id)}
    growing = 0 if is_closed or not turns else turns[-1].number
    found = _originals(taken.scene, core.counter(taken.dialect), growing)
    new = [original for original in found if original.id not in known]
    return Shelf(taken, keep.as_logged(new, taken.spans(), taken.seen, core.store, core.id))


def shelve(core: Core, *, is_closed: bool = False) -> Shelf:
    """Archive what is not archived yet, on the disk when it returns."""
    shelf = look(core, is_closed=is_closed)
    if shelf.new:
        attempts = keep.Attempts(core.settings.retry_attempts, core.settings.retry_delay_seconds, lambda *_: None)
        keep.archive(core.store, core.id, shelf.new, core.now(), attempts)
    return shelf


def _originals(scene: Scene, counter: MessageCounter, growing: int) -> Iterator[Original]:
    for turn in scene.turns:
        if turn.number != growing:
            yield turn_original(turn, sum(counter.count_many(turn.messages)))
        for exchange in turn.exchanges:
            if exchange.result is not None and not is_own(exchange.call):  # what it returned is archived already
                yield result_original(exchange, scene.verdicts.exchanges[exchange.number])
