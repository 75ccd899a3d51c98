"""What the last compactions of a namespace came to: five numbers of each report, which never change once written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from context_compactor.messages.jsontext import read_json
from context_compactor.protocols import Store
from context_compactor.server.dashboard.listing import Listed, sight_of
from context_compactor.session.log import Compacted

MOST = 200
_MOST_SESSIONS = 200
_MOST_KEPT = 5_000


class _Fidelity(Struct, frozen=True):
    retained: int = 0
    reachable: int = 0
    missing: list[object] = []


class _Metrics(Struct, frozen=True):
    failures_share: float | None = None


class _Gist(Struct, frozen=True):
    """As much of a report as is shown here; a report may be long."""

    fidelity: _Fidelity = _Fidelity()
    metrics: _Metrics = _Metrics()
    duration_ms: float = 0.0


class Measured(Struct, frozen=True):
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


class Measures:
    """Reads reports and keeps what they came to."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Gist] = OrderedDict()

    def newest(self, sessions: Sequence[Listed], store: Store) -> list[Measured]:
        """The newest compactions of the sessions that were used last, oldest first. Blocks."""
        used = sorted((each for each in sessions if each.view), key=lambda each: each.updated_at, reverse=True)
        made = [
            (listed, compacted) for listed in used[:_MOST_SESSIONS] for compacted in sight_of(listed, store).compactions
        ]
        made.sort(key=lambda pair: (pair[1].created_at, pair[1].position))
        return [self._measured(listed, compacted, store) for listed, compacted in made[-MOST:]]

    def _measured(self, listed: Listed, compacted: Compacted, store: Store) -> Measured:
        note, gist = compacted.note, self._gist(compacted.note.report, store)
        checked = gist.fidelity.retained + gist.fidelity.reachable + len(gist.fidelity.missing)
        return Measured(
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

    def _gist(self, content: str, store: Store) -> _Gist:
        gist = self._known.get(content)
        if gist is None:
            gist = self._known[content] = msgspec.convert(read_json(store.get([content])[content]), _Gist)
            if len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        return gist
