"""What a service keeps beside sessions: events to replay, answers to repeat, webhooks and their deliveries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from context_compactor.errors import KeyReused
from context_compactor.events.bus import Bus
from context_compactor.events.event import Event, EventType, make_event
from context_compactor.events.kept import DeskSink
from context_compactor.protocols import Desk, Store
from context_compactor.store.desk import desk_of
from context_compactor.store.desk_events import Events
from context_compactor.store.desk_rows import Webhook
from tests.store.rows import AT, LATER, LATEST

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def desk(store: Store) -> Desk:
    return desk_of(store)


def event(kind: EventType = "job.queued", session_id: str = "a", **payload: object) -> Event:
    return make_event(kind, session_id, payload, NOW)


def told(desk: Desk, after: int = 0, **wanted: object) -> list[Event]:
    return [kept.event for kept in desk.events.after(after, **wanted)]


# Events


def test_events_come_back_as_they_were_in_order_behind_the_last_one_seen(desk: Desk):
    events = [event(text=f"Grüße {at} \x00", more=[at]) for at in range(5)]
    numbers = [desk.tell(each) for each in events]
    assert told(desk) == events
    assert told(desk, numbers[2]) == events[3:]
    assert told(desk, desk.events.number(events[2].id)) == events[3:]
    assert desk.events.last() == numbers[-1]


def test_an_event_that_is_told_twice_is_kept_once(desk: Desk):
    once = event()
    assert desk.tell(once) == desk.tell(once)
    assert told(desk) == [once]


def test_events_are_found_by_session_namespace_and_type(desk: Desk):
    one, other, third = event(), event(session_id="team/a"), event("job.dropped", "team/b")
    for each in (one, other, third):
        desk.tell(each)
    assert told(desk, session_id="team/a") == [other]
    assert told(desk, namespace="team") == [other, third]
    assert told(desk, namespace="") == [one]
    assert told(desk, namespace="team", types=["job.dropped"]) == [third]
    assert told(desk, limit=1) == [one]


def test_the_newest_events_come_first_page_by_page(desk: Desk):
    events = [event(session_id="team/a"), event("job.dropped", "team/b"), event(), event(session_id="team/a")]
    for each in events:
        desk.tell(each)
    newest = desk.events.newest(namespace="team", limit=2)
    assert [kept.event for kept in newest] == [events[3], events[1]]
    assert [kept.event for kept in desk.events.newest(namespace="team", before=newest[-1].number)] == [events[0]]
    assert [kept.event for kept in desk.events.newest(types=["job.dropped"])] == [events[1]]
    assert [kept.event for kept in desk.events.newest(session_id="team/a", limit=1)] == [events[3]]


def test_behind_an_event_that_is_no_longer_kept_come_the_ones_after_it(desk: Desk):
    gone, first = event(), event()
    desk.tell(first)
    assert told(desk, desk.events.number(gone.id)) == [first]
    assert told(desk, desk.events.number(event().id)) == []


def test_only_so_many_events_are_kept(desk: Desk, store: Store):
    few = Events(desk.events._database, most=100)
    events = [event(at=at) for at in range(600)]
    for each in events:
        few.add(each)
    kept = told(desk)
    assert 100 <= len(kept) <= 350
    assert kept == events[-len(kept) :]


def test_a_namespace_with_more_events_than_are_kept_takes_none_from_another(desk: Desk):
    few = Events(desk.events._database, most=100)
    before, after = ([event(session_id="quiet/a", at=at) for at in range(50)] for _ in range(2))
    loud = [event(session_id="loud/a", at=at) for at in range(600)]
    for each in (*before, *loud, *after):
        few.add(each)
    assert told(desk, namespace="quiet") == [*before, *after]
    kept = told(desk, namespace="loud")
    assert 100 <= len(kept) <= 351
    assert kept == loud[-len(kept) :]


def test_a_process_that_tells_one_event_and_ends_leaves_no_more_than_are_kept(desk: Desk):
    events = [event(at=at) for at in range(120)]
    for each in events:
        Events(desk.events._database, most=100).add(each)
    assert told(desk) == events[-100:]


def test_a_bus_with_the_desk_as_a_sink_keeps_all_events(desk: Desk):
    bus = Bus()
    bus.subscribe(DeskSink(desk))
    bus.emit(event())
    assert len(told(desk)) == 1
    assert bus.failures == ()


# Answers


def test_a_request_that_is_sent_again_is_answered_as_before(desk: Desk):
    assert desk.answers.find("a", "k", "hash") is None
    assert desk.answers.take("a", "k", "hash", AT)
    desk.answers.keep("a", "k", '{"appended":1}')
    kept = desk.answers.find("a", "k", "hash")
    assert kept is not None
    assert kept.answer == '{"appended":1}'
    assert not desk.answers.take("a", "k", "hash", AT)


def test_a_key_is_a_sessions_own(desk: Desk):
    assert desk.answers.take("a", "k", "hash", AT)
    assert desk.answers.find("b", "k", "other") is None


def test_the_same_key_with_another_body_is_a_conflict_that_names_it(desk: Desk):
    desk.answers.take("a", "my-key", "hash", AT)
    for verb in (desk.answers.find, lambda *given: desk.answers.take(*given, AT)):
        with pytest.raises(KeyReused, match="'my-key' was used"):
            verb("a", "my-key", "other")


def test_a_key_is_taken_with_what_its_request_changes_or_not_at_all(desk: Desk, store: Store):
    def fail() -> None:
        with store.writing("a"):
            store.append("a", "message", [b"{}"], AT)
            assert desk.answers.take("a", "k", "hash", AT)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert desk.answers.find("a", "k", "other") is None
    assert store.session("a").messages == 0


def test_old_keys_may_be_used_again(desk: Desk):
    desk.answers.take("a", "k", "hash", AT)
    desk.answers.forget(LATER)
    assert desk.answers.take("a", "k", "other", LATER)


# Webhooks


def hook(webhook_id: str = "h1", namespace: str = "", *types: str) -> Webhook:
    return Webhook(webhook_id, namespace, "https://example.com/hook", "secret", types, AT)


def test_webhooks_are_registered_listed_and_deleted_within_their_namespace(desk: Desk):
    own, theirs = hook("h1", "team", "job.dropped"), hook("h2")
    desk.webhooks.add(own)
    desk.webhooks.add(theirs)
    assert desk.webhooks.all() == [own, theirs]
    assert desk.webhooks.all("team") == [own]
    assert desk.webhooks.find("h1", "") is None
    assert not desk.webhooks.remove("h1", "")
    assert desk.webhooks.remove("h1", "team")
    assert desk.webhooks.all() == [theirs]


def test_a_webhook_is_owed_the_events_it_wants_in_order(desk: Desk):
    desk.webhooks.add(hook("all"))
    desk.webhooks.add(hook("some", "", "job.dropped"))
    desk.webhooks.add(hook("team", "team"))
    first, second = event(), event("job.dropped")
    desk.tell(first)
    desk.tell(second)
    assert [each.kept.event for each in desk.webhooks.waiting("all")] == [first, second]
    assert [each.kept.event for each in desk.webhooks.waiting("some")] == [second]
    assert desk.webhooks.waiting("team") == []


def test_a_delivery_is_given_out_once_and_is_gone_when_it_arrived(desk: Desk):
    desk.webhooks.add(hook())
    desk.tell(event())
    desk.tell(event())
    first = desk.webhooks.claim("w1", AT, LATER)
    assert first is not None
    assert first.attempts == 1
    assert desk.webhooks.claim("w2", AT, LATER) is None  # one at a time, in order
    assert desk.webhooks.delivered(first)
    second = desk.webhooks.claim("w2", AT, LATER)
    assert second is not None
    assert second.kept.number > first.kept.number


def test_a_delivery_that_failed_is_due_later_and_its_webhook_counts_failures_in_a_row(desk: Desk):
    desk.webhooks.add(hook())
    desk.tell(event())
    failed = desk.webhooks.claim("w1", AT, LATER)
    assert failed is not None
    assert desk.webhooks.failed(failed, LATER, "500") == 1
    assert desk.webhooks.claim("w1", AT, LATER) is None
    again = desk.webhooks.claim("w1", LATER, LATEST)
    assert again is not None
    assert (again.attempts, again.reason) == (2, "500")
    assert desk.webhooks.failed(again, LATEST, "time-out") == 2
    last = desk.webhooks.claim("w1", LATEST, LATEST)
    assert last is not None
    desk.webhooks.delivered(last)
    assert [each.failures for each in desk.webhooks.all()] == [0]


def test_the_delivery_of_a_worker_that_died_goes_to_another_one(desk: Desk):
    desk.webhooks.add(hook())
    desk.tell(event())
    lost = desk.webhooks.claim("w1", AT, AT)
    found = desk.webhooks.claim("w2", LATER, LATEST)
    assert lost is not None
    assert found is not None
    assert found.attempts == 2
    assert not desk.webhooks.delivered(lost)
    assert desk.webhooks.delivered(found)


def test_a_disabled_webhook_is_told_nothing_until_it_is_enabled(desk: Desk):
    desk.webhooks.add(hook())
    desk.tell(event())
    desk.webhooks.disable("h1", LATER, "it failed too often")
    assert desk.webhooks.claim("w1", AT, LATER) is None
    assert [(each.disabled_at, each.reason) for each in desk.webhooks.all()] == [(LATER, "it failed too often")]
    desk.tell(event())
    desk.webhooks.enable("h1")
    assert len(desk.webhooks.waiting("h1")) == 1


def test_what_was_told_can_be_told_again(desk: Desk):
    desk.webhooks.add(hook("h1", "", "job.queued"))
    desk.tell(event())
    desk.tell(event("job.dropped"))
    told_once = desk.webhooks.claim("w1", AT, LATER)
    assert told_once is not None
    desk.webhooks.delivered(told_once)
    assert desk.webhooks.replay(desk.webhooks.all()[0], desk.events.after(0), LATER) == 1
    assert len(desk.webhooks.waiting("h1")) == 1


def test_tidying_deletes_what_is_too_old_to_be_asked_for(desk: Desk):
    desk.webhooks.add(hook())
    desk.tell(event())
    desk.answers.take("a", "k", "hash", AT)
    desk.jobs.queue_level("a", "soft", AT)
    job = desk.jobs.claim("w1", AT, LATER)
    assert job is not None
    desk.jobs.finish(job, AT)
    desk.tidy(NOW + timedelta(hours=1))
    assert (len(told(desk)), len(desk.jobs.newest()), len(desk.webhooks.waiting("h1"))) == (1, 1, 1)
    assert desk.answers.find("a", "k", "hash")
    desk.tidy(NOW + timedelta(days=8))
    assert ([each.type for each in told(desk)], desk.jobs.newest()) == (["job.dropped"], [])  # what h1 was never told
    assert desk.answers.find("a", "k", "other") is None
