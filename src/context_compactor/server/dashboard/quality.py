"""Quality over time: what the last compactions of all sessions saved, and what they kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.caches import MAX_COMPACTIONS, CompactionNumbers
from context_compactor.server.dashboard.components import (
    bounded_text,
    card,
    data_table,
    empty_state,
    live_attributes,
    number_list,
    page_path,
    time_ago,
)
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.text import format_count, percent, short_count

_MAX_ROWS = 25
_CHARTS = (
    ("reduction", "Reduction", "How much of a context each compaction took away."),
    (
        "fidelity",
        "Fidelity",
        "What is still readable of the names in removed text, what a reference reaches, which failures stay.",
    ),
    ("saved", "Tokens saved", "By each compaction."),
)


async def quality(visit: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Reduction, fidelity, failures kept and tokens saved, compaction by compaction."""
    measured = await visit.service.run(lambda: _measured(visit))
    told = element("div", _averages(measured), **live_attributes("quality", "/quality"))
    if visit.part == "quality":
        return HtmlPage(body=told)
    table = element("div", _quality_table(visit, measured), **live_attributes("measured", "/quality"))
    if visit.part == "measured":
        return HtmlPage(body=table)
    heading = element(
        "div",
        element("h1", "Quality"),
        element("p", f"The last {MAX_COMPACTIONS} compactions of all sessions", class_="faint"),
        class_="title-row",
    )
    charts = element("div", *(_chart(*each) for each in _CHARTS), class_="charts") if measured else ""
    return HtmlPage(title="Quality", place="Quality", body=join((heading, told, charts, table)))


async def quality_series(visit: PageRequest[NoForm, NoForm]) -> dict[str, object]:
    """The same as lists of numbers, for the charts."""
    measured = await visit.service.run(lambda: _measured(visit))
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


def _measured(visit: PageRequest[NoForm, NoForm]) -> list[CompactionNumbers]:
    sessions = visit.kept.listing.sessions(visit.scope, visit.service.store)
    return visit.kept.measures.newest(sessions, visit.service.store)


def _chart(name: str, title: str, words: str) -> Markup:
    plot = element(
        "div",
        element("p", "Drawing…", class_="faint waiting"),
        class_="chart",
        data_chart=name,
        data_from="/quality/series.json",
        role="img",
        aria_label=f"{title}. {words} The table below has the same in numbers.",
    )
    return card(title, element("p", words, class_="faint"), plot)


def _averages(measured: Sequence[CompactionNumbers]) -> Markup:
    if not measured:
        return empty_state("Nothing was compacted yet.", "After the first compaction its measures stand here.")
    active = [each for each in measured if each.is_active] or measured
    undone = sum(not each.is_active for each in measured)
    made = join((format_count(len(measured)), element("small", f" {undone:,} undone" if undone else "")))
    return element(
        "div",
        number_list(
            (
                ("Compactions", made),
                ("Reduction", percent(_mean(each.reduction for each in active))),
                ("Readable still", percent(_mean(each.retained for each in active))),
                ("Reachable", percent(_mean(each.reachable for each in active))),
                ("Failures kept", percent(_mean(each.failures for each in active))),
                ("Tokens saved", short_count(sum(each.before - each.after for each in measured if each.is_active))),
                ("Time for each", f"{fmean(each.milliseconds for each in active):,.0f} ms"),
            )
        ),
        class_="card",
    )


def _quality_table(visit: PageRequest[NoForm, NoForm], measured: Sequence[CompactionNumbers]) -> Markup:
    if not measured:
        return Markup()
    rows = [_quality_row(visit, each) for each in measured[::-1][:_MAX_ROWS]]
    names = ("Session", "When", "Why", "Tokens", "Reduction", "Readable", "Reachable", "Failures kept")
    return element("div", data_table("The newest compactions", names, rows, "compactions"), class_="card flush")


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _quality_row(visit: PageRequest[NoForm, NoForm], each: CompactionNumbers) -> tuple[str, ...]:
    link = element(
        "a",
        bounded_text(each.session, 80),
        href=page_path("sessions", each.session, "compactions", each.id),
        class_="name",
    )
    return (
        join((link, " ", Markup() if each.is_active else element("span", "undone", class_="tag"))),
        time_ago(each.created_at, visit.now),
        " · ".join(filter(None, (each.trigger, each.level))),
        f"{each.before:,} → {each.after:,}",
        percent(each.reduction),
        percent(each.retained),
        percent(each.reachable),
        percent(each.failures),
    )
