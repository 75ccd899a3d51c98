"""A session as one row of the list, and what stands there before the first one."""

from __future__ import annotations

from typing import Any

from context_compactor.figures import count, percent, plural, short_count
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.drawings import badge, gauge, level_class, spark
from context_compactor.server.dashboard.listing import Listed
from context_compactor.server.dashboard.pieces import empty, text
from context_compactor.server.dashboard.visit import Visit
from context_compactor.server.dashboard.words import path, when
from context_compactor.session.log import Sight
from context_compactor.session.saw import skeleton


def session_row(visit: Visit[Any, Any], listed: Listed, sight: Sight | None) -> Markup:
    """How full a session is, what was saved in it, and how it went."""
    name = element("a", text(listed.id, 200), href=path("sessions", listed.id), class_="name", title=listed.id)
    window = f" · {short_count(listed.window)} window" if listed.window else ""
    cells = {
        "Session": join((name, element("span", text(listed.model, 60), window, class_="faint under"))),
        "Fill": element(
            "div",
            gauge(listed.share, listed.levels),
            element("span", percent(listed.share), class_="share"),
            badge(listed.level),
            class_="fill-cell",
        ),
        "Tokens": count(listed.tokens),
        "Messages": count(listed.messages),
        "Saved": _saved(visit, sight),
        "Course": _course(listed, sight),
        "Last change": when(listed.updated_at, visit.now),
    }
    return element(
        "tr", *(element("td", cell, data_name=name) for name, cell in cells.items()), class_=level_class(listed.level)
    )


def _saved(visit: Visit[Any, Any], sight: Sight | None) -> Markup:
    if sight is None or not sight.compactions:
        return element("span", "nothing yet", class_="faint")
    made = [each.note for each in sight.compactions if each.is_active]
    saved = sum(note.tokens_before - note.tokens_after for note in made)
    undone = len(sight.compactions) - len(made)
    told = plural(len(made), "compaction") + (f", {undone:,} undone" if undone else "")
    last = when(sight.compactions[-1].created_at, visit.now)
    return element("span", f"{short_count(saved)} tokens", element("span", f"{told} · ", last, class_="faint under"))


def _course(listed: Listed, sight: Sight | None) -> Markup:
    """Nothing is known of the way to here before the first compaction, so nothing is drawn."""
    made = [(each.position, each.note) for each in (sight.compactions if sight else ()) if each.is_active]
    if not made:
        return Markup()
    return spark(skeleton(made, listed.head, listed.tokens), f"{plural(len(made), 'compaction')} so far")


def nothing_yet(visit: Visit[Any, Any]) -> Markup:
    """How to begin, for whoever may."""
    words = "The first one appears here by itself, as soon as an agent begins one"
    if not visit.may_write:
        return empty("No session yet.", f"{words}.")
    scheme = "https" if visit.headers.get("x-forwarded-proto", "") == "https" else "http"
    host = visit.headers.get("host", "127.0.0.1:8377")
    token = ', token="cct_…"' if visit.service.doorman.needs_token else ""
    code = (
        "from context_compactor.client import Client\n\n"
        f'with Client("{scheme}://{host}"{token}) as client:\n'
        '    client.create("run-42", window=200_000)\n'
        '    client.append("run-42", {"role": "user", "content": "Hello"})'
    )
    return element(
        "div",
        element("p", "No session yet.", class_="title"),
        element("p", f"{words}:"),
        element("pre", code, tabindex=0),
        class_="empty",
    )
