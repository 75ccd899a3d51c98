"""What a webhook is owed: it is not trimmed away, what is too old is told of, and nobody waits for what is gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pytest

from context_compactor.errors import StoreError
from context_compactor.events.event import Event, make_event
from context_compactor.protocols import Desk, Store
from context_compactor.store.desk import SqlDesk, desk_of
from context_compactor.store.desk_events import Events
from context_compactor.store.desk_rows import Attempt, Webhook
from context_compactor.store.postgres import PostgresStore
from tests.store.rows import AT, LATER, LATEST

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
MANY = 600


@pytest.fixture
def desk(store: Store) -> SqlDesk:
    """A desk that keeps no more than the newest hundred events, or a few more."""
    made = desk_of(store)
    assert isinstance(made, SqlDesk)
    made.events = Events(made.events._database, most=100)
    return made


def event(session_id: str = "a", **payload: object) -> Event:
    return make_event("job.queued", session_id, payload, NOW)


def hook(webhook_id: str = "h1", namespace: str = "") -> Webhook:
    return Webhook(webhook_id, namespace, "https://example.com/hook", "secret", (), AT)


def tell(desk: Desk, count: int, session_id: str = "a") -> list[Event]:
    events = [event(session_id, at=at) for at in range(count)]
    with desk.writing():
        for each in events:
            desk.tell(each)
    return events


def kept(desk: Desk, **wanted: object) -> list[Event]:
    return [each.event for each in desk.events.after(0, **wanted)]


def owed(desk: Desk, webhook_id: str = "h1") -> list[Event]:
    return [each.kept.event for each in desk.webhooks.waiting(webhook_id, MANY)]


def deliver(desk: Desk, now: str = LATER) -> Event:
    """What is told next."""
    found = desk.webhooks.claim("w1", now, LATEST)
    assert found is not None
    assert desk.webhooks.delivered(found)
    return found.kept.event


def test_events_that_a_webhook_is_owed_are_kept_however_many_come_after_them(desk: Desk):
    desk.webhooks.add(hook())
    events = tell(desk, MANY)
    assert owed(desk) == kept(desk) == events
    assert [deliver(desk) for _ in range(3)] == events[:3]


def test_a_busy_namespace_does_not_take_away_what_a_quiet_one_is_owed(desk: Desk):
    desk.webhooks.add(hook("quiet", "team"))
    (one,) = tell(desk, 1, "team/a")
    tell(desk, MANY)
    assert owed(desk, "quiet") == [one]
    assert deliver(desk) == one


def test_behind_an_event_that_is_kept_for_a_webhook_nothing_is_missing(desk: Desk):
    desk.webhooks.add(hook("quiet", "team"))
    (one,) = tell(desk, 1, "team/a")
    tell(desk, MANY)
    others = tell(desk, MANY, "team/a")
    assert kept(desk, namespace="team", limit=2 * MANY) == [
        one,
        *others,
    ]  # so that a reader who goes on behind it misses nothing


def test_events_are_trimmed_again_once_they_were_delivered(desk: Desk):
    desk.webhooks.add(hook())
    tell(desk, 10)
    for _ in range(10):
        deliver(desk)
    desk.webhooks.remove("h1", "")
    tell(desk, MANY)
    assert 100 <= len(kept(desk)) <= 350


def test_a_disabled_webhook_keeps_no_events_and_goes_on_with_what_is_left(desk: Desk):
    desk.webhooks.add(hook())
    tell(desk, 10)
    desk.webhooks.disable("h1", LATER, "it failed too often")
    tell(desk, MANY)
    assert len(kept(desk)) <= 350
    desk.webhooks.enable("h1")
    (last,) = tell(desk, 1)
    assert deliver(desk) == last


def test_what_is_too_old_to_be_delivered_is_given_up_and_that_is_told(desk: Desk):
    desk.webhooks.add(hook("h1", "team"))
    desk.webhooks.add(hook("gone", "team"))
    tell(desk, 3, "team/a")
    desk._database.write("DELETE FROM webhooks WHERE id = 'gone'")  # as if it was removed just before they were owed
    desk.tidy(NOW + timedelta(days=8))
    (dropped,) = kept(desk)
    assert (dropped.type, dropped.session_id, dropped.payload["what"]) == ("job.dropped", "team/", "webhook")
    assert (dropped.payload["webhook"], dropped.payload["events"]) == ("h1", 3)
    assert "too old" in dropped.payload["reason"]
    assert owed(desk) == [dropped]
    assert desk._database.row("SELECT count(*) FROM deliveries") == (1,)
    desk.tidy(NOW + timedelta(days=8))
    assert kept(desk) == [dropped]


def test_a_replay_does_not_overtake_what_is_on_its_way(desk: Desk):
    desk.webhooks.add(hook())
    first, second = tell(desk, 2)
    assert deliver(desk) == first
    under_way = desk.webhooks.claim("w1", LATER, LATEST)
    assert under_way is not None
    assert desk.webhooks.replay(desk.webhooks.all()[0], desk.events.after(0), LATER) == 1
    assert desk.webhooks.claim("w2", LATER, LATEST) is None
    assert desk.webhooks.delivered(under_way)
    assert (under_way.kept.event, deliver(desk)) == (second, first)


def test_of_a_webhook_that_was_removed_no_attempt_is_kept(desk: Desk):
    desk.webhooks.add(hook())
    attempt = Attempt("h1", "e1", "job.queued", 1, AT, 200, "")
    desk.attempts.add(attempt)
    assert desk.attempts.newest("h1") == [attempt]
    desk.webhooks.remove("h1", "")
    desk.attempts.forget("h1")
    desk.attempts.add(attempt)
    assert desk.attempts.newest("h1") == []


def test_nothing_is_owed_to_a_webhook_that_was_removed(desk: Desk):
    desk.webhooks.add(hook())
    tell(desk, 2)
    removed = desk.webhooks.all()[0]
    desk.webhooks.remove("h1", "")
    assert desk.webhooks.replay(removed, desk.events.after(0), LATER) == 0
    assert desk._database.row("SELECT count(*) FROM deliveries") == (0,)


@pytest.mark.parametrize("verb", ["delivered", "failed", "replay", "tidy"])
def test_a_webhook_can_be_removed_while_somebody_ends_its_delivery(postgres_url: str, verb: str):
    """Whoever changes a webhook and what it is owed begins with the webhook, so none waits for the other."""
    ours, theirs = PostgresStore(postgres_url), PostgresStore(postgres_url)
    desk, other = SqlDesk(ours._database), SqlDesk(theirs._database)
    problems: list[StoreError] = []
    for _ in range(40):
        _race(desk, other, verb, problems)
    ours.close()
    theirs.close()
    assert problems == []


def _race(desk: SqlDesk, other: SqlDesk, verb: str, problems: list[StoreError]) -> None:
    desk.webhooks.add(hook())
    tell(desk, 3)
    delivery = desk.webhooks.claim("w1", LATER, LATEST)
    assert delivery is not None
    webhook, events = desk.webhooks.all()[0], desk.events.after(0)
    verbs = {
        "delivered": lambda: desk.webhooks.delivered(delivery),
        "failed": lambda: desk.webhooks.failed(delivery, LATEST, "500"),
        "replay": lambda: desk.webhooks.replay(webhook, events, LATEST),
        "tidy": lambda: desk.tidy(NOW + timedelta(days=8)),
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
