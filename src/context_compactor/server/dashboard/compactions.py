"""The pages about compactions: the list, one report, before and after, and the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Literal

from msgspec import Meta, Struct

from context_compactor.engine.report import Archived, Report
from context_compactor.errors import UnknownReference
from context_compactor.markup import Markup, element, folded, join
from context_compactor.server.dashboard import session as session_page
from context_compactor.server.dashboard.components import (
    bounded_text,
    card,
    data_table,
    empty_state,
    live_attributes,
    number_list,
    page_path,
    pager,
    select_field,
    time_ago,
)
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.sessions.log import LoggedCompaction
from context_compactor.sessions.views import ContextDiff, DiffRow, DiffSide, diff, report_of
from context_compactor.settings import Level
from context_compactor.text import format_count, percent

_MAX_TARGETS = 100
_MAX_REASON = 400
TIERS = {
    "keep": "kept word for word",
    "summarize": "stands in fewer words",
    "reference": "behind a reference",
    "drop": "left no text behind",
}


def report_numbers(report: Report) -> Markup:
    """The numbers of a report: from how much to how much, and what became of what was in it."""
    fidelity, metrics = report.fidelity, report.metrics
    return number_list(
        (
            ("Tokens", _from_to(report)),
            (
                "Saved",
                join((format_count(report.tokens_saved), element("small", f" {report.reduction_percent:.0f} %"))),
            ),
            ("Messages", f"{report.messages_before:,} → {report.messages_after:,}"),
            (
                "Readable still",
                join(
                    (
                        percent(_fidelity_share(fidelity.retained, report)),
                        element("small", f" of {fidelity.checked:,} names"),
                    )
                ),
            ),
            ("Reachable", percent(_fidelity_share(fidelity.retained + fidelity.reachable, report))),
            ("Failures kept", percent(metrics.failures_share)),
        )
    )


def _from_to(report: Report) -> Markup:
    return element("span", f"{report.tokens_before:,} → {report.tokens_after:,}", class_="from-to")


def _fidelity_share(part: int, report: Report) -> float | None:
    return part / report.fidelity.checked if report.fidelity.checked else None


def tier_mark(tier: str) -> Markup:
    """A tier by its name."""
    return element("span", tier, class_=f"tier tier-{tier}", title=TIERS[tier])


def target_table(report: Report, session_id: str) -> Markup:
    """Every target with its tier and reason: what is dropped or shortened first, since that is what one looks for."""
    rows = list(_target_rows(report, session_id))
    if not rows:
        return empty_state("Nothing would change.", report.reason or "There is nothing to shorten.")
    counts = element(
        "ul",
        *(
            element("li", tier_mark(tier), " ", element("b", format_count(_tier_count(report, tier))), f" {words}")
            for tier, words in TIERS.items()
        ),
        class_="summary",
        aria_label="Targets by tier",
    )
    table = data_table("Targets by tier, with reasons", ("Tier", "Id", "What", "Tokens", "Why"), rows, "targets")
    return join((counts, element("div", table, class_="card flush")))


def _tier_count(report: Report, tier: str) -> int:
    lists: dict[str, Sequence[object]] = {
        "keep": report.preserved,
        "summarize": report.summarized,
        "reference": _referenced(report),
        "drop": report.discarded,
    }
    return len(lists[tier])


def _referenced(report: Report) -> list[Archived]:
    """Originals that nothing else in the report speaks of."""
    told = {each.id for each in report.summarized} | {each.id for each in report.discarded}
    return [each for each in report.archived if each.id not in told]


def _target_rows(report: Report, session_id: str) -> Iterable[tuple[str, ...]]:
    yield from _with_rest(
        [
            _target_row(
                "drop",
                _recall_link(session_id, each.id),
                each.kind,
                each.summary,
                format_count(each.tokens),
                each.reason,
            )
            for each in report.discarded[:_MAX_TARGETS]
        ],
        len(report.discarded),
        "drop",
    )
    yield from _with_rest(
        [
            _target_row(
                "summarize",
                _recall_link(session_id, each.id),
                each.kind,
                each.summary,
                f"{each.tokens:,} → {each.tokens_after:,}",
                each.reason,
            )
            for each in report.summarized[:_MAX_TARGETS]
        ],
        len(report.summarized),
        "summarize",
    )
    referenced = _referenced(report)
    yield from _with_rest(
        [
            _target_row(
                "reference",
                _recall_link(session_id, each.id),
                each.kind,
                each.summary,
                format_count(each.tokens),
                each.recovery,
            )
            for each in referenced[:_MAX_TARGETS]
        ],
        len(referenced),
        "reference",
    )
    yield from _with_rest(
        [
            _target_row(
                "keep",
                f"turn {each.turn}" if each.turn else "",
                each.kind,
                each.summary,
                format_count(each.tokens),
                each.reason,
            )
            for each in report.preserved[:_MAX_TARGETS]
        ],
        len(report.preserved),
        "keep",
    )


def _target_row(tier: str, ref: str, kind: str, summary: str, tokens: str, reason: str) -> tuple[str, ...]:
    what = join((bounded_text(summary, _MAX_REASON), element("span", kind, class_="faint under")))
    return tier_mark(tier), ref, what, tokens, bounded_text(reason, _MAX_REASON)


def _with_rest(rows: list[tuple[str, ...]], total: int, tier: str) -> list[tuple[str, ...]]:
    rest = total - len(rows)
    return [*rows, (tier_mark(tier), "", f"and {rest:,} more", "", "")] if rest > 0 else rows


def _recall_link(session_id: str, ref: str) -> Markup:
    return element("a", ref, href=page_path("sessions", session_id, "archive", ref), class_="ref")


_PAGE_SIZE = 20


class PageNumber(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of a list."""

    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


async def compactions(visit: PageRequest[NoForm, PageNumber]) -> HtmlPage:
    """All compactions, the newest first."""
    made, reports = await visit.with_handle(lambda opened: _reports_of_page(opened, visit.query.page))
    content = element(
        "div",
        _compaction_table(visit, made, reports),
        **live_attributes("compactions", page_path("sessions", visit.id, "compactions", page=visit.query.page)),
    )
    if visit.part == "compactions":
        return HtmlPage(body=content)
    chart = session_page.chart(visit)
    return await session_page.session_layout(visit, "compactions", join((chart, content)), brief=False)


def _reports_of_page(
    opened: SessionHandle, page: int
) -> tuple[tuple[LoggedCompaction, ...], list[tuple[LoggedCompaction, Report]]]:
    made = opened.core.context_reader.log_state().compactions
    first = (page - 1) * _PAGE_SIZE
    return made, [(each, report_of(opened.core, each)) for each in made[::-1][first : first + _PAGE_SIZE]]


def _compaction_table(
    visit: PageRequest[NoForm, PageNumber],
    made: tuple[LoggedCompaction, ...],
    reports: list[tuple[LoggedCompaction, Report]],
) -> Markup:
    if not made:
        return empty_state(
            "Nothing was compacted yet.",
            "It happens by itself when a level is reached, or with Compact now; Plan shows what it would do.",
        )
    rows = [_compaction_row(visit, compacted, report) for compacted, report in reports]
    names = ("Compaction", "When", "Why", "Tokens", "Saved", "Readable", "Reachable", "Failures kept")
    pages = -(-len(made) // _PAGE_SIZE)
    table = element("div", data_table("Compactions, the newest first", names, rows, "compactions"), class_="card flush")
    return join((table, pager(["sessions", visit.id, "compactions"], visit.query.page, pages)))


def _compaction_row(
    visit: PageRequest[NoForm, PageNumber], compacted: LoggedCompaction, report: Report
) -> tuple[str, ...]:
    link = element(
        "a", compacted.note.id, href=page_path("sessions", visit.id, "compactions", compacted.note.id), class_="ref"
    )
    undone = Markup() if compacted.is_active else element("span", "undone", class_="tag")
    checked = report.fidelity.checked or 1
    return (
        join((link, " ", undone)),
        time_ago(compacted.created_at, visit.now),
        " · ".join(filter(None, (report.trigger, report.level))),
        f"{report.tokens_before:,} → {report.tokens_after:,}",
        f"{format_count(report.tokens_saved)} ({report.reduction_percent:.0f} %)",
        percent(report.fidelity.retained / checked if report.fidelity.checked else None),
        percent((report.fidelity.retained + report.fidelity.reachable) / checked if report.fidelity.checked else None),
        percent(report.metrics.failures_share),
    )


async def compaction(visit: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """The report of one compaction."""
    compacted, report = await visit.with_handle(lambda opened: _find_report(opened, visit.ref))
    changes = page_path("sessions", visit.id, "compactions", visit.ref, "changes")
    state = "" if compacted.is_active else " · undone"
    told = element(
        "p",
        time_ago(compacted.created_at, visit.now),
        f" · {report.trigger} {report.level or ''}{state}",
        class_="faint",
    )
    content = join(
        (
            card(
                compacted.note.id,
                told,
                report_numbers(report),
                _report_notes(report),
                more=element("a", "Before and after", href=changes),
            ),
            target_table(report, visit.id),
        )
    )
    return await session_page.session_layout(visit, "compactions", content)


def _report_notes(report: Report) -> Markup:
    lines = [
        each for each in (report.reason, f"The story was told by {report.told_by}." if report.told_by else "") if each
    ]
    missing = [f"Missing: {each.kind} {each.value}" for each in report.fidelity.missing[:20]]
    return join(element("p", bounded_text(line)) for line in [*lines, *missing])


def _find_report(opened: SessionHandle, compaction_id: str) -> tuple[LoggedCompaction, Report]:
    compacted = find_compaction(opened, compaction_id)
    return compacted, report_of(opened.core, compacted)


def find_compaction(opened: SessionHandle, compaction_id: str) -> LoggedCompaction:
    """The compaction with this id."""
    made = opened.core.context_reader.log_state().compactions
    found = next((each for each in made if each.note.id == compaction_id), None)
    if found is None:
        raise UnknownReference(f"this session has no compaction {compaction_id[:60]!r}")
    return found


_MAX_CHANGES = 300
_SHOWN_MESSAGES = 8
_MAX_PREVIEW = 500
_MAX_WRITTEN = 20_000
_MARKS = {"same": "=", "removed": "−", "added": "+", "changed": "~"}


async def changes(visit: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """What a compaction took away and what it wrote."""
    shown = await visit.with_handle(lambda opened: _diff_around(visit, opened))
    counts = ", ".join(f"{number:,} {name}" for name, number in shown.counts().items() if number)
    back = element("a", "Report", href=page_path("sessions", visit.id, "compactions", visit.ref))
    head = element(
        "div",
        *(
            element("div", element("b", title), element("span", f"{tokens:,} tokens", class_="faint"))
            for title, tokens in zip(shown.title, shown.tokens, strict=True)
        ),
        class_="sides heads",
    )
    rest = len(shown.rows) - _MAX_CHANGES
    more = element("p", f"and {rest:,} more messages", class_="faint") if rest > 0 else ""
    content = card(
        "Before and after",
        element("p", f"Messages: {counts}", class_="faint"),
        head,
        *_change_rows(shown.rows[:_MAX_CHANGES]),
        more,
        more=back,
    )
    return await session_page.session_layout(visit, "compactions", content)


def _diff_around(visit: PageRequest[NoForm, NoForm], opened: SessionHandle) -> ContextDiff:
    """Exactly around the compaction that counts; around another one from one message to the next."""
    compacted, last = find_compaction(opened, visit.ref), opened.core.context_reader.log_state().last
    if last is not None and last.note.id == compacted.note.id:
        return diff(opened.core, None, None)
    at = visit.kept.saws.weighed(opened.core).messages_at(compacted.position)
    return diff(opened.core, max(at - 1, 0), at)


def _change_rows(rows: Sequence[DiffRow]) -> Iterator[Markup]:
    """Neighbours that went or came are one piece; all others have a row each."""
    for is_replaced, some in groupby(rows, lambda row: row.change in ("removed", "added")):
        if is_replaced:
            yield _replaced(list(some))
        else:
            yield from (_change_row(row) for row in some)


def _change_row(row: DiffRow) -> Markup:
    return element(
        "div",
        _side(row.before),
        element("span", _MARKS[row.change], class_="sign", title=row.change),
        _side(row.after),
        class_=f"sides is-{row.change}",
    )


def _replaced(rows: Sequence[DiffRow]) -> Markup:
    went = [_changed_message("removed", _preview(row.before)) for row in rows if row.before]
    came = [
        _changed_message("added", element("pre", bounded_text(_message_text(row.after), _MAX_WRITTEN)))
        for row in rows
        if row.after
    ]
    return element(
        "div",
        element("div", *_with_folded_rest(went), class_="went"),
        element("div", *_with_folded_rest(came), class_="came"),
        class_="replaced",
    )


def _with_folded_rest(pieces: Sequence[Markup]) -> Iterable[Markup]:
    rest = pieces[_SHOWN_MESSAGES:]
    return (*pieces[:_SHOWN_MESSAGES], *([folded(f"{len(rest):,} more messages", join(rest))] if rest else []))


def _changed_message(change: str, content: Markup) -> Markup:
    return element(
        "div",
        element("span", _MARKS[change], class_="sign", title=change),
        element("div", content, class_="side"),
        class_=f"piece is-{change}",
    )


def _side(side: DiffSide | None) -> Markup:
    return element("div", _preview(side) if side else "", class_="side")


def _preview(side: DiffSide) -> Markup:
    return bounded_text(side.words, _MAX_PREVIEW)


def _message_text(side: DiffSide) -> str:
    """All that a message says; a line about it when that is no text."""
    content = side.raw.get("content")
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in content or () if isinstance(block, dict)]
    return "\n\n".join(each for each in texts if isinstance(each, str)) or side.words


class PlanPageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """At which level."""

    level: Literal["soft", "aggressive", "emergency"] = "soft"


async def plan(visit: PageRequest[NoForm, PlanPageQuery]) -> HtmlPage:
    """The turns by tier, with reasons: the page first, the plan when it is ready."""
    if visit.part == "plan":
        return HtmlPage(body=await _planned(visit))
    place = page_path("sessions", visit.id, "plan", level=visit.query.level)
    waiting = element(
        "div",
        element("p", "Planning…", class_="faint waiting"),
        id="plan",
        hx_get=place,
        hx_trigger="load",
        hx_target="this",
        hx_swap="outerHTML",
    )
    return await session_page.session_layout(visit, "plan", waiting)


async def _planned(visit: PageRequest[NoForm, PlanPageQuery]) -> Markup:
    level = visit.query.level
    report = await visit.run_compaction(lambda session: session.compact(level=level, dry_run=True))
    form = element(
        "form",
        select_field("level", "If compacted now at", [(each.value, each.value) for each in Level], level),
        element("button", "Plan", class_="quiet"),
        method="get",
        action=page_path("sessions", visit.id, "plan"),
        class_="filter",
    )
    return element(
        "div",
        card("Plan", report_numbers(report), more=form),
        target_table(report, visit.id),
        id="plan",
        class_="stack",
    )
