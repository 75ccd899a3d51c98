"""How a session stands: its fill, its numbers, what its context is made of, and the buttons beside its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from context_compactor.figures import count, percent, plural
from context_compactor.levels import LevelRule
from context_compactor.markup import Markup, element, join
from context_compactor.measure.usage import Usage
from context_compactor.server.dashboard.drawings import badge, gauge, stacked, swatch
from context_compactor.server.dashboard.pieces import live, numbers, text
from context_compactor.server.dashboard.visit import Visit
from context_compactor.server.dashboard.words import path, when
from context_compactor.server.open_sessions import Opened
from context_compactor.session.record import Totals, totals
from context_compactor.session.views import usage


class Standing(Struct, frozen=True):
    """How a session stands."""

    usage: Usage
    totals: Totals
    levels: tuple[LevelRule, ...]
    messages: int
    updated_at: str
    can_redo: bool


def standing_of(opened: Opened) -> Standing:
    """How a session stands now. Blocks."""
    core = opened.core
    row = core.row()
    can_redo = bool(core.lens.sight().can_redo)
    return Standing(usage(core), totals(core), core.settings.levels, row.messages, row.updated_at, can_redo)


def standing_part(visit: Visit[Any, Any], standing: Standing, *, brief: bool) -> Markup:
    """What is above all pages of a session, and what can be done there; it follows by itself."""
    measured = standing.usage
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
        "" if brief else _threshold_names(standing.levels),
        class_="wide-gauge",
    )
    told = numbers(_brief(standing) if brief else [*_brief(standing), *_more(visit, standing)])
    return element(
        "section",
        title,
        element("div", bar, told, "" if brief else _sections(measured), class_="card brief" if brief else "card"),
        aria_label="How the session stands",
        **live("now", path("sessions", visit.id, "now", brief=str(brief).lower())),
    )


def _brief(standing: Standing) -> list[tuple[str, str]]:
    measured, made = standing.usage, standing.totals
    kept = made.compactions - made.undone
    saved = join((count(made.tokens_saved), element("small", f" in {plural(kept, 'compaction')}" if kept else "")))
    margin = element("small", f" +{100 * measured.margin:.0f} % at most" if measured.margin else "")
    return [
        ("Fill", join((percent(measured.share), element("small", f" of {measured.budget_tokens:,}")))),
        ("Tokens", join((count(measured.tokens), margin))),
        ("Messages", count(standing.messages)),
        ("Saved so far", saved),
    ]


def _more(visit: Visit[Any, Any], standing: Standing) -> list[tuple[str, str]]:
    left = standing.usage.turns_left
    return [
        ("Room for", f"~{plural(left, 'turn')}" if left is not None else "–"),
        ("Last change", when(standing.updated_at, visit.now)),
    ]


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
