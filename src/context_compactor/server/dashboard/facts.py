"""The facts of a session: what must outlive the text, by kind."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from msgspec import Struct

from context_compactor.facts.fact import Fact, FactKind, kinds_asked
from context_compactor.figures import count
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard import session as session_page
from context_compactor.server.dashboard.pieces import empty, grid, text
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import path, when

_MOST = 300
_WORDS = 600


class FactsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of one kind only."""

    kind: FactKind | None = None


async def facts(visit: Visit[NoForm, FactsQuery]) -> Page:
    """All facts, or those of a kind."""
    every = await visit.session(lambda session: session.facts())
    kind = visit.query.kind
    shown = [fact for fact in every if kind is None or fact.kind in kinds_asked(kind)]
    content = join((_kinds(visit, every), _list(visit, shown)))
    return await session_page.around(visit, "facts", content)


def _kinds(visit: Visit[NoForm, FactsQuery], every: list[Fact]) -> Markup:
    counts = Counter(fact.kind for fact in every)
    counts["error"] += counts["failure"] if counts["error"] else 0
    known: list[FactKind | None] = [None, *(kind for kind in get_args(FactKind) if counts[kind])]
    links = (
        element(
            "li",
            element(
                "a",
                kind.replace("_", " ") if kind else "all",
                " ",
                element("small", count(counts[kind] if kind else len(every))),
                href=path("sessions", visit.id, "facts", kind=kind),
                aria_current="true" if kind == visit.query.kind else None,
            ),
        )
        for kind in known
    )
    return element("nav", element("ul", *links), class_="chips", aria_label="Kinds of facts") if every else Markup()


def _list(visit: Visit[NoForm, FactsQuery], shown: list[Fact]) -> Markup:
    if not shown:
        return empty("No facts yet.", "Decisions, failures, file states and the like are noted as they are seen.")
    rows = [_row(visit, fact) for fact in shown[-_MOST:][::-1]]
    rest = len(shown) - len(rows)
    more = element("p", f"and {rest:,} older ones", class_="faint") if rest > 0 else ""
    table = grid("Facts, the newest first", ("Kind", "Fact", "State", "Turn", "Last seen", "Source"), rows, "facts")
    return join((element("div", table, class_="card flush"), more))


def _row(visit: Visit[NoForm, FactsQuery], fact: Fact) -> tuple[str, ...]:
    detail = element("span", text(fact.detail, _WORDS), class_="faint under") if fact.detail else ""
    link = (
        element("a", fact.ref, href=path("sessions", visit.id, "archive", fact.ref), class_="ref") if fact.ref else ""
    )
    times = f" ×{fact.count}" if fact.count > 1 else ""
    return (
        element("span", fact.kind.replace("_", " "), class_=f"tag kind-{fact.kind}"),
        join((text(fact.content, _WORDS), detail)),
        f"{fact.status}{times}",
        count(fact.turn),
        when(fact.last_seen or "", visit.now),
        link,
    )
