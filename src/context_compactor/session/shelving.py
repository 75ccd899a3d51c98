"""Archive everything that was said so far, whether or not anything of it leaves the context.

Before an agent compacts by itself nobody knows what it will keep. So all of it is archived, each turn and each result
under the id that a compaction of ours would give it, and can be recalled and searched from then on. In quiet time it is
done ahead of a compaction of our own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from context_compactor.archive.archive import Original
from context_compactor.archive.gather import result_original, turn_original
from context_compactor.classify.calls import is_own
from context_compactor.classify.rules import Verdicts
from context_compactor.llm.model import Control
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.turn import Turn
from context_compactor.session import keep
from context_compactor.session.core import Core, TakenApart
from context_compactor.session.values import read_state
from context_compactor.session.watch import share_now

# So many are written at once: an agent that gives up on a hook takes back no more than these.
_AT_ONCE = 1_000


class Shelf(Struct, frozen=True):
    """A context taken apart, and what of it was not archived yet."""

    taken: TakenApart
    new: list[Original]


def look(core: Core, *, is_closed: bool, is_gone: bool = False) -> Shelf:
    """What is to be archived. A turn that may still grow waits: the last one, unless the conversation `is_closed`.

    So does one whose calls have no results yet, unless all of it `is_gone` from the agent's window.
    """
    taken = core.take_apart()
    turns = [turn for turn in taken.scene.turns if not turn.is_instruction]
    growing = set() if is_closed else {turn.number for turn in turns[-1:]}
    if not is_gone:
        growing |= {turn.number for turn in turns if any(each.result is None for each in turn.exchanges)}
    known = {each.ref for each in core.store.originals(core.id)}
    found = _originals(turns, taken.scene.verdicts, core.counter(taken.dialect), growing)
    new = [original for original in found if original.id not in known]
    return Shelf(taken, keep.as_logged(new, taken.spans(), taken.seen, core.store, core.id))


def shelve(core: Core, *, is_closed: bool = False, is_gone: bool = False) -> Shelf:
    """Archive what is not archived yet, on the disk when it returns."""
    shelf = look(core, is_closed=is_closed, is_gone=is_gone)
    attempts = keep.Attempts(core.settings.retry_attempts, core.settings.retry_delay_seconds, lambda *_: None)
    for start in range(0, len(shelf.new), _AT_ONCE):
        keep.archive(core, shelf.new[start : start + _AT_ONCE], attempts)
    return shelf


def archive_ahead(core: Core, control: Control | None = None) -> int:
    """Archive and index ahead of a compaction that is near, which then has a third less to do; how many originals.

    Nothing is done for a session that does not compact by itself, or that has less than a compaction would leave.
    """
    settings = core.settings
    if not (settings.enabled and settings.automatic):
        return 0
    if share_now(core, read_state(core.row().state)) < min(rule.target for rule in settings.levels):
        return 0
    new = shelve(core).new
    core.index(control)
    return len(new)


def _originals(
    turns: Sequence[Turn], verdicts: Verdicts, counter: MessageCounter, growing: Collection[int]
) -> Iterator[Original]:
    for turn in turns:
        if turn.number not in growing:
            yield turn_original(turn, sum(counter.count_many(turn.messages)))
        for exchange in turn.exchanges:
            if exchange.result is not None and not is_own(exchange.call):  # what it returned is archived already
                yield result_original(exchange, verdicts.exchanges[exchange.number])
