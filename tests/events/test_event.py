from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.store.events import EVENT_TYPES, LARGEST_PAYLOAD, Event, make_event

NOON = datetime(2026, 1, 26, 12, 0, tzinfo=UTC)
EARLIER = NOON - timedelta(hours=3)


def test_an_event_is_the_envelope_of_the_contract():
    event = make_event("item.recalled", "run-42", {"ref": "tool_017"}, NOON)
    assert msgspec.to_builtins(event) == {
        "id": event.id,
        "type": "item.recalled",
        "session_id": "run-42",
        "created_at": "2026-01-26T12:00:00.000+00:00",
        "payload": {"ref": "tool_017"},
    }


def test_fifteen_types_of_events_are_known():
    assert len(EVENT_TYPES) == len(set(EVENT_TYPES)) == 15
    assert {"threshold.crossed", "summary.applied", "fact.promoted"} < set(EVENT_TYPES)


def test_the_time_of_an_event_is_in_utc():
    abroad = NOON.astimezone(timezone(timedelta(hours=9)))
    assert make_event("job.queued", "s", {}, abroad).created_at == "2026-01-26T12:00:00.000+00:00"


def test_ids_rise_with_time_and_when_the_clock_stands_still():
    moments = [NOON, NOON, NOON + timedelta(milliseconds=1), NOON + timedelta(days=1)]
    assert_rising([make_event("job.queued", "s", {}, now) for now in moments * 1 + [moments[-1]] * 10_000])


def test_ids_rise_when_the_clock_goes_back():
    future = datetime.now(UTC) + timedelta(days=400)
    assert_rising([make_event("job.queued", "s", {}, now) for now in (future, EARLIER, NOON, EARLIER)])


def assert_rising(events: list[Event]):
    ids = [event.id for event in events]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_an_id_is_a_uuid_that_databases_know():
    from uuid import UUID

    assert UUID(make_event("job.queued", "s", {}, NOON).id).version == 7


def test_a_small_payload_stays_as_it_is_and_does_not_follow_its_giver():
    payload = {"report": {"tokens": [1, 2.5, None, True]}, "reason": "ünïcode"}
    event = make_event("session.compacted", "s", payload, NOON)
    payload["report"]["tokens"].append(3)
    assert event.payload == {"report": {"tokens": [1, 2.5, None, True]}, "reason": "ünïcode"}


def test_the_longest_texts_are_cut_and_the_short_ones_stay():
    event = make_event("compaction.failed", "s", {"reason": "out of room", "log": "x" * 100_000}, NOON)
    assert event.payload["reason"] == "out of room"
    assert event.payload["log"].startswith("xxx")
    assert event.payload["log"].endswith("…")
    assert event.payload["truncated"] is True


def test_the_longest_lists_are_cut():
    event = make_event("compaction.failed", "s", {"refs": [f"tool_{n:05d}" for n in range(9_000)], "one": [1]}, NOON)
    assert event.payload["refs"][0] == "tool_00000"
    assert 100 < len(event.payload["refs"]) < 9_000
    assert event.payload["one"] == [1]


@pytest.mark.parametrize(
    "payload",
    [
        {f"key {n}": n for n in range(20_000)},
        {"k" * 50_000: 1},
        {"deep": [[[[[["x" * 900] * 20] * 20] * 5]]]},
        {"n": 10**6_000},
        {"bytes": b"\xff" * 90_000},
        {"lone": "\ud800" * 5_000},
    ],
    ids=["keys", "key", "deep", "number", "bytes", "surrogates"],
)
def test_no_payload_is_refused_and_none_is_over(payload):
    event = make_event("job.dropped", "s", payload, NOON)
    assert len(msgspec.json.encode(event.payload)) <= LARGEST_PAYLOAD


def test_a_payload_that_holds_itself_ends_somewhere():
    loop: dict[str, object] = {"a": 1}
    loop["again"] = loop
    assert make_event("job.dropped", "s", loop, NOON).payload["a"] == 1


def test_what_json_does_not_know_is_written_as_text():
    event = make_event(
        "job.dropped", "\ud800", {"at": NOON, "set": {1}, "event": Event("1", "job.queued", "", "", {})}, NOON
    )
    assert event.payload["at"] == "2026-01-26 12:00:00+00:00"
    assert event.payload["set"] == [1]
    assert event.payload["event"]["type"] == "job.queued"
    msgspec.json.encode(event)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3_000), st.binary(max_size=50)),
    lambda inner: st.one_of(st.lists(inner, max_size=8), st.dictionaries(st.text(max_size=40), inner, max_size=8)),
    max_leaves=30,
)


@given(st.dictionaries(st.text(max_size=300), values, max_size=30))
def test_every_payload_fits_and_says_when_it_was_cut(payload):
    kept = make_event("job.dropped", "s", payload, NOON).payload
    assert len(msgspec.json.encode(kept)) <= LARGEST_PAYLOAD
    assert kept.get("truncated") is True or len(kept) == len(payload)
