"""What a service keeps beside sessions: events to replay, answers to repeat, webhooks and their deliveries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from context_compactor.errors import KeyReused
from context_compactor.protocols import ServiceStore, Store
from context_compactor.sessions.events import Bus, ServiceStoreSink
from context_compactor.store.event_log import EventTable
from context_compactor.store.events import Event, EventType, make_event
from context_compactor.store.rows import Webhook
from context_compactor.store.service_store import service_store_of
from tests.store.rows import AT, LATER, LATEST

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def service_store(store: Store) -> ServiceStore:
    return service_store_of(store)


def event(kind: EventType = "job.queued", session_id: str = "a", **payload: object) -> Event:
    return make_event(kind, session_id, payload, NOW)


def told(service_store: ServiceStore, after: int = 0, **wanted: object) -> list[Event]:
    return [kept.event for kept in service_store.events.after(after, **wanted)]


# Events


def test_events_come_back_as_they_were_in_order_behind_the_last_one_seen(service_store: ServiceStore):
    events = [event(text=f"Grüße {at} \x00", more=[at]) for at in range(5)]
    numbers = [service_store.record_event(each) for each in events]
    assert told(service_store) == events
    assert told(service_store, numbers[2]) == events[3:]
    assert told(service_store, service_store.events.number(events[2].id)) == events[3:]
    assert service_store.events.last() == numbers[-1]


def test_an_event_that_is_told_twice_is_kept_once(service_store: ServiceStore):
    once = event()
    assert service_store.record_event(once) == service_store.record_event(once)
    assert told(service_store) == [once]


def test_events_are_found_by_session_namespace_and_type(service_store: ServiceStore):
    one, other, third = event(), event(session_id="team/a"), event("job.dropped", "team/b")
    for each in (one, other, third):
        service_store.record_event(each)
    assert told(service_store, session_id="team/a") == [other]
    assert told(service_store, namespace="team") == [other, third]
    assert told(service_store, namespace="") == [one]
    assert told(service_store, namespace="team", types=["job.dropped"]) == [third]
    assert told(service_store, limit=1) == [one]


def test_the_newest_events_come_first_page_by_page(service_store: ServiceStore):
    events = [event(session_id="team/a"), event("job.dropped", "team/b"), event(), event(session_id="team/a")]
    for each in events:
        service_store.record_event(each)
    newest = service_store.events.newest(namespace="team", limit=2)
    assert [kept.event for kept in newest] == [events[3], events[1]]
    assert [kept.event for kept in service_store.events.newest(namespace="team", before=newest[-1].number)] == [
        events[0]
    ]
    assert [kept.event for kept in service_store.events.newest(types=["job.dropped"])] == [events[1]]
    assert [kept.event for kept in service_store.events.newest(session_id="team/a", limit=1)] == [events[3]]


def test_behind_an_event_that_is_no_longer_kept_come_the_ones_after_it(service_store: ServiceStore):
    gone, first = event(), event()
    service_store.record_event(first)
    assert told(service_store, service_store.events.number(gone.id)) == [first]
    assert told(service_store, service_store.events.number(event().id)) == []


def test_only_so_many_events_are_kept(service_store: ServiceStore, store: Store):
    few = EventTable(service_store.events._database, most=100)
    events = [event(at=at) for at in range(600)]
    for each in events:
        few.add(each)
    kept = told(service_store)
    assert 100 <= len(kept) <= 350
    assert kept == events[-len(kept) :]


def test_a_namespace_with_more_events_than_are_kept_takes_none_from_another(service_store: ServiceStore):
    few = EventTable(service_store.events._database, most=100)
    before, after = ([event(session_id="quiet/a", at=at) for at in range(50)] for _ in range(2))
    loud = [event(session_id="loud/a", at=at) for at in range(600)]
    for each in (*before, *loud, *after):
        few.add(each)
    assert told(service_store, namespace="quiet") == [*before, *after]
    kept = told(service_store, namespace="loud")
    assert 100 <= len(kept) <= 351
    assert kept == loud[-len(kept) :]


def test_a_process_that_tells_one_event_and_ends_leaves_no_more_than_are_kept(service_store: ServiceStore):
    events = [event(at=at) for at in range(120)]
    for each in events:
        EventTable(service_store.events._database, most=100).add(each)
    assert told(service_store) == events[-100:]


def test_a_bus_with_the_service_store_as_a_sink_keeps_all_events(service_store: ServiceStore):
    bus = Bus()
    bus.subscribe(ServiceStoreSink(service_store))
    bus.emit(event())
    assert len(told(service_store)) == 1
    assert bus.failures == ()


# Answers


def test_a_request_that_is_sent_again_is_answered_as_before(service_store: ServiceStore):
    assert service_store.answers.find("a", "k", "hash") is None
    assert service_store.answers.take("a", "k", "hash", AT)
    service_store.answers.keep("a", "k", '{"appended":1}')
    kept = service_store.answers.find("a", "k", "hash")
    assert kept is not None
    assert kept.answer == '{"appended":1}'
    assert not service_store.answers.take("a", "k", "hash", AT)


def test_a_key_is_a_sessions_own(service_store: ServiceStore):
    assert service_store.answers.take("a", "k", "hash", AT)
    assert service_store.answers.find("b", "k", "other") is None


def test_the_same_key_with_another_body_is_a_conflict_that_names_it(service_store: ServiceStore):
    service_store.answers.take("a", "my-key", "hash", AT)
    for verb in (service_store.answers.find, lambda *given: service_store.answers.take(*given, AT)):
        with pytest.raises(KeyReused, match="'my-key' was already used"):
            verb("a", "my-key", "other")


def test_a_key_is_taken_with_what_its_request_changes_or_not_at_all(service_store: ServiceStore, store: Store):
    def fail() -> None:
        with store.writing("a"):
            store.append("a", "message", [b"{}"], AT)
            assert service_store.answers.take("a", "k", "hash", AT)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert service_store.answers.find("a", "k", "other") is None
    assert store.session("a").messages == 0


def test_old_keys_may_be_used_again(service_store: ServiceStore):
    service_store.answers.take("a", "k", "hash", AT)
    service_store.answers.forget(LATER)
    assert service_store.answers.take("a", "k", "other", LATER)


# Webhooks


def hook(webhook_id: str = "h1", namespace: str = "", *types: str) -> Webhook:
    return Webhook(webhook_id, namespace, "https://example.com/hook", "secret", types, AT)


def test_webhooks_are_registered_listed_and_deleted_within_their_namespace(service_store: ServiceStore):
    own, theirs = hook("h1", "team", "job.dropped"), hook("h2")
    service_store.webhooks.add(own)
    service_store.webhooks.add(theirs)
    assert service_store.webhooks.all() == [own, theirs]
    assert service_store.webhooks.all("team") == [own]
    assert service_store.webhooks.find("h1", "") is None
    assert not service_store.webhooks.remove("h1", "")
    assert service_store.webhooks.remove("h1", "team")
    assert service_store.webhooks.all() == [theirs]


def test_a_webhook_is_owed_the_events_it_wants_in_order(service_store: ServiceStore):
    service_store.webhooks.add(hook("all"))
    service_store.webhooks.add(hook("some", "", "job.dropped"))
    service_store.webhooks.add(hook("team", "team"))
    first, second = event(), event("job.dropped")
    service_store.record_event(first)
    service_store.record_event(second)
    assert [each.kept.event for each in service_store.webhooks.waiting("all")] == [first, second]
    assert [each.kept.event for each in service_store.webhooks.waiting("some")] == [second]
    assert service_store.webhooks.waiting("team") == []


def test_a_delivery_is_given_out_once_and_is_gone_when_it_arrived(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    service_store.record_event(event())
    service_store.record_event(event())
    first = service_store.webhooks.claim("w1", AT, LATER)
    assert first is not None
    assert first.attempts == 1
    assert service_store.webhooks.claim("w2", AT, LATER) is None  # one at a time, in order
    assert service_store.webhooks.delivered(first)
    second = service_store.webhooks.claim("w2", AT, LATER)
    assert second is not None
    assert second.kept.number > first.kept.number


def test_a_delivery_that_failed_is_due_later_and_its_webhook_counts_failures_in_a_row(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    service_store.record_event(event())
    failed = service_store.webhooks.claim("w1", AT, LATER)
    assert failed is not None
    assert service_store.webhooks.failed(failed, LATER, "500") == 1
    assert service_store.webhooks.claim("w1", AT, LATER) is None
    again = service_store.webhooks.claim("w1", LATER, LATEST)
    assert again is not None
    assert (again.attempts, again.reason) == (2, "500")
    assert service_store.webhooks.failed(again, LATEST, "time-out") == 2
    last = service_store.webhooks.claim("w1", LATEST, LATEST)
    assert last is not None
    service_store.webhooks.delivered(last)
    assert [each.failures for each in service_store.webhooks.all()] == [0]


def test_the_delivery_of_a_worker_that_died_goes_to_another_one(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    service_store.record_event(event())
    lost = service_store.webhooks.claim("w1", AT, AT)
    found = service_store.webhooks.claim("w2", LATER, LATEST)
    assert lost is not None
    assert found is not None
    assert found.attempts == 2
    assert not service_store.webhooks.delivered(lost)
    assert service_store.webhooks.delivered(found)


def test_a_disabled_webhook_is_told_nothing_until_it_is_enabled(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    service_store.record_event(event())
    service_store.webhooks.disable("h1", LATER, "it failed too often")
    assert service_store.webhooks.claim("w1", AT, LATER) is None
    assert [(each.disabled_at, each.reason) for each in service_store.webhooks.all()] == [
        (LATER, "it failed too often")
    ]
    service_store.record_event(event())
    service_store.webhooks.enable("h1")
    assert len(service_store.webhooks.waiting("h1")) == 1


def test_what_was_told_can_be_told_again(service_store: ServiceStore):
    service_store.webhooks.add(hook("h1", "", "job.queued"))
    service_store.record_event(event())
    service_store.record_event(event("job.dropped"))
    told_once = service_store.webhooks.claim("w1", AT, LATER)
    assert told_once is not None
    service_store.webhooks.delivered(told_once)
    assert service_store.webhooks.replay(service_store.webhooks.all()[0], service_store.events.after(0), LATER) == 1
    assert len(service_store.webhooks.waiting("h1")) == 1


def test_tidying_deletes_what_is_too_old_to_be_asked_for(service_store: ServiceStore):
    service_store.webhooks.add(hook())
    service_store.record_event(event())
    service_store.answers.take("a", "k", "hash", AT)
    service_store.jobs.queue_level("a", "soft", AT)
    job = service_store.jobs.claim("w1", AT, LATER)
    assert job is not None
    service_store.jobs.finish(job, AT)
    service_store.delete_expired(NOW + timedelta(hours=1))
    assert (len(told(service_store)), len(service_store.jobs.newest()), len(service_store.webhooks.waiting("h1"))) == (
        1,
        1,
        1,
    )
    assert service_store.answers.find("a", "k", "hash")
    service_store.delete_expired(NOW + timedelta(days=8))
    assert ([each.type for each in told(service_store)], service_store.jobs.newest()) == (
        ["job.dropped"],
        [],
    )  # what h1 was never told
    assert service_store.answers.find("a", "k", "other") is None
