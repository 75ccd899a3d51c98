"""One session: how full it is, with what, how it went, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.levels import LevelRule
from context_compactor.markup import Markup, element, join
from context_compactor.measure.usage import Usage
from context_compactor.server.dashboard.dialog import compact_dialog
from context_compactor.server.dashboard.drawings import badge, gauge, stacked, swatch
from context_compactor.server.dashboard.pieces import card, live, numbers, text
from context_compactor.server.dashboard.saw import saw_of
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import count, path, percent, plural, when
from context_compactor.server.open_sessions import Opened
from context_compactor.session.record import Totals, totals
from context_compactor.session.views import usage

TABS = (("compactions", "Compactions"), ("plan", "Plan"), ("archive", "Archive"), ("facts", "Facts"))


class Standing(Struct, frozen=True):
    """How a session stands."""

    usage: Usage
    totals: Totals
    levels: tuple[LevelRule, ...]
    messages: int
    updated_at: str
    can_redo: bool


async def around(visit: Visit[Any, Any], tab: str, content: Markup) -> Page:
    """A page of a session: what is above all of its pages, and then `content`."""
    standing = await visit.opened(_standing)
    body = join(
        (
            element("p", element("a", "← Sessions", href="/"), class_="way"),
            _now(visit, standing),
            element("div", id="answer", role="status", aria_live="polite"),
            _tabs(visit, tab),
            element("div", content, class_="stack", id="tab"),
            compact_dialog(visit.id, standing.levels) if visit.may_write else "",
        )
    )
    return Page(title=visit.id, place="Sessions", body=body)


async def now(visit: Visit[NoForm, NoForm]) -> Page:
    """How the session stands: the part of its pages that changes."""
    return Page(body=_now(visit, await visit.opened(_standing)))


async def series(visit: Visit[NoForm, NoForm]) -> dict[str, object]:
    """The points of the saw-tooth, at most some hundreds of them."""

    def look(opened: Opened) -> dict[str, object]:
        saw = saw_of(visit.kept.saws.weighed(opened.core))
        measured = usage(opened.core)
        return {
            "messages": [point[0] for point in saw.points],
            "tokens": [point[1] for point in saw.points],
            "teeth": [structs.asdict(tooth) for tooth in saw.teeth],
            "budget": measured.budget_tokens,
            "levels": msgspec.to_builtins(opened.core.settings.levels),
        }

    return await visit.opened(look)


def _standing(opened: Opened) -> Standing:
    core = opened.core
    row = core.store.session(core.id)
    can_redo = bool(core.lens.sight().can_redo)
    return Standing(usage(core), totals(core), core.settings.levels, row.messages, row.updated_at, can_redo)


def _now(visit: Visit[Any, Any], standing: Standing) -> Markup:
    measured, made = standing.usage, standing.totals
    title = element(
        "div",
        element("h1", text(visit.id, 200)),
        badge(measured.level),
        _buttons(visit, standing) if visit.may_write else "",
        class_="title-row",
    )
    bar = element(
        "div",
        gauge(measured.share, standing.levels),
        _threshold_names(standing.levels),
        class_="wide-gauge",
    )
    left = measured.turns_left
    saved = join(
        (count(made.tokens_saved), element("small", f" in {plural(made.compactions - made.undone, 'compaction')}"))
    )
    told = numbers(
        (
            ("Fill", join((percent(measured.share), element("small", f" of {measured.budget_tokens:,}")))),
            ("Tokens", join((count(measured.tokens), element("small", f" up to +{100 * measured.margin:.0f} %")))),
            ("Messages", count(standing.messages)),
            ("Saved so far", saved),
            ("Room for", f"~{plural(left, 'turn')}" if left is not None else "–"),
            ("Last change", when(standing.updated_at, visit.now)),
        )
    )
    return element(
        "section",
        title,
        element("div", bar, told, _sections(measured), class_="card"),
        aria_label="How the session stands",
        **live("now", path("sessions", visit.id, "now")),
    )


def _threshold_names(levels: Sequence[LevelRule]) -> Markup:
    """The names of the thresholds under the bar, which a narrow screen shows as one line."""
    return element(
        "p", " · ".join(f"{rule.level} from {percent(rule.threshold)}" for rule in levels), class_="faint thresholds"
    )


def _buttons(visit: Visit[Any, Any], standing: Standing) -> Markup:
    made = standing.totals

    def turn(name: str, verb: str, can: bool) -> Markup:
        return element(
            "button",
            name,
            type="button",
            class_="quiet",
            disabled=not can,
            hx_post=path("sessions", visit.id, verb),
            hx_target="#answer",
            hx_swap="innerHTML",
        )

    return element(
        "div",
        element("button", "Compact now", type="button", data_opens="compact", disabled=not standing.messages),
        turn("Undo", "undo", made.compactions > made.undone),
        turn("Redo", "redo", standing.can_redo),
        class_="buttons",
    )


def _sections(measured: Usage) -> Markup:
    parts = [(name, tokens) for name, tokens in structs.asdict(measured.sections).items() if tokens > 0]
    total = max(measured.tokens, sum(tokens for _, tokens in parts), 1)
    names = ", ".join(f"{name.replace('_', ' ')} {percent(tokens / total)}" for name, tokens in parts)
    entries = (
        element(
            "li",
            swatch(name),
            element("span", name.replace("_", " ")),
            element("b", count(tokens)),
            element("span", percent(tokens / total), class_="faint"),
        )
        for name, tokens in parts
    )
    return element(
        "div",
        element("h2", "What the context is made of"),
        stacked(parts, total, f"The context by section: {names or 'empty'}"),
        element("ul", *entries, class_="legend"),
        class_="sections",
    )


def chart(visit: Visit[Any, Any]) -> Markup:
    """The saw-tooth, drawn when its numbers have come."""
    plot = element(
        "div",
        element("p", "Drawing…", class_="faint waiting"),
        class_="chart saw",
        data_chart="saw",
        data_from=path("sessions", visit.id, "series.json"),
        data_to=path("sessions", visit.id, "compactions"),
        role="img",
        aria_label="Tokens over messages, with compactions marked; the list of compactions has the same in numbers.",
    )
    return card("Tokens over messages", plot)


def _tabs(visit: Visit[Any, Any], tab: str) -> Markup:
    links = (
        element(
            "li",
            element("a", words, href=path("sessions", visit.id, name), aria_current="page" if name == tab else None),
        )
        for name, words in TABS
    )
    return element("nav", element("ul", *links), class_="tabs", aria_label="Parts of the session")
