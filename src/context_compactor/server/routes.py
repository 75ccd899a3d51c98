"""Every route of the API, as a table: what it is called, what it takes, what it answers, and who may call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from context_compactor.server import archive as recalling
from context_compactor.server import compactions as compacting
from context_compactor.server import compactions as steering
from context_compactor.server import events as following
from context_compactor.server import health
from context_compactor.server import sessions as talking
from context_compactor.server import webhooks as hooks
from context_compactor.sessions import api

_SESSION = "/v1/sessions/{id}"
_WEBHOOK = "/v1/webhooks/{id}"
NO_CONTENT = 204


class Route(Struct, frozen=True, kw_only=True):
    """A route. `writes` says that a token which may only read is refused; `is_open` that no token is needed."""

    method: str
    path: str
    verb: Callable[[Any], Awaitable[Any]]
    answer: type[Struct] | None
    """None where what is sent is no JSON, or nothing."""
    body: type[Struct] | None = None
    needs_body: bool = False
    query: type[Struct] = api.NoQuery
    writes: bool = False
    is_open: bool = False
    statuses: tuple[int, ...] = (200,)
    tag: str = "sessions"
    media_type: str = "application/json"

    @property
    def is_endless(self) -> bool:
        """Whether the answer goes on for as long as somebody reads it."""
        return self.media_type == following.MEDIA_TYPE

    @property
    def methods(self) -> list[str]:
        """The methods that it answers: where there is an end to wait for, the head alone may be asked for as well."""
        return ["GET", "HEAD"] if self.method == "GET" and not self.is_endless else [self.method]

    @property
    def name(self) -> str:
        """What the route is called in the OpenAPI document."""
        return self.verb.__name__


def _get(path: str, verb: Callable[[Any], Awaitable[Any]], answer: type[Struct] | None, **more: Any) -> Route:
    return Route(method="GET", path=path, verb=verb, answer=answer, **more)


def _post(path: str, verb: Callable[[Any], Awaitable[Any]], answer: type[Struct], **more: Any) -> Route:
    return Route(method="POST", path=path, verb=verb, answer=answer, writes=True, **more)


ROUTES: tuple[Route, ...] = (
    _post(
        "/v1/sessions",
        talking.create,
        api.SessionAnswer,
        body=api.CreateBody,
        needs_body=True,
        statuses=(200, 201),
    ),
    _get("/v1/sessions", talking.sessions, api.SessionPage, query=api.PageQuery),
    _get(_SESSION, talking.session, api.SessionDetail),
    Route(
        method="DELETE", path=_SESSION, verb=talking.delete_session, answer=None, writes=True, statuses=(NO_CONTENT,)
    ),
    _post(f"{_SESSION}/messages", talking.append, api.AppendAnswer, body=api.AppendBody, needs_body=True),
    _get(f"{_SESSION}/context", talking.context, api.ContextAnswer, query=api.ContextQuery, statuses=(200, 304)),
    _get(f"{_SESSION}/history", talking.history, api.HistoryAnswer, query=api.HistoryQuery),
    _post(f"{_SESSION}/compact", compacting.compact, api.CompactAnswer, body=api.CompactBody, tag="compactions"),
    _post(f"{_SESSION}/cancel", compacting.cancel, api.CancelAnswer, tag="compactions"),
    _get(f"{_SESSION}/plan", steering.plan, api.PlanAnswer, query=api.PlanQuery, tag="compactions"),
    _get(f"{_SESSION}/steering", steering.steering, api.SteeringAnswer, tag="compactions"),
    _post(f"{_SESSION}/steering", steering.steer, api.SteeringAnswer, body=api.SteerBody, tag="compactions"),
    _get(f"{_SESSION}/compactions", compacting.compactions, api.CompactionPage, query=api.PageQuery, tag="compactions"),
    _post(f"{_SESSION}/undo", compacting.undo, api.UndoAnswer, tag="compactions"),
    _post(f"{_SESSION}/redo", compacting.redo, api.UndoAnswer, tag="compactions"),
    _get(f"{_SESSION}/archive", recalling.archive, api.ArchivePage, query=api.PageQuery, tag="archive"),
    _get(f"{_SESSION}/archive/{{ref}}", recalling.recall, api.RecallAnswer, query=api.RecallQuery, tag="archive"),
    _post(
        f"{_SESSION}/restore",
        recalling.restore,
        api.RestoreAnswer,
        body=api.RestoreBody,
        needs_body=True,
        tag="archive",
    ),
    _get(f"{_SESSION}/search", recalling.search, api.SearchAnswer, query=api.SearchQuery, tag="archive"),
    _get(f"{_SESSION}/facts", recalling.facts, api.FactsAnswer, query=api.FactsQuery, tag="facts"),
    _get(f"{_SESSION}/checkpoint", compacting.checkpoint, api.CheckpointAnswer, tag="going on"),
    _post(
        f"{_SESSION}/checkpoint",
        compacting.write_checkpoint,
        api.CheckpointAnswer,
        body=api.CheckpointBody,
        tag="going on",
    ),
    _post(f"{_SESSION}/handoff", compacting.handoff, api.HandoffAnswer, body=api.HandoffBody, tag="going on"),
    _post(
        f"{_SESSION}/handoff/answer",
        compacting.receive,
        api.ReceiveAnswer,
        body=api.ReceiveBody,
        needs_body=True,
        tag="going on",
    ),
    _get("/v1/events", following.events, None, query=api.EventsQuery, tag="events", media_type=following.MEDIA_TYPE),
    _post(
        "/v1/webhooks",
        hooks.add_webhook,
        api.WebhookMade,
        body=api.WebhookBody,
        needs_body=True,
        statuses=(201,),
        tag="events",
    ),
    _get("/v1/webhooks", hooks.webhooks, api.WebhooksAnswer, tag="events"),
    _get(_WEBHOOK, hooks.webhook, api.WebhookAnswer, tag="events"),
    Route(
        method="DELETE", path=_WEBHOOK, verb=hooks.remove_webhook, answer=api.RemovedAnswer, writes=True, tag="events"
    ),
    _get(f"{_WEBHOOK}/deliveries", hooks.deliveries, api.DeliveriesAnswer, tag="events"),
    _post(f"{_WEBHOOK}/replay", hooks.replay, api.ReplayAnswer, body=api.ReplayBody, tag="events"),
    _get("/metrics", health.metrics, None, tag="server", media_type=health.MEDIA_TYPE),
    _get("/healthz", talking.healthz, api.HealthAnswer, is_open=True, tag="server"),
    _get("/readyz", talking.readyz, api.HealthAnswer, is_open=True, tag="server"),
)
