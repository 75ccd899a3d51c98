"""Handlers of webhooks: add, list, remove, deliveries and replay."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from msgspec import structs

from context_compactor.errors import BadSetting
from context_compactor.server.problems import RequestRefused
from context_compactor.server.requests import RequestContext, handles
from context_compactor.server.responses import JsonResponse, json_response
from context_compactor.server.tokens import Scope
from context_compactor.server.webhook_delivery import new_secret, read_target, resolve_target, without_path
from context_compactor.sessions import schemas
from context_compactor.sessions.core import wall_clock
from context_compactor.sessions.verbs import Verbs
from context_compactor.store.rows import Webhook, timestamp

_MAX_WEBHOOKS = 50
_MAX_REPLAYED = 20_000


@handles(Verbs.add_webhook)
async def add_webhook(request: RequestContext[schemas.WebhookBody]) -> JsonResponse[schemas.WebhookMade]:
    body, service = request.params, request.service
    await _check_target(request)
    now, secret = wall_clock(), new_secret()
    types = tuple(dict.fromkeys(body.types))
    webhook = Webhook(f"wh_{secrets.token_hex(8)}", request.scope.namespace, body.url, secret, types, timestamp(now))

    def add() -> None:
        with service.service_store.writing():
            if len(service.service_store.webhooks.all(webhook.namespace)) >= _MAX_WEBHOOKS:
                raise BadSetting(f"there are {_MAX_WEBHOOKS} webhooks already, which is the limit. Try: remove one.")
            service.service_store.webhooks.add(webhook)

    await service.run(add)
    return json_response(
        schemas.struct_from(schemas.WebhookMade, _webhook_answer(webhook, request.scope), secret=secret), status=201
    )


async def _check_target(request: RequestContext[schemas.WebhookBody]) -> None:
    """What leads inside is refused now; a name that nobody knows yet may be known when there is something to send."""
    allow_private = request.service.config.allow_private_webhooks
    target = read_target(request.params.url, allow_private=allow_private)
    try:
        async with asyncio.timeout(request.service.sender.answer_seconds):
            await resolve_target(target, request.service.sender.lookup, allow_private=allow_private)
    except OSError:
        return


@handles(Verbs.webhooks)
async def webhooks(request: RequestContext[schemas.NoQuery]) -> schemas.WebhooksAnswer:
    service_store, namespace = request.service.service_store, request.scope.namespace
    found = await request.service.run(lambda: service_store.webhooks.all(namespace))
    return schemas.WebhooksAnswer(webhooks=[_webhook_answer(each, request.scope) for each in found])


@handles(Verbs.webhook)
async def webhook(request: RequestContext[schemas.NoQuery]) -> schemas.WebhookAnswer:
    return _webhook_answer(await request.service.run(lambda: _find_webhook(request)), request.scope)


@handles(Verbs.remove_webhook)
async def remove_webhook(request: RequestContext[schemas.NoQuery]) -> schemas.RemovedAnswer:
    service_store = request.service.service_store

    def remove() -> None:
        with service_store.writing():
            _find_webhook(request)
            service_store.webhooks.remove(request.id, request.scope.namespace)
            service_store.attempts.forget(request.id)

    await request.service.run(remove)
    return schemas.RemovedAnswer(id=request.id)


@handles(Verbs.deliveries)
async def deliveries(request: RequestContext[schemas.NoQuery]) -> schemas.DeliveriesAnswer:
    service_store = request.service.service_store

    def look() -> schemas.DeliveriesAnswer:
        found = _find_webhook(request)
        return schemas.DeliveriesAnswer(
            waiting=[
                schemas.struct_from(
                    schemas.DeliveryAnswer, each, event_id=each.kept.event.id, type=each.kept.event.type
                )
                for each in service_store.webhooks.waiting(found.id)
            ],
            attempts=[
                schemas.struct_from(schemas.AttemptAnswer, each) for each in service_store.attempts.newest(found.id)
            ],
        )

    return await request.service.run(look)


@handles(Verbs.replay)
async def replay(request: RequestContext[schemas.ReplayBody]) -> schemas.ReplayAnswer:
    service_store, after = request.service.service_store, request.params.after

    def queue() -> int:
        with service_store.writing():
            found = structs.replace(_find_webhook(request), disabled_at="")
            number = service_store.events.number(after) if after else 0
            events = service_store.events.after(
                number, namespace=found.namespace, types=found.types, limit=_MAX_REPLAYED
            )
            service_store.webhooks.enable(found.id)
            return service_store.webhooks.replay(found, events, timestamp(wall_clock()))

    queued = await request.service.run(queue)
    request.service.sender.notify()
    return schemas.ReplayAnswer(queued=queued)


def _find_webhook(request: RequestContext[Any]) -> Webhook:
    found = request.service.service_store.webhooks.find(request.id, request.scope.namespace)
    if found is None:
        raise RequestRefused(404, f"There is no webhook {request.id[:80]!r}. Try: GET /v1/webhooks.")
    return found


def _webhook_answer(webhook: Webhook, scope: Scope) -> schemas.WebhookAnswer:
    url = webhook.url if scope.may_write else without_path(webhook.url)
    state = {"is_enabled": not webhook.disabled_at, "disabled_at": webhook.disabled_at or None}
    return schemas.struct_from(schemas.WebhookAnswer, webhook, url=url, **state)
