"""What surrounds every page of one session: how full it is and what can be done with it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.sessions.token_series import token_series
from context_compactor.sessions.views import Totals, totals, usage
from context_compactor.settings import Level, LevelRule
from context_compactor.text import percent
from context_compactor.tokens.budget import Usage


class StatusQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is shown above a page of a session: on the first of them all, elsewhere what is needed beside it."""

    brief: bool = True


class SessionOverview(Struct, frozen=True):
    """How full a session is, and what can be done with it."""

    usage: Usage
    totals: Totals
    levels: tuple[LevelRule, ...]
    messages: int
    updated_at: str
    can_redo: bool

    @property
    def sections(self) -> dict[str, int]:
        """Tokens by section of the context, without the empty ones."""
        return {name: tokens for name, tokens in structs.asdict(self.usage.sections).items() if tokens > 0}

    @property
    def level_choices(self) -> list[tuple[str, str]]:
        """The levels to compact at, each with the share of the budget it brings the context to."""
        targets = {rule.level: f"{rule.level}: down to {percent(rule.target)}" for rule in self.levels}
        return [("", "chosen by how full it is"), *((level.value, targets.get(level, level)) for level in Level)]


def session_status(opened: SessionHandle) -> SessionOverview:
    """The status of a session now. Blocks."""
    core = opened.core
    row = core.row()
    can_redo = bool(core.context_reader.log_state().can_redo)
    return SessionOverview(usage(core), totals(core), core.settings.levels, row.messages, row.updated_at, can_redo)


async def session_page(
    request: PageRequest[Any, Any], template: str, tab: str, *, brief: bool = True, **values: object
) -> HtmlPage:
    """A page of a session, whose template fills the block `tab` of session.html."""
    status = await request.with_handle(session_status)
    values |= {"status": status, "brief": brief, "tab": tab}
    return HtmlPage(template=template, title=request.id, place="Sessions", values=values)


async def now(request: PageRequest[NoForm, StatusQuery]) -> HtmlPage:
    """The status of the session: the part of its pages that changes."""
    values = {"status": await request.with_handle(session_status), "brief": request.query.brief}
    return HtmlPage(template="session.html", part="now", values=values)


async def series(request: PageRequest[NoForm, NoForm]) -> dict[str, object]:
    """The points of the chart of tokens over messages, at most some hundreds of them."""

    def read(opened: SessionHandle) -> dict[str, object]:
        found = token_series(request.caches.token_series.weighed(opened.core))
        return {
            "messages": [point[0] for point in found.points],
            "tokens": [point[1] for point in found.points],
            "compactions": [structs.asdict(each) for each in found.compactions],
            "budget": usage(opened.core).budget_tokens,
            "levels": msgspec.to_builtins(opened.core.settings.levels),
        }

    return await request.with_handle(read)
