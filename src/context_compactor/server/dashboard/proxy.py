"""What proxied requests cost, with us and held out, and the newest of them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from context_compactor.proxy.bills import (
    BillGroup,
    BillLine,
    ProxyReport,
    bill_lines,
    client_name,
    money,
    request_cost,
    side_dollars,
)
from context_compactor.server.dashboard.caches import MAX_PROXIED, PROXIED_DAYS
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.server.tokens import Scope
from context_compactor.settings import ModelEntry, load_settings
from context_compactor.store.proxied import ProxiedRequest

_MAX_MODELS = 12
_NOT_KNOWN = "–"


class ModelBill(Struct, frozen=True):
    """One side of a model, as a row of a table."""

    model: str
    is_held_out: bool
    conversations: int
    requests: int
    cache_share: float | None
    dollars: str
    per_request: str


class ClientBill(Struct, frozen=True):
    """The tables of one client."""

    name: str
    lines: tuple[BillLine, ...]
    models: tuple[ModelBill, ...]
    more_models: int
    comparison: str


class RequestRow(Struct, frozen=True):
    """A request as a reader may see it; tokens are None where no usage was reported."""

    at: str
    session_id: str
    model: str
    kind: str
    status: int
    has_failed: bool
    is_held_out: bool
    tokens: tuple[int, int, int, int] | None
    dollars: str
    milliseconds: int


async def proxy(request: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Both sides of every client side by side, and the newest requests."""
    values = await request.service.run(lambda: _read_proxy(request))
    if request.part in ("bills", "proxied"):
        return HtmlPage(template="proxy.html", part=request.part, values=values)
    return HtmlPage(template="proxy.html", title="Proxy", place="Proxy", values=values)


def _read_proxy(request: PageRequest[NoForm, NoForm]) -> dict[str, Any]:
    prices = load_settings().settings.models
    read = request.caches.proxied.read(request.scope, request.service.service_store, prices)
    return {
        "clients": [_client_bill(read.report, at) for at in range(len(read.report.clients))],
        "notes": read.report.notes,
        "newest": [_request_row(row, request.scope, prices) for row in read.newest],
        "max_requests": MAX_PROXIED,
        "days": PROXIED_DAYS,
    }


def _client_bill(report: ProxyReport, at: int) -> ClientBill:
    group = report.clients[at]
    models = [each for each in report.models if each.client == group.client]
    return ClientBill(
        name=client_name(group.client or ""),
        lines=bill_lines(group),
        models=tuple(bill for each in models[:_MAX_MODELS] for bill in _model_bills(each)),
        more_models=max(0, len(models) - _MAX_MODELS),
        comparison=report.comparisons[at].text,
    )


def _model_bills(group: BillGroup) -> list[ModelBill]:
    sides = ((group.with_us, False), (group.without_us, True))
    return [
        ModelBill(
            group.model or "no name",
            is_held_out,
            side.conversations,
            side.requests,
            side.cache_share,
            side_dollars(side),
            _NOT_KNOWN if side.dollars_per_request is None else money(side.dollars_per_request),
        )
        for side, is_held_out in sides
        if not side.is_empty
    ]


def _request_row(row: ProxiedRequest, scope: Scope, prices: dict[str, ModelEntry]) -> RequestRow:
    cost = request_cost(row, prices)
    return RequestRow(
        at=row.at,
        session_id=scope.public_id(row.session_id),
        model=row.model or "no name",
        kind=row.kind,
        status=row.status,
        has_failed=not 200 <= row.status < 400,
        is_held_out=row.is_held_out,
        tokens=(row.cache_read, row.cache_write, row.input, row.output) if row.has_usage else None,
        dollars=_NOT_KNOWN if cost is None else money(cost),
        milliseconds=row.milliseconds,
    )
