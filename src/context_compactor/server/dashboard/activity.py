"""Events, jobs and failures of a namespace, the newest first."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.server.tokens import Scope
from context_compactor.store.events import EVENT_TYPES
from context_compactor.store.rows import StoredEvent
from context_compactor.text import format_count, percent

_MAX_JOBS, _MAX_FAILURES, _MAX_EVENTS = 12, 5, 40
_FAILURE_TYPES = ("job.dropped", "compaction.failed", "compaction.refused", "job.retried")
_ALL_FAILURES = "failures"


class ActivityQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Events of one type only, or all failures, and those before a number."""

    type: Literal[("", _ALL_FAILURES, *EVENT_TYPES)] = ""  # type: ignore[valid-type]
    before: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class EventRow(Struct, frozen=True):
    """An event as a reader may see it."""

    number: int
    created_at: str
    type: str
    is_failure: bool
    session_id: str
    details: str


async def activity(request: PageRequest[NoForm, ActivityQuery]) -> HtmlPage:
    """What went wrong, what waits, and what happened. Whoever goes back among the events sees only those."""
    values = await request.service.run(lambda: _read_activity(request))
    if request.part in ("events", "activity"):
        return HtmlPage(template="activity.html", part=request.part, values=values)
    return HtmlPage(template="activity.html", title="Activity", place="Activity", values=values)


def _read_activity(request: PageRequest[NoForm, ActivityQuery]) -> dict[str, Any]:
    store, scope, query = request.service.service_store, request.scope, request.query
    types = _FAILURE_TYPES if query.type == _ALL_FAILURES else (query.type,) if query.type else ()
    namespace = scope.namespace
    pending = store.jobs.newest(namespace=namespace, states=("waiting", "running"), limit=_MAX_JOBS)
    ended = store.jobs.newest(namespace=namespace, states=("done", "dropped"), limit=_MAX_JOBS)
    waiting = sum(job.state == "waiting" for job in pending)
    failures = store.events.newest(namespace=namespace, types=_FAILURE_TYPES, limit=_MAX_FAILURES)
    events = store.events.newest(namespace=namespace, types=types, before=query.before, limit=_MAX_EVENTS)
    return {
        "query": query,
        "types": [("", "all events"), (_ALL_FAILURES, "all failures"), *((each, each) for each in EVENT_TYPES)],
        "jobs": [*pending, *ended][:_MAX_JOBS],
        "waiting_jobs": waiting,
        "running_jobs": len(pending) - waiting,
        "failures": [_event_row(each, scope) for each in failures],
        "max_failures": _MAX_FAILURES,
        "events": [_event_row(each, scope) for each in events],
        "max_events": _MAX_EVENTS,
    }


def _event_row(stored: StoredEvent, scope: Scope) -> EventRow:
    event = stored.event
    return EventRow(
        number=stored.number,
        created_at=event.created_at,
        type=event.type,
        is_failure=event.type in _FAILURE_TYPES,
        session_id=scope.public_id(event.session_id),
        details=scope.public_text(_details(event.payload), event.session_id),
    )


def _details(payload: dict[str, Any]) -> str:
    """What an event says, in one line."""
    if "tokens_before" in payload and "tokens_after" in payload:
        why = " ".join(str(payload[name]) for name in ("trigger", "level") if payload.get(name))
        return f"{payload['tokens_before']:,} → {payload['tokens_after']:,} tokens · {why}"
    return " · ".join(_detail(name, value) for name, value in payload.items() if value not in (None, "", []))


def _detail(name: str, value: Any) -> str:
    if name in ("reason", "what"):
        return str(value)
    if name == "share" and isinstance(value, float):
        return percent(value)
    return f"{name.replace('_', ' ')} {format_count(value) if type(value) is int else value}"
