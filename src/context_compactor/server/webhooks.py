"""Handlers of webhooks: add, list, remove, deliveries and replay."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from msgspec import structs

from context_compactor.errors import BadSetting
from context_compactor.server.problems import RequestRefused
from context_compactor.server.requests import RequestContext
from context_compactor.server.responses import JsonResponse, json_response
from context_compactor.server.tokens import Scope
from context_compactor.server.webhook_delivery import new_secret, read_target, resolve_target, without_path
from context_compactor.sessions.api import (
    AttemptAnswer,
    DeliveriesAnswer,
    DeliveryAnswer,
    NoQuery,
    RemovedAnswer,
    ReplayAnswer,
    ReplayBody,
    WebhookAnswer,
    WebhookBody,
    WebhookMade,
    WebhooksAnswer,
)
from context_compactor.sessions.core import wall_clock
from context_compactor.store.rows import Delivery, DeliveryAttempt, Webhook, timestamp

_MAX_WEBHOOKS = 50
_MAX_REPLAYED = 20_000


async def add_webhook(asked: RequestContext[WebhookBody, NoQuery]) -> JsonResponse[WebhookMade]:
    """Have an address told of events by POST, signed with the secret in the answer, which is shown only now.

    It must be https and lead to a public address, unless the server allows others.
    """
    body, service = asked.body, asked.service
    await _check_target(asked)
    now, secret = wall_clock(), new_secret()
    types = tuple(dict.fromkeys(body.types))
    webhook = Webhook(f"wh_{secrets.token_hex(8)}", asked.scope.namespace, body.url, secret, types, timestamp(now))

    def add() -> None:
        with service.service_store.writing():
            if len(service.service_store.webhooks.all(webhook.namespace)) >= _MAX_WEBHOOKS:
                raise BadSetting(f"there are {_MAX_WEBHOOKS} webhooks already, which is the limit. Try: remove one.")
            service.service_store.webhooks.add(webhook)

    await service.run(add)
    return json_response(
        WebhookMade(**structs.asdict(_webhook_answer(webhook, asked.scope)), secret=secret), status=201
    )


async def _check_target(asked: RequestContext[WebhookBody, NoQuery]) -> None:
    """What leads inside is refused now; a name that nobody knows yet may be known when there is something to tell."""
    allow_private = asked.service.config.allow_private_webhooks
    target = read_target(asked.body.url, allow_private=allow_private)
    try:
        async with asyncio.timeout(asked.service.sender.answer_seconds):
            await resolve_target(target, asked.service.sender.lookup, allow_private=allow_private)
    except OSError:
        return


async def webhooks(asked: RequestContext[None, NoQuery]) -> WebhooksAnswer:
    """List the webhooks of the token's namespace, oldest first, without their secrets.

    A token that may only read sees of each address no more than the machine's name.
    """
    service_store, namespace = asked.service.service_store, asked.scope.namespace
    found = await asked.service.run(lambda: service_store.webhooks.all(namespace))
    return WebhooksAnswer(webhooks=[_webhook_answer(each, asked.scope) for each in found])


async def webhook(asked: RequestContext[None, NoQuery]) -> WebhookAnswer:
    """Tell what a webhook is, and how it stands."""
    return _webhook_answer(await asked.service.run(lambda: _find_webhook(asked)), asked.scope)


async def remove_webhook(asked: RequestContext[None, NoQuery]) -> RemovedAnswer:
    """Tell a webhook nothing more, and forget it."""
    service_store = asked.service.service_store

    def remove() -> None:
        with service_store.writing():
            _find_webhook(asked)
            service_store.webhooks.remove(asked.id, asked.scope.namespace)
            service_store.attempts.forget(asked.id)

    await asked.service.run(remove)
    return RemovedAnswer(id=asked.id)


async def deliveries(asked: RequestContext[None, NoQuery]) -> DeliveriesAnswer:
    """List what a webhook is yet to be told, in order, and how the last attempts went, newest first."""
    service_store = asked.service.service_store

    def look() -> DeliveriesAnswer:
        found = _find_webhook(asked)
        return DeliveriesAnswer(
            waiting=[_delivery_answer(each) for each in service_store.webhooks.waiting(found.id)],
            attempts=[_attempt_answer(each) for each in service_store.attempts.newest(found.id)],
        )

    return await asked.service.run(look)


async def replay(asked: RequestContext[ReplayBody, NoQuery]) -> ReplayAnswer:
    """Tell a webhook again what came behind an event, or all that is kept. One that was disabled is enabled."""
    service_store, after = asked.service.service_store, asked.body.after

    def owe() -> int:
        with service_store.writing():
            found = structs.replace(_find_webhook(asked), disabled_at="")
            number = service_store.events.number(after) if after else 0
            events = service_store.events.after(
                number, namespace=found.namespace, types=found.types, limit=_MAX_REPLAYED
            )
            service_store.webhooks.enable(found.id)
            return service_store.webhooks.replay(found, events, timestamp(wall_clock()))

    owed = await asked.service.run(owe)
    asked.service.sender.notify()
    return ReplayAnswer(owed=owed)


def _find_webhook(asked: RequestContext[Any, NoQuery]) -> Webhook:
    found = asked.service.service_store.webhooks.find(asked.id, asked.scope.namespace)
    if found is None:
        raise RequestRefused(404, f"There is no webhook {asked.id[:80]!r}. Try: GET /v1/webhooks.")
    return found


def _webhook_answer(webhook: Webhook, scope: Scope) -> WebhookAnswer:
    return WebhookAnswer(
        id=webhook.id,
        url=webhook.url if scope.may_write else without_path(webhook.url),
        types=list(webhook.types),
        created_at=webhook.created_at,
        is_enabled=not webhook.disabled_at,
        failures=webhook.failures,
        disabled_at=webhook.disabled_at or None,
        reason=webhook.reason,
    )


def _delivery_answer(delivery: Delivery) -> DeliveryAnswer:
    event = delivery.kept.event
    return DeliveryAnswer(
        event_id=event.id, type=event.type, attempts=delivery.attempts, due_at=delivery.due_at, reason=delivery.reason
    )


def _attempt_answer(attempt: DeliveryAttempt) -> AttemptAnswer:
    return AttemptAnswer(**{name: getattr(attempt, name) for name in AttemptAnswer.__struct_fields__})
