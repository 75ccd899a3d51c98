"""Lists of sessions, numbers of compactions and costs of proxied requests, kept for a moment so that many viewers cost
one read."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from context_compactor.errors import UnknownSession
from context_compactor.json_values import read_json
from context_compactor.protocols import ServiceStore, Store
from context_compactor.proxy.bills import ProxyReport, report_of
from context_compactor.server.tokens import Scope
from context_compactor.sessions.log import ContextReader, LoggedCompaction, LogState
from context_compactor.sessions.state import read_session_state
from context_compactor.sessions.token_series import FillRules
from context_compactor.settings import Level, LevelRule, ModelEntry
from context_compactor.store.proxied import ProxiedRequest
from context_compactor.store.rows import SessionRow, timestamp

MAX_SESSIONS = 20_000
"""Sessions that are looked at; of more, those with the first names."""
_MIN_CACHE_SECONDS = 0.5
_SHORT_LIST = 25
_MINUTE_LENGTH = len("2026-01-31T23:59")
_CACHE_FACTOR = 20
"""A list is as good as new for so many times as long as it took to read."""


class SessionSummary(Struct, frozen=True):
    """A session as a list shows it. `view` is 0 while nothing was ever done to its context."""

    id: str
    store_id: str
    updated_at: str
    messages: int
    tokens: int
    share: float
    level: Level | None
    levels: tuple[LevelRule, ...]
    window: int | None
    model: str
    head: int
    view: int


class SessionListCache:
    """Keeps what was read for each namespace for a moment, so that many readers cost little more than one."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, list[SessionSummary]]] = {}

    def sessions(self, scope: Scope, store: Store) -> list[SessionSummary]:
        """The sessions of a namespace. Blocks."""
        until, found = self._kept.get(scope.namespace, (0.0, []))
        began = time.monotonic()
        if began < until:
            return found
        rules = FillRules()
        found = [_session_summary(row, scope, rules) for row in scope.sessions(store, None, MAX_SESSIONS)]
        took = time.monotonic() - began
        self._kept[scope.namespace] = (time.monotonic() + max(_MIN_CACHE_SECONDS, _CACHE_FACTOR * took), found)
        return found

    def forget(self, scope: Scope) -> None:
        """Read the sessions of a namespace anew at the next look."""
        self._kept.pop(scope.namespace, None)


def compactions_of(listed: SessionSummary, store: Store) -> LogState:
    """The compactions of a session of the list; none when it was deleted since. Blocks."""
    try:
        return ContextReader(store, listed.store_id).log_state()
    except UnknownSession:
        return LogState((), ())


def _session_summary(row: SessionRow, scope: Scope, rules: FillRules) -> SessionSummary:
    rule = rules.of(row.profile)
    fill = rule.fill(row, read_session_state(row.state))
    return SessionSummary(
        id=scope.public_id(row.id),
        store_id=row.id,
        updated_at=row.updated_at,
        messages=row.messages,
        tokens=fill.tokens,
        share=fill.share,
        level=fill.level,
        levels=rule.levels,
        window=rule.profile.window,
        model=rule.profile.model or rule.profile.dialect,
        head=row.head,
        view=row.view,
    )


def filter_and_sort(sessions: Sequence[SessionSummary], words: str, level: str, sort: str) -> list[SessionSummary]:
    """Those whose id or model holds the words and which are at the level, in the order that is asked for.

    In a short list changes count by the minute: rows that change places every second cannot be clicked on.
    """
    wanted = words.casefold().strip()
    found = [
        each
        for each in sessions
        if (not wanted or wanted in each.id.casefold() or wanted in each.model.casefold())
        and (not level or (each.level is not None if level == "any" else each.level == level))
    ]
    name = sort.lstrip("-")
    if name == "name":
        return sorted(found, key=lambda each: each.id, reverse=sort.startswith("-"))
    found.sort(key=lambda each: each.id)
    if name == "updated" and len(found) <= _SHORT_LIST:
        return sorted(found, key=lambda each: each.updated_at[:_MINUTE_LENGTH], reverse=sort.startswith("-"))
    attribute = {"fill": "share", "tokens": "tokens", "messages": "messages"}.get(name, "updated_at")
    return sorted(found, key=lambda each: getattr(each, attribute), reverse=sort.startswith("-"))


MAX_COMPACTIONS = 200
_MAX_SESSIONS_READ = 200
_MAX_CACHED = 5_000


class _FidelityNumbers(Struct, frozen=True):
    retained: int = 0
    reachable: int = 0
    missing: list[object] = []


class _MetricNumbers(Struct, frozen=True):
    failures_share: float | None = None


class _ReportNumbers(Struct, frozen=True):
    """As much of a report as is shown here; a report may be long."""

    fidelity: _FidelityNumbers = _FidelityNumbers()
    metrics: _MetricNumbers = _MetricNumbers()
    duration_ms: float = 0.0


class CompactionNumbers(Struct, frozen=True):
    """One compaction in numbers. Shares are from 0 to 1, None where there was nothing to measure."""

    session: str
    id: str
    created_at: str
    level: str
    trigger: str
    before: int
    after: int
    retained: float | None
    reachable: float | None
    failures: float | None
    milliseconds: float
    is_active: bool

    @property
    def reduction(self) -> float:
        """The share of the tokens that is gone."""
        return 1 - self.after / self.before if self.before else 0.0


class CompactionNumbersCache:
    """Reads reports and keeps what they came to."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _ReportNumbers] = OrderedDict()

    def newest(self, sessions: Sequence[SessionSummary], store: Store) -> list[CompactionNumbers]:
        """The newest compactions of the sessions that were used last, oldest first. Blocks."""
        used = sorted((each for each in sessions if each.view), key=lambda each: each.updated_at, reverse=True)
        made = [
            (listed, compacted)
            for listed in used[:_MAX_SESSIONS_READ]
            for compacted in compactions_of(listed, store).compactions
        ]
        made.sort(key=lambda pair: (pair[1].created_at, pair[1].position))
        return [self._measured(listed, compacted, store) for listed, compacted in made[-MAX_COMPACTIONS:]]

    def _measured(self, listed: SessionSummary, compacted: LoggedCompaction, store: Store) -> CompactionNumbers:
        note, gist = compacted.note, self._gist(compacted.note.report, store)
        checked = gist.fidelity.retained + gist.fidelity.reachable + len(gist.fidelity.missing)
        return CompactionNumbers(
            session=listed.id,
            id=note.id,
            created_at=compacted.created_at,
            level=note.level or "",
            trigger=note.trigger,
            before=note.tokens_before,
            after=note.tokens_after,
            retained=gist.fidelity.retained / checked if checked else None,
            reachable=(gist.fidelity.retained + gist.fidelity.reachable) / checked if checked else None,
            failures=gist.metrics.failures_share,
            milliseconds=gist.duration_ms,
            is_active=compacted.is_active,
        )

    def _gist(self, content: str, store: Store) -> _ReportNumbers:
        gist = self._known.get(content)
        if gist is None:
            gist = self._known[content] = msgspec.convert(read_json(store.get([content])[content]), _ReportNumbers)
            if len(self._known) > _MAX_CACHED:
                self._known.popitem(last=False)
        return gist


MAX_PROXIED = 50
PROXIED_DAYS = 30
_DAY_SECONDS = 24 * 60 * 60


class ProxyBills(Struct, frozen=True):
    """What the requests of the last days cost, and the newest of them, the newest first."""

    report: ProxyReport
    newest: list[ProxiedRequest]


class ProxyReportCache:
    """Keeps what was read for each namespace for a moment: a proxy may have made very many requests."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, ProxyBills]] = {}

    def read(self, scope: Scope, store: ServiceStore, prices: Mapping[str, ModelEntry]) -> ProxyBills:
        """The requests of a namespace. Blocks."""
        began = time.monotonic()
        until, found = self._kept.get(scope.namespace, (0.0, None))
        if found is not None and began < until:
            return found
        newest: deque[ProxiedRequest] = deque(maxlen=MAX_PROXIED)
        found = ProxyBills(report_of(_proxied_in(scope, store, newest), prices), [*reversed(newest)])
        took = time.monotonic() - began
        self._kept[scope.namespace] = (time.monotonic() + max(_MIN_CACHE_SECONDS, _CACHE_FACTOR * took), found)
        return found


def _proxied_in(scope: Scope, store: ServiceStore, newest: deque[ProxiedRequest]) -> Iterator[ProxiedRequest]:
    for row in store.proxied.requests(since=timestamp(datetime.now(UTC), -PROXIED_DAYS * _DAY_SECONDS)):
        if scope.includes(row.session_id):
            newest.append(row)
            yield row
