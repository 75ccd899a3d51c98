"""Pending deliveries: they are not trimmed away, what is too old is reported, and nobody waits for what is gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pytest

from context_compactor.errors import StoreError
from context_compactor.protocols import ServiceStore, Store
from context_compactor.store.event_log import EventTable
from context_compactor.store.events import Event, make_event
from context_compactor.store.postgres import PostgresStore
from context_compactor.store.rows import DeliveryAttempt, Webhook
from context_compactor.store.service_store import SqlServiceStore, service_store_of
from tests.store.rows import AT, LATER, LATEST

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
MANY = 600


@pytest.fixture
def service_store(store: Store) -> SqlServiceStore:
    """A service store that keeps no more than the newest hundred events, or a few more."""
    made = service_store_of(store)
    assert isinstance(made, SqlServiceStore)
    made.events = EventTable(made.events._database, most=100)
    return made


def event(session_id: str = "a", **payload: object) -> Event:
    return make_event("job.queued", session_id, payload, NOW)


def hook(webhook_id: str = "h1", namespace: str = "") -> Webhook:
    return Webhook(webhook_id, namespace, "https://example.com/hook", "secret", (), AT)


def tell(service_store: ServiceStore, count: int, session_id: str = "a") -> list[Event]:
    events = [event(session_id, at=at) for at in range(count)]
    with service_store.writing():
        for each in events:
            service_store.record_event(each)
    return events


def kept(service_store: ServiceStore, **wanted: object) -> list[Event]:
    return [each.event for each in service_store.events.after(0, **wanted)]


def owed(service_store: ServiceStore, webhook_id: str = "h1") -> list[Event]:
    return [each.kept.event for each in service_store.webhooks.waiting(webhook_id, MANY)]


def deliver(service_store: ServiceStore, now: str = LATER) -> Event:
    """What is told next."""
    found = service_store.webhooks.claim("w1", now, LATEST)
    assert found is not None
    assert service_store.webhooks.delivered(found)
    return found.kept.event


def test_events_that_a_webhook_is_owed_are_kept_however_many_come_after_them(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    events = tell(service_store, MANY)
    assert owed(service_store) == kept(service_store) == events
    assert [deliver(service_store) for _ in range(3)] == events[:3]


def test_a_busy_namespace_does_not_take_away_what_a_quiet_one_is_owed(service_store: ServiceStore):
    service_store.webhooks.add(hook("quiet", "team"))
    (one,) = tell(service_store, 1, "team/a")
    tell(service_store, MANY)
    assert owed(service_store, "quiet") == [one]
    assert deliver(service_store) == one


def test_behind_an_event_that_is_kept_for_a_webhook_nothing_is_missing(service_store: ServiceStore):
    service_store.webhooks.add(hook("quiet", "team"))
    (one,) = tell(service_store, 1, "team/a")
    tell(service_store, MANY)
    others = tell(service_store, MANY, "team/a")
    assert kept(service_store, namespace="team", limit=2 * MANY) == [
        one,
        *others,
    ]  # so that a reader who goes on behind it misses nothing


def test_events_are_trimmed_again_once_they_were_delivered(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    tell(service_store, 10)
    for _ in range(10):
        deliver(service_store)
    service_store.webhooks.remove("h1", "")
    tell(service_store, MANY)
    assert 100 <= len(kept(service_store)) <= 350


def test_a_disabled_webhook_keeps_no_events_and_goes_on_with_what_is_left(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    tell(service_store, 10)
    service_store.webhooks.disable("h1", LATER, "it failed too often")
    tell(service_store, MANY)
    assert len(kept(service_store)) <= 350
    service_store.webhooks.enable("h1")
    (last,) = tell(service_store, 1)
    assert deliver(service_store) == last


def test_what_is_too_old_to_be_delivered_is_given_up_and_that_is_told(service_store: ServiceStore):
    service_store.webhooks.add(hook("h1", "team"))
    service_store.webhooks.add(hook("gone", "team"))
    tell(service_store, 3, "team/a")
    service_store._database.write(
        "DELETE FROM webhooks WHERE id = 'gone'"
    )  # as if it was removed just before they were owed
    service_store.delete_expired(NOW + timedelta(days=8))
    (dropped,) = kept(service_store)
    assert (dropped.type, dropped.session_id, dropped.payload["what"]) == ("job.dropped", "team/", "webhook")
    assert (dropped.payload["webhook"], dropped.payload["events"]) == ("h1", 3)
    assert "too old" in dropped.payload["reason"]
    assert owed(service_store) == [dropped]
    assert service_store._database.row("SELECT count(*) FROM deliveries") == (1,)
    service_store.delete_expired(NOW + timedelta(days=8))
    assert kept(service_store) == [dropped]


def test_a_replay_does_not_overtake_what_is_on_its_way(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    first, second = tell(service_store, 2)
    assert deliver(service_store) == first
    under_way = service_store.webhooks.claim("w1", LATER, LATEST)
    assert under_way is not None
    assert service_store.webhooks.replay(service_store.webhooks.all()[0], service_store.events.after(0), LATER) == 1
    assert service_store.webhooks.claim("w2", LATER, LATEST) is None
    assert service_store.webhooks.delivered(under_way)
    assert (under_way.kept.event, deliver(service_store)) == (second, first)


def test_of_a_webhook_that_was_removed_no_attempt_is_kept(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    attempt = DeliveryAttempt("h1", "e1", "job.queued", 1, AT, 200, "")
    service_store.attempts.add(attempt)
    assert service_store.attempts.newest("h1") == [attempt]
    service_store.webhooks.remove("h1", "")
    service_store.attempts.forget("h1")
    service_store.attempts.add(attempt)
    assert service_store.attempts.newest("h1") == []


def test_nothing_is_owed_to_a_webhook_that_was_removed(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    tell(service_store, 2)
    removed = service_store.webhooks.all()[0]
    service_store.webhooks.remove("h1", "")
    assert service_store.webhooks.replay(removed, service_store.events.after(0), LATER) == 0
    assert service_store._database.row("SELECT count(*) FROM deliveries") == (0,)


@pytest.mark.parametrize("verb", ["delivered", "failed", "replay", "tidy"])
def test_a_webhook_can_be_removed_while_somebody_ends_its_delivery(postgres_url: str, verb: str):
    """Whoever changes a webhook and what it is owed begins with the webhook, so none waits for the other."""
    ours, theirs = PostgresStore(postgres_url), PostgresStore(postgres_url)
    service_store, other = SqlServiceStore(ours._database), SqlServiceStore(theirs._database)
    problems: list[StoreError] = []
    for _ in range(40):
        _race(service_store, other, verb, problems)
    ours.close()
    theirs.close()
    assert problems == []


def _race(service_store: SqlServiceStore, other: SqlServiceStore, verb: str, problems: list[StoreError]) -> None:
    service_store.webhooks.add(hook())
    tell(service_store, 3)
    delivery = service_store.webhooks.claim("w1", LATER, LATEST)
    assert delivery is not None
    webhook, events = service_store.webhooks.all()[0], service_store.events.after(0)
    verbs = {
        "delivered": lambda: service_store.webhooks.delivered(delivery),
        "failed": lambda: service_store.webhooks.failed(delivery, LATEST, "500"),
        "replay": lambda: service_store.webhooks.replay(webhook, events, LATEST),
        "tidy": lambda: service_store.delete_expired(NOW + timedelta(days=8)),
    }
    together = Barrier(2)

    def go(work) -> None:
        together.wait()
        try:
            work()
        except StoreError as error:
            problems.append(error)

    threads = [Thread(target=go, args=(work,)) for work in (verbs[verb], lambda: other.webhooks.remove("h1", ""))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
