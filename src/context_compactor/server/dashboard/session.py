"""What surrounds every page of one session: its status, tabs, chart, and the dialogs to compact and delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.components import (
    badge,
    bounded_text,
    card,
    gauge_bar,
    live_attributes,
    number_list,
    page_path,
    select_field,
    stacked_bar,
    swatch,
    time_ago,
)
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.sessions.token_series import token_series
from context_compactor.sessions.views import Totals, totals, usage
from context_compactor.settings import Level, LevelRule
from context_compactor.text import format_count, percent, plural
from context_compactor.tokens.budget import Usage


def compact_dialog(session_id: str, rules: Sequence[LevelRule]) -> Markup:
    """Asks how to compact, and has a place for what came of it."""
    levels = [("", "chosen by how full it is"), *((level.value, _level_label(level, rules)) for level in Level)]
    fields = element(
        "div",
        select_field("level", "Level", levels, ""),
        element(
            "label",
            element("span", "Focus"),
            element("input", name="focus", maxlength=2000, placeholder="what matters most, in your words"),
        ),
        element(
            "label",
            element("span", "Turns to keep word for word"),
            element("input", name="preserve", type="number", min=0, max=10_000, placeholder="as set"),
        ),
        class_="fields",
    )
    actions = element(
        "div",
        element("button", "Preview", name="dry_run", value="true", class_="quiet"),
        element("button", "Compact now"),
        element("button", "Close", type="button", class_="quiet", data_closes=True),
        class_="buttons",
    )
    form = element(
        "form",
        fields,
        actions,
        hx_post=page_path("sessions", session_id, "compact"),
        hx_target="#outcome",
        hx_swap="innerHTML",
        hx_config="timeout:600000",
        hx_disable="find button",
    )
    return element(
        "dialog",
        element("h2", "Compact now", id="compact-title"),
        element(
            "p",
            "A preview changes nothing. Whatever leaves the context is archived first, and can be undone.",
            class_="faint",
        ),
        form,
        element("div", id="outcome", role="status", aria_live="polite"),
        id="compact",
        aria_labelledby="compact-title",
    )


def _level_label(level: Level, rules: Sequence[LevelRule]) -> str:
    target = next((rule.target for rule in rules if rule.level == level), None)
    return f"{level}: down to {percent(target)}" if target is not None else level.value


def delete_dialog(session_id: str, messages: int) -> Markup:
    """Asks whether a session is to be deleted for good, and says what goes with it."""
    form = element(
        "form",
        element(
            "div",
            element("button", "Delete for good", class_="danger"),
            element("button", "Keep it", type="button", class_="quiet", data_closes=True),
            class_="buttons",
        ),
        hx_post=page_path("sessions", session_id, "delete"),
        hx_target="#deletion",
        hx_swap="innerHTML",
        hx_config="timeout:600000",
        hx_disable="find button",
    )
    return element(
        "dialog",
        element("h2", "Delete ", element("q", bounded_text(session_id)), "?", id="delete-title"),
        element(
            "p",
            f"Its {plural(messages, 'message')}, everything archived, its facts, compactions and events go, and "
            "nothing brings them back. What other sessions have said too stays with them.",
        ),
        form,
        element("div", id="deletion", role="status", aria_live="polite"),
        id="delete",
        aria_labelledby="delete-title",
    )


class SessionStatus(Struct, frozen=True):
    """How a session stands."""

    usage: Usage
    totals: Totals
    levels: tuple[LevelRule, ...]
    messages: int
    updated_at: str
    can_redo: bool


def session_status(opened: SessionHandle) -> SessionStatus:
    """How a session stands now. Blocks."""
    core = opened.core
    row = core.row()
    can_redo = bool(core.context_reader.log_state().can_redo)
    return SessionStatus(usage(core), totals(core), core.settings.levels, row.messages, row.updated_at, can_redo)


def status_part(visit: PageRequest[Any, Any], standing: SessionStatus, *, brief: bool) -> Markup:
    """What is above all pages of a session, and what can be done there; it follows by itself."""
    measured = standing.usage
    title = element(
        "div",
        element("h1", bounded_text(visit.id, 200)),
        badge(measured.level),
        _buttons(visit, standing) if visit.may_write else "",
        class_="title-row",
    )
    bar = element(
        "div",
        gauge_bar(measured.share, standing.levels),
        "" if brief else _threshold_names(standing.levels),
        class_="wide-gauge",
    )
    told = number_list(
        _brief_numbers(standing) if brief else [*_brief_numbers(standing), *_more_numbers(visit, standing)]
    )
    return element(
        "section",
        title,
        element("div", bar, told, "" if brief else _sections(measured), class_="card brief" if brief else "card"),
        aria_label="How the session stands",
        **live_attributes("now", page_path("sessions", visit.id, "now", brief=str(brief).lower())),
    )


def _brief_numbers(standing: SessionStatus) -> list[tuple[str, str]]:
    measured, made = standing.usage, standing.totals
    kept = made.compactions - made.undone
    saved = join(
        (format_count(made.tokens_saved), element("small", f" in {plural(kept, 'compaction')}" if kept else ""))
    )
    margin = element("small", f" +{100 * measured.margin:.0f} % at most" if measured.margin else "")
    return [
        ("Fill", join((percent(measured.share), element("small", f" of {measured.budget_tokens:,}")))),
        ("Tokens", join((format_count(measured.tokens), margin))),
        ("Messages", format_count(standing.messages)),
        ("Saved so far", saved),
    ]


def _more_numbers(visit: PageRequest[Any, Any], standing: SessionStatus) -> list[tuple[str, str]]:
    left = standing.usage.turns_left
    return [
        ("Room for", f"~{plural(left, 'turn')}" if left is not None else "–"),
        ("Last change", time_ago(standing.updated_at, visit.now)),
    ]


def _threshold_names(levels: Sequence[LevelRule]) -> Markup:
    """The names of the thresholds under the bar, which a narrow screen shows as one line."""
    return element(
        "p", " · ".join(f"{rule.level} from {percent(rule.threshold)}" for rule in levels), class_="faint thresholds"
    )


def _buttons(visit: PageRequest[Any, Any], standing: SessionStatus) -> Markup:
    made = standing.totals

    def turn(name: str, verb: str, can: bool) -> Markup:
        return element(
            "button",
            name,
            type="button",
            class_="quiet",
            disabled=not can,
            hx_post=page_path("sessions", visit.id, verb),
            hx_target="#answer",
            hx_swap="innerHTML",
        )

    return element(
        "div",
        element("button", "Compact now", type="button", data_opens="compact", disabled=not standing.messages),
        turn("Undo", "undo", made.compactions > made.undone),
        turn("Redo", "redo", standing.can_redo),
        element("button", "Delete", type="button", class_="quiet", data_opens="delete"),
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
            element("b", format_count(tokens)),
            element("span", percent(tokens / total), class_="faint"),
        )
        for name, tokens in parts
    )
    return element(
        "div",
        element("h2", "What the context is made of"),
        stacked_bar(parts, total, f"The context by section: {names or 'empty'}"),
        element("ul", *entries, class_="legend"),
        class_="sections",
    )


TABS = (("compactions", "Compactions"), ("plan", "Plan"), ("archive", "Archive"), ("facts", "Facts"))


class StatusQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is told above the pages of a session: on the first of them all, elsewhere what is needed beside it."""

    brief: bool = True


async def session_layout(visit: PageRequest[Any, Any], tab: str, content: Markup, *, brief: bool = True) -> HtmlPage:
    """A page of a session: what is above all of its pages, and then `content`."""
    standing = await visit.with_handle(session_status)
    body = join(
        (
            element("p", element("a", "← Sessions", href="/"), class_="way"),
            status_part(visit, standing, brief=brief),
            element("div", id="answer", role="status", aria_live="polite"),
            _tabs(visit, tab),
            element("div", content, class_="stack", id="tab"),
            compact_dialog(visit.id, standing.levels) if visit.may_write else "",
            delete_dialog(visit.id, standing.messages) if visit.may_write else "",
        )
    )
    return HtmlPage(title=visit.id, place="Sessions", body=body)


async def now(visit: PageRequest[NoForm, StatusQuery]) -> HtmlPage:
    """How the session stands: the part of its pages that changes."""
    return HtmlPage(body=status_part(visit, await visit.with_handle(session_status), brief=visit.query.brief))


async def series(visit: PageRequest[NoForm, NoForm]) -> dict[str, object]:
    """The points of the saw-tooth, at most some hundreds of them."""

    def look(opened: SessionHandle) -> dict[str, object]:
        saw = token_series(visit.kept.saws.weighed(opened.core))
        measured = usage(opened.core)
        return {
            "messages": [point[0] for point in saw.points],
            "tokens": [point[1] for point in saw.points],
            "teeth": [structs.asdict(each) for each in saw.compactions],
            "budget": measured.budget_tokens,
            "levels": msgspec.to_builtins(opened.core.settings.levels),
        }

    return await visit.with_handle(look)


def chart(visit: PageRequest[Any, Any]) -> Markup:
    """The saw-tooth, drawn when its numbers have come."""
    plot = element(
        "div",
        element("p", "Drawing…", class_="faint waiting"),
        class_="chart saw",
        data_chart="saw",
        data_from=page_path("sessions", visit.id, "series.json"),
        data_to=page_path("sessions", visit.id, "compactions"),
        role="img",
        aria_label="Tokens over messages, with compactions marked; the list of compactions has the same in numbers.",
    )
    return card("Tokens over messages", plot)


def _tabs(visit: PageRequest[Any, Any], tab: str) -> Markup:
    links = (
        element(
            "li",
            element(
                "a", words, href=page_path("sessions", visit.id, name), aria_current="page" if name == tab else None
            ),
        )
        for name, words in TABS
    )
    return element("nav", element("ul", *links), class_="tabs", aria_label="Parts of the session")
