"""Webhooks over HTTP: who is told of events, how that went, and telling it again."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from msgspec import structs

from context_compactor.api import (
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
from context_compactor.errors import BadSetting
from context_compactor.server.asked import Asked
from context_compactor.server.problems import Refused
from context_compactor.server.scope import Scope
from context_compactor.server.sending import Sent, sent
from context_compactor.server.signing import new_secret
from context_compactor.server.targets import find_address, read_target, without_path
from context_compactor.session.core import wall_clock
from context_compactor.store.desk_rows import Attempt, Delivery, Webhook, timestamp

_MOST = 50
_MOST_REPLAYED = 20_000


async def add_webhook(asked: Asked[WebhookBody, NoQuery]) -> Sent[WebhookMade]:
    """Have an address told of events by POST, signed with the secret in the answer, which is shown only now.

    It must be https and lead to a public address, unless the server allows others.
    """
    body, service = asked.body, asked.service
    await _check_target(asked)
    now, secret = wall_clock(), new_secret()
    types = tuple(dict.fromkeys(body.types))
    webhook = Webhook(f"wh_{secrets.token_hex(8)}", asked.scope.namespace, body.url, secret, types, timestamp(now))

    def add() -> None:
        with service.desk.writing():
            if len(service.desk.webhooks.all(webhook.namespace)) >= _MOST:
                raise BadSetting(f"there are {_MOST} webhooks already, which is the most. Try: remove one.")
            service.desk.webhooks.add(webhook)

    await service.run(add)
    return sent(WebhookMade(**structs.asdict(_shown(webhook, asked.scope)), secret=secret), status=201)


async def _check_target(asked: Asked[WebhookBody, NoQuery]) -> None:
    """What leads inside is refused now; a name that nobody knows yet may be known when there is something to tell."""
    allow_private = asked.service.config.allow_private_webhooks
    target = read_target(asked.body.url, allow_private=allow_private)
    try:
        async with asyncio.timeout(asked.service.sender.answer_seconds):
            await find_address(target, asked.service.sender.lookup, allow_private=allow_private)
    except OSError:
        return


async def webhooks(asked: Asked[None, NoQuery]) -> WebhooksAnswer:
    """List the webhooks of the token's namespace, oldest first, without their secrets.

    A token that may only read sees of each address no more than the machine's name.
    """
    desk, namespace = asked.service.desk, asked.scope.namespace
    found = await asked.service.run(lambda: desk.webhooks.all(namespace))
    return WebhooksAnswer(webhooks=[_shown(each, asked.scope) for each in found])


async def webhook(asked: Asked[None, NoQuery]) -> WebhookAnswer:
    """Tell what a webhook is, and how it stands."""
    return _shown(await asked.service.run(lambda: _find(asked)), asked.scope)


async def remove_webhook(asked: Asked[None, NoQuery]) -> RemovedAnswer:
    """Tell a webhook nothing more, and forget it."""
    desk = asked.service.desk

    def remove() -> None:
        with desk.writing():
            _find(asked)
            desk.webhooks.remove(asked.id, asked.scope.namespace)
            desk.attempts.forget(asked.id)

    await asked.service.run(remove)
    return RemovedAnswer(id=asked.id)


async def deliveries(asked: Asked[None, NoQuery]) -> DeliveriesAnswer:
    """List what a webhook is yet to be told, in order, and how the last attempts went, newest first."""
    desk = asked.service.desk

    def look() -> DeliveriesAnswer:
        found = _find(asked)
        return DeliveriesAnswer(
            waiting=[_waiting(each) for each in desk.webhooks.waiting(found.id)],
            attempts=[_attempt(each) for each in desk.attempts.newest(found.id)],
        )

    return await asked.service.run(look)


async def replay(asked: Asked[ReplayBody, NoQuery]) -> ReplayAnswer:
    """Tell a webhook again what came behind an event, or all that is kept. One that was disabled is enabled."""
    desk, after = asked.service.desk, asked.body.after

    def owe() -> int:
        with desk.writing():
            found = structs.replace(_find(asked), disabled_at="")
            number = desk.events.number(after) if after else 0
            events = desk.events.after(number, namespace=found.namespace, types=found.types, limit=_MOST_REPLAYED)
            desk.webhooks.enable(found.id)
            return desk.webhooks.replay(found, events, timestamp(wall_clock()))

    owed = await asked.service.run(owe)
    asked.service.sender.nudge()
    return ReplayAnswer(owed=owed)


def _find(asked: Asked[Any, NoQuery]) -> Webhook:
    found = asked.service.desk.webhooks.find(asked.id, asked.scope.namespace)
    if found is None:
        raise Refused(404, f"There is no webhook {asked.id[:80]!r}. Try: GET /v1/webhooks.")
    return found


def _shown(webhook: Webhook, scope: Scope) -> WebhookAnswer:
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


def _waiting(delivery: Delivery) -> DeliveryAnswer:
    event = delivery.kept.event
    return DeliveryAnswer(
        event_id=event.id, type=event.type, attempts=delivery.attempts, due_at=delivery.due_at, reason=delivery.reason
    )


def _attempt(attempt: Attempt) -> AttemptAnswer:
    return AttemptAnswer(**{name: getattr(attempt, name) for name in AttemptAnswer.__struct_fields__})
