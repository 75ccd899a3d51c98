"""Quality over time: what the last compactions of all sessions saved, and what they kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from context_compactor.server.dashboard.caches import MAX_COMPACTIONS, CompactionNumbers
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest

_CHARTS = (
    ("reduction", "Reduction", "How much of a context each compaction took away."),
    (
        "fidelity",
        "Fidelity",
        "What is still readable of the names in removed text, what a reference reaches, which failures stay.",
    ),
    ("saved", "Tokens saved", "By each compaction."),
)


async def quality(request: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Reduction, fidelity, failures kept and tokens saved, compaction by compaction."""
    measured = await request.service.run(lambda: _measured(request))
    values = {
        "measured": measured,
        "averages": _averages(measured) if measured else None,
        "charts": _CHARTS,
        "max_compactions": MAX_COMPACTIONS,
    }
    if request.part in ("quality", "measured"):
        return HtmlPage(template="quality.html", part=request.part, values=values)
    return HtmlPage(template="quality.html", title="Quality", place="Quality", values=values)


async def quality_series(request: PageRequest[NoForm, NoForm]) -> dict[str, object]:
    """The same as lists of numbers, for the charts."""
    measured = await request.service.run(lambda: _measured(request))
    return {
        "at": [each.created_at for each in measured],
        "session": [each.session for each in measured],
        "reduction": [round(100 * each.reduction, 1) for each in measured],
        "retained": [_hundredth(each.retained) for each in measured],
        "reachable": [_hundredth(each.reachable) for each in measured],
        "failures": [_hundredth(each.failures) for each in measured],
        "saved": [each.before - each.after for each in measured],
    }


def _hundredth(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def _measured(request: PageRequest[NoForm, NoForm]) -> list[CompactionNumbers]:
    sessions = request.caches.listing.sessions(request.scope, request.service.store)
    return request.caches.measures.newest(sessions, request.service.store)


def _averages(measured: Sequence[CompactionNumbers]) -> dict[str, float | None]:
    """Of the compactions that count; of all when each of them was undone. Nothing is saved by one that was."""
    active = [each for each in measured if each.is_active] or measured
    return {
        "reduction": _mean(each.reduction for each in active),
        "retained": _mean(each.retained for each in active),
        "reachable": _mean(each.reachable for each in active),
        "failures": _mean(each.failures for each in active),
        "saved": sum(each.before - each.after for each in measured if each.is_active),
        "milliseconds": _mean(each.milliseconds for each in active),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
