"""The saw-tooth: how many tokens a context had at each message, computed from the log.

Every message is weighed once, as the session itself weighs it, and the sums are kept for as long as the session is
looked at. Under a compaction the context is what that left, and what has come since its base; without one, everything.
So each point follows from the sums alone, undone compactions too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from context_compactor.measure.count import MessageCounter
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.jsontext import read_json
from context_compactor.session import gauge as gauging
from context_compactor.session.core import Core
from context_compactor.session.log import COMPACTION, REDO, REVISION, UNDO, CompactionNote, Revision
from context_compactor.session.values import Gauge
from context_compactor.store.rows import MESSAGE, Entry

MOST_POINTS = 600
_MOST_TEETH = 120
_MOST_KEPT = 64

Point = tuple[int, int]


class Tooth(Struct, frozen=True):
    """A compaction: at which message, from how many tokens to how many. One that is not active was undone."""

    id: str
    message: int
    before: int
    after: int
    level: str
    is_active: bool


class Saw(Struct, frozen=True):
    """Points of message and tokens, in order, and the compactions among them."""

    points: list[Point]
    teeth: list[Tooth]
    messages: int


class Weighed:
    """The messages of a session weighed one after the other, and what was done between them."""

    def __init__(self) -> None:
        self.head = 0
        self.positions: list[int] = []
        self.sums: list[int] = []
        self.acts: list[tuple[int, int, CompactionNote | str]] = []
        self._gauge: Gauge | None = None

    def follow(self, core: Core) -> None:
        """Weigh what has come since. Blocks."""
        row = core.row()
        if row.head <= self.head:
            return
        entries = core.store.entries(core.id, after=self.head, until=row.head)
        raws = [read_json(entry.body) for entry in entries if entry.kind == MESSAGE]
        dialect = core.dialect(raws or None)
        counter = core.counter(dialect)
        self._gauge = self._gauge or gauging.weigh([], counter)
        for entry in entries:
            self._take(entry, core, dialect, counter)
        self.head = row.head

    def _take(self, entry: Entry, core: Core, dialect: Dialect, counter: MessageCounter) -> None:
        assert self._gauge is not None
        if entry.kind == MESSAGE:
            self._gauge = gauging.add(self._gauge, dialect.parse([read_json(entry.body)]), counter)
            self.positions.append(entry.position)
            self.sums.append(self._gauge.tokens)
        elif entry.kind == REVISION:
            self._revise(msgspec.json.decode(entry.body, type=Revision), core, dialect, counter)
        elif entry.kind == COMPACTION:
            self.acts.append(
                (entry.position, len(self.positions), msgspec.json.decode(entry.body, type=CompactionNote))
            )
        elif entry.kind in (UNDO, REDO):
            self.acts.append((entry.position, len(self.positions), entry.kind))

    def _revise(self, revision: Revision, core: Core, dialect: Dialect, counter: MessageCounter) -> None:
        """A message that is shown as another text, or one that was added, counts from here on as what it is now."""
        assert self._gauge is not None
        wanted = [revision.hash, *([revision.instead_of] if revision.instead_of else [])]
        weights = {
            name: counter.count(dialect.parse([read_json(body)])[0]) for name, body in core.store.get(wanted).items()
        }
        old = weights.get(revision.instead_of, 0)
        if revision.position:
            (entry,) = core.store.entries(
                core.id, kinds=(MESSAGE,), after=revision.position - 1, until=revision.position
            )
            old = counter.count(dialect.parse([read_json(entry.body)])[0])
        tokens = self._gauge.tokens + weights[revision.hash] - old
        self._gauge = msgspec.structs.replace(self._gauge, tokens=tokens)
        if self.sums:
            self.sums[-1] = tokens

    def messages_at(self, position: int) -> int:
        """How many messages there were when the log had this position."""
        return bisect_right(self.positions, position)

    def sum_at(self, messages: int) -> int:
        """The tokens of so many messages, had nothing ever been compacted."""
        return self.sums[messages - 1] if messages else 0


def saw_of(weighed: Weighed) -> Saw:
    """The points and teeth of a session."""
    points: list[Point] = []
    teeth: list[Tooth] = []
    active: list[int] = []
    undone: list[int] = []
    shifts: list[int] = []
    at = 0
    for _, messages, act in [*weighed.acts, (0, len(weighed.positions), "")]:
        shift = shifts[active[-1]] if active else 0
        points += [(each + 1, weighed.sums[each] + shift) for each in range(at, messages)]
        at, before = messages, weighed.sum_at(messages) + shift
        if isinstance(act, CompactionNote):
            shifts.append(act.tokens_after - weighed.sum_at(weighed.messages_at(act.base)))
            active.append(len(teeth))
            undone.clear()
            after = weighed.sum_at(messages) + shifts[-1]
            teeth.append(Tooth(act.id, messages, before, after, act.level or "", True))
        elif act == UNDO and active:
            undone.append(active.pop())
        elif act == REDO and undone:
            active.append(undone.pop())
        if act and messages:
            points.append((messages, weighed.sum_at(messages) + (shifts[active[-1]] if active else 0)))
    still = set(active)
    teeth = [msgspec.structs.replace(tooth, is_active=at in still) for at, tooth in enumerate(teeth)]
    return _bounded(points, teeth, len(weighed.positions))


def _bounded(points: Sequence[Point], teeth: Sequence[Tooth], messages: int) -> Saw:
    """At most so many points and teeth, the newest teeth among them and each corner where it is."""
    shown = list(teeth[-_MOST_TEETH:])
    if len(teeth) > len(shown):
        points = [point for point in points if point[0] >= shown[0].message]
    if len(points) <= MOST_POINTS:
        return Saw(list(points), shown, messages)
    corners = {tooth.message for tooth in shown}
    step = -(-len(points) // (MOST_POINTS - 2 * len(shown) - 2))
    kept = [point for at, point in enumerate(points) if at % step == 0 or point[0] in corners or at == len(points) - 1]
    return Saw(kept, shown, messages)


class Saws:
    """What was weighed of the sessions looked at last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Weighed] = OrderedDict()

    def weighed(self, core: Core) -> Weighed:
        """A session's messages, weighed up to now. One caller for each session at a time. Blocks."""
        key = core.id, core.created_at  # one of the same name may have been deleted
        weighed = self._known.pop(key, None) or Weighed()
        weighed.follow(core)
        self._known[key] = weighed
        while len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)
        return weighed


def skeleton(compactions: Iterable[tuple[int, CompactionNote]], head: int, tokens: int) -> list[tuple[float, float]]:
    """The corners of a saw without a look at any message: where each compaction began and ended, and now."""
    corners: list[tuple[float, float]] = [(0, 0)]
    for position, note in compactions:
        corners += [(position, note.tokens_before), (position, note.tokens_after)]
    return [*corners, (max(head, 1), tokens)]
