"""How full sessions are: tokens at each message computed from the log, and the fill of a session that is not open."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.dialect import Dialect
from context_compactor.engine.request import CompactionRequest, request_budget, request_counter
from context_compactor.errors import BadSetting
from context_compactor.json_values import read_json
from context_compactor.sessions.core import Core
from context_compactor.sessions.log import COMPACTION, REDO, REPEATED, REVISION, UNDO, CompactionNote, Revision
from context_compactor.sessions.state import (
    Profile,
    SessionState,
    TokenGauge,
    add_messages,
    measure_messages,
    read_profile,
    tokens_now,
)
from context_compactor.settings import Level, LevelRule, Settings, load_settings
from context_compactor.store.rows import MESSAGE, LogEntry, SessionRow
from context_compactor.tokens.budget import Budget, level_at
from context_compactor.tokens.counting import MessageCounter


class FillRule(Struct, frozen=True):
    """What sessions that were opened alike have in common."""

    profile: Profile
    budget: Budget
    levels: tuple[LevelRule, ...]
    overhead: int

    def fill(self, row: SessionRow, state: SessionState) -> Fill:
        """How full a session is now: what its state says may be older, while calls wait for results."""
        tokens = tokens_now(state.gauge, state.calibration, self.overhead) if row.messages else 0
        share = self.budget.share(tokens)
        return Fill(tokens, share, level_at(max(share, state.gauge.bytes / self.budget.bytes), self.levels))


class Fill(Struct, frozen=True):
    """How full a context is. `share` is of the budget, from 0."""

    tokens: int
    share: float
    level: Level | None


class FillRules:
    """The rules of many sessions, each made once. Settings may change: do not keep it for long."""

    def __init__(self) -> None:
        self._known: dict[bytes, FillRule] = {}

    def of(self, stored: bytes) -> FillRule:
        """The rule of a session with this profile."""
        return self._known.get(stored) or self._known.setdefault(stored, _fill_rule(stored))


def _settings(profile: Profile) -> Settings:
    """Settings that can no longer be read must not hide a session, nor all those beside it."""
    try:
        return load_settings(profile.settings or None).settings
    except BadSetting:
        return Settings()


def _fill_rule(stored: bytes) -> FillRule:
    profile = read_profile(stored)
    settings = _settings(profile)
    ask = CompactionRequest(window=profile.window, settings=settings, model=profile.model or settings.model)
    counter = request_counter(ask, find_dialect(profile.dialect, ()).name, None)
    budget = request_budget(ask, counter.dialect_name, counter.margin)
    return FillRule(profile, budget, settings.levels, settings.overhead_tokens)


MOST_POINTS = 600
_MAX_COMPACTIONS = 120
_MAX_CACHED = 64

TokenPoint = tuple[int, int]


class CompactionPoint(Struct, frozen=True):
    """A compaction: at which message, from how many tokens to how many. One that is not active was undone."""

    id: str
    message: int
    before: int
    after: int
    level: str
    is_active: bool


class TokenSeries(Struct, frozen=True):
    """Points of message and tokens, in order, and the compactions among them."""

    points: list[TokenPoint]
    compactions: list[CompactionPoint]
    messages: int


class MessageWeights:
    """The tokens of a session's messages, summed one after the other, and what was done between them."""

    def __init__(self) -> None:
        self.head = 0
        self.positions: list[int] = []
        self.sums: list[int] = []
        self.acts: list[tuple[int, int, CompactionNote | str]] = []
        self._gauge: TokenGauge | None = None

    def follow(self, core: Core) -> None:
        """Count what has come since. Blocks."""
        row = core.row()
        if row.head <= self.head:
            return
        entries = core.store.entries(core.id, after=self.head, until=row.head)
        raws = [read_json(entry.body) for entry in entries if entry.kind == MESSAGE]
        dialect = core.dialect(raws or None)
        counter = core.counter(dialect)
        self._gauge = self._gauge or measure_messages([], counter, core.fixed_tokens(counter, row))
        for entry in entries:
            self._take(entry, core, dialect, counter)
        self.head = row.head

    def _take(self, entry: LogEntry, core: Core, dialect: Dialect, counter: MessageCounter) -> None:
        assert self._gauge is not None
        if entry.kind == MESSAGE:
            self._gauge = add_messages(self._gauge, dialect.parse([read_json(entry.body)]), counter)
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
        new = 0 if revision.why == REPEATED else weights[revision.hash]
        tokens = self._gauge.tokens + new - old
        self._gauge = msgspec.structs.replace(self._gauge, tokens=tokens)
        if self.sums:
            self.sums[-1] = tokens

    def messages_at(self, position: int) -> int:
        """How many messages there were when the log had this position."""
        return bisect_right(self.positions, position)

    def sum_at(self, messages: int) -> int:
        """The tokens of so many messages, had nothing ever been compacted."""
        return self.sums[messages - 1] if messages else 0


def token_series(weighed: MessageWeights) -> TokenSeries:
    """The points and compactions of a session."""
    points: list[TokenPoint] = []
    compactions: list[CompactionPoint] = []
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
            active.append(len(compactions))
            undone.clear()
            after = weighed.sum_at(messages) + shifts[-1]
            compactions.append(CompactionPoint(act.id, messages, before, after, act.level or "", True))
        elif act == UNDO and active:
            undone.append(active.pop())
        elif act == REDO and undone:
            active.append(undone.pop())
        if act and messages:
            points.append((messages, weighed.sum_at(messages) + (shifts[active[-1]] if active else 0)))
    still = set(active)
    made = [msgspec.structs.replace(each, is_active=at in still) for at, each in enumerate(compactions)]
    return _bounded(points, made, len(weighed.positions))


def _bounded(points: Sequence[TokenPoint], compactions: Sequence[CompactionPoint], messages: int) -> TokenSeries:
    """At most so many points and compactions, the newest among them and each corner where it is."""
    shown = list(compactions[-_MAX_COMPACTIONS:])
    if len(compactions) > len(shown):
        points = [point for point in points if point[0] >= shown[0].message]
    if len(points) <= MOST_POINTS:
        return TokenSeries(list(points), shown, messages)
    corners = {each.message for each in shown}
    step = -(-len(points) // (MOST_POINTS - 2 * len(shown) - 2))
    kept = [point for at, point in enumerate(points) if at % step == 0 or point[0] in corners or at == len(points) - 1]
    return TokenSeries(kept, shown, messages)


class TokenSeriesCache:
    """What was counted of the sessions that were asked for last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], MessageWeights] = OrderedDict()

    def weighed(self, core: Core) -> MessageWeights:
        """A session's messages, counted up to now. One caller for each session at a time. Blocks."""
        key = core.id, core.created_at  # one of the same name may have been deleted
        weighed = self._known.pop(key, None) or MessageWeights()
        weighed.follow(core)
        self._known[key] = weighed
        while len(self._known) > _MAX_CACHED:
            self._known.popitem(last=False)
        return weighed


def compaction_corners(
    compactions: Iterable[tuple[int, CompactionNote]], head: int, tokens: int
) -> list[tuple[float, float]]:
    """The corners of a token series without reading any message: where each compaction began and ended, and now."""
    corners: list[tuple[float, float]] = [(0, 0)]
    for position, note in compactions:
        corners += [(position, note.tokens_before), (position, note.tokens_after)]
    return [*corners, (max(head, 1), tokens)]
