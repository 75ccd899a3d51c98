"""The dialogs behind `Compact now` and `Delete`."""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.figures import percent, plural
from context_compactor.levels import Level, LevelRule
from context_compactor.markup import Markup, element
from context_compactor.server.dashboard.pieces import choice, text
from context_compactor.server.dashboard.words import path


def compact_dialog(session_id: str, rules: Sequence[LevelRule]) -> Markup:
    """Asks how to compact, and has a place for what came of it."""
    levels = [("", "chosen by how full it is"), *((level.value, _level_words(level, rules)) for level in Level)]
    fields = element(
        "div",
        choice("level", "Level", levels, ""),
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
        hx_post=path("sessions", session_id, "compact"),
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


def _level_words(level: Level, rules: Sequence[LevelRule]) -> str:
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
        hx_post=path("sessions", session_id, "delete"),
        hx_target="#deletion",
        hx_swap="innerHTML",
        hx_config="timeout:600000",
        hx_disable="find button",
    )
    return element(
        "dialog",
        element("h2", "Delete ", element("q", text(session_id)), "?", id="delete-title"),
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
