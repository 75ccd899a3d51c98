"""Events, jobs and failures of a namespace, the newest first."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.components import (
    bounded_text,
    card,
    data_table,
    empty_state,
    live_attributes,
    page_path,
    select_field,
    time_ago,
)
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.store.events import EVENT_TYPES
from context_compactor.store.rows import Job, JobState, StoredEvent
from context_compactor.text import format_count, percent

_JOBS, _FAILURES, _EVENTS = 12, 5, 40
_FAILED = ("job.dropped", "compaction.failed", "compaction.refused", "job.retried")
_ALL_FAILURES = "failures"
_STATES: tuple[JobState, ...] = ("waiting", "running")
_SIGNS = {"waiting": "◷", "running": "▶", "done": "✓", "dropped": "✕"}
_MAX_DETAIL = 300


class ActivityQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Events of one type only, or all failures, and those before a number."""

    type: Literal[("", _ALL_FAILURES, *EVENT_TYPES)] = ""  # type: ignore[valid-type]
    before: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class ActivityData(Struct, frozen=True):
    """What there is to show."""

    open: list[Job]
    over: list[Job]
    failures: list[StoredEvent]
    events: list[StoredEvent]


async def activity(visit: PageRequest[NoForm, ActivityQuery]) -> HtmlPage:
    """What went wrong, what waits, and what happened. Whoever goes back among the events sees only those."""
    seen = await visit.service.run(lambda: _read_activity(visit))
    query = visit.query
    events = element("div", _events(visit, seen), **live_attributes("events", _activity_path(query, query.before)))
    if visit.part == "events":
        return HtmlPage(body=events)
    work = element(
        "div", _failures(visit, seen), _jobs(visit, seen), class_="stack", **live_attributes("activity", "/activity")
    )
    if visit.part == "activity":
        return HtmlPage(body=work)
    title = element("div", element("h1", "Activity"), class_="title-row")
    body = join((title, "" if query.before else work, _events_head(query), events))
    return HtmlPage(title="Activity", place="Activity", body=body)


def _activity_path(query: ActivityQuery, before: int | None) -> str:
    return page_path("activity", type=query.type, before=before)


def _read_activity(visit: PageRequest[NoForm, ActivityQuery]) -> ActivityData:
    service_store, namespace, query = visit.service.service_store, visit.scope.namespace, visit.query
    types = _FAILED if query.type == _ALL_FAILURES else (query.type,) if query.type else ()
    return ActivityData(
        open=service_store.jobs.newest(namespace=namespace, states=_STATES, limit=_JOBS),
        over=service_store.jobs.newest(namespace=namespace, states=("done", "dropped"), limit=_JOBS),
        failures=service_store.events.newest(namespace=namespace, types=_FAILED, limit=_FAILURES),
        events=service_store.events.newest(namespace=namespace, types=types, before=query.before, limit=_EVENTS),
    )


def _events_head(query: ActivityQuery) -> Markup:
    """The choice stands beside what it changes."""
    types = [("", "all events"), (_ALL_FAILURES, "all failures"), *((each, each) for each in EVENT_TYPES)]
    form = element(
        "form",
        select_field("type", "Events", types, query.type),
        element("button", "Show", class_="quiet"),
        method="get",
        action="/activity",
        class_="filter by-itself",
        hx_get="/activity",
        hx_trigger="submit, change",
        hx_target="#events",
        hx_swap="outerMorph",
        data_address="/activity",
    )
    newest = element("a", "← Newest", href=_activity_path(query, None)) if query.before else ""
    return element("div", element("h2", "Events"), newest, form, class_="title-row part")


def _failures(visit: PageRequest[NoForm, ActivityQuery], seen: ActivityData) -> Markup:
    if not seen.failures:
        return card("Failures", empty_state("Nothing went wrong lately."))
    rows = [_event_row(visit, each) for each in seen.failures]
    table = data_table("Failures, the newest first", ("When", "What", "Session", "Why"), rows, "events")
    every = element("a", "All failures", href=page_path("activity", type=_ALL_FAILURES))
    return card("Failures", table, more=every if len(rows) == _FAILURES else "")


def _jobs(visit: PageRequest[NoForm, ActivityQuery], seen: ActivityData) -> Markup:
    jobs = [*seen.open, *seen.over][:_JOBS]
    if not jobs:
        return card("Jobs", empty_state("No jobs.", "When a session reaches a level, its compaction stands here."))
    rows = [_job_row(visit, job) for job in jobs]
    names = ("State", "Job", "Session", "Attempts", "Queued", "Why")
    waiting = sum(job.state == "waiting" for job in seen.open)
    more = element("span", f"{waiting:,} waiting · {len(seen.open) - waiting:,} running", class_="faint")
    return card("Jobs", data_table("Jobs that wait or run, then those that ended", names, rows, "jobs"), more=more)


def _job_row(visit: PageRequest[NoForm, ActivityQuery], job: Job) -> tuple[str, ...]:
    sign = element("span", _SIGNS[job.state], aria_hidden="true")
    return (
        element("span", sign, f" {job.state}", class_=f"state is-{job.state}"),
        f"{job.kind} {job.level}".strip(),
        _session_link(visit, job.session_id),
        format_count(job.attempts),
        time_ago(job.created_at, visit.now),
        bounded_text(visit.scope.public_text(job.reason, job.session_id), _MAX_DETAIL),
    )


def _events(visit: PageRequest[NoForm, ActivityQuery], seen: ActivityData) -> Markup:
    if not seen.events:
        return empty_state("No events.", "Crossed levels, compactions, undos and recalls are told here.")
    rows = [_event_row(visit, each) for each in seen.events]
    table = data_table("Events, the newest first", ("When", "What", "Session", "Details"), rows, "events")
    older = element("a", "Older →", href=_activity_path(visit.query, seen.events[-1].number))
    more = element("nav", older, class_="pager", aria_label="Older events") if len(rows) == _EVENTS else ""
    return join((element("div", table, class_="card flush"), more))


def _event_row(visit: PageRequest[NoForm, ActivityQuery], kept: StoredEvent) -> tuple[str, ...]:
    event = kept.event
    is_failure = event.type in _FAILED
    return (
        time_ago(event.created_at, visit.now),
        element("span", "✕ " if is_failure else "", event.type, class_="tag failed" if is_failure else "tag"),
        _session_link(visit, event.session_id),
        bounded_text(visit.scope.public_text(_details(event.payload), event.session_id), _MAX_DETAIL),
    )


def _session_link(visit: PageRequest[NoForm, ActivityQuery], store_id: str) -> Markup:
    session_id = visit.scope.public_id(store_id)
    return element("a", bounded_text(session_id, 80), href=page_path("sessions", session_id), class_="name")


def _details(payload: dict[str, Any]) -> str:
    """What an event tells, in one line."""
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
