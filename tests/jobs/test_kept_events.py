"""What is told of a compaction is kept with it: both are on the disk, or neither is."""

from __future__ import annotations

import os
import signal

import pytest

from context_compactor.errors import StoreError
from context_compactor.sessions.events import ServiceStoreSink
from context_compactor.store.events import Event
from context_compactor.store.rows import Webhook
from tests.jobs.place import Place, fill
from tests.store.children import Child
from tests.waiting import PATIENCE

OF_A_COMPACTION = ["summary.applied", "session.compacted"]


def kept(place: Place) -> list[str]:
    return [each.event.type for each in place.service_store.events.after(0, types=OF_A_COMPACTION)]


def test_a_worker_killed_right_behind_its_commit_has_told_of_it(url: str):
    with Place(url).session() as session:
        fill(session, 0.82)

    def die_behind_the_commit(child: Child) -> None:
        place = Place(url)
        place.bus.subscribe(lambda _: os.kill(os.getpid(), signal.SIGKILL), types=("summary.applied",))
        place.bus.subscribe(ServiceStoreSink(place.service_store))
        with place.engine():
            child.hear()

    with Child(die_behind_the_commit) as child:
        assert child.wait() == -9
    place = Place(url)
    with place.session() as session:
        assert len(session.compactions()) == 1
    assert kept(place) == OF_A_COMPACTION
    place.close()


def test_what_is_kept_with_a_compaction_is_told_once_to_everybody(place: Place):
    place.service_store.webhooks.add(
        Webhook("w", "", "https://example.org", "secret", (), "2026-03-01T10:00:00.000+00:00")
    )
    place.bus.subscribe(ServiceStoreSink(place.service_store))
    with place.session() as session, place.engine() as engine:
        fill(session, 0.82)
        assert engine.wait_idle(PATIENCE)
        assert len(session.compactions()) == 1
    assert kept(place) == OF_A_COMPACTION
    assert [event.type for event in place.told(*OF_A_COMPACTION)] == OF_A_COMPACTION


def test_a_compaction_that_cannot_be_told_of_is_not_made(place: Place):
    class Full(ServiceStoreSink):
        def write_within(self, event: Event) -> None:
            super().write_within(event)
            raise StoreError("the disk is full")

    with place.session() as session:
        fill(session, 0.5)
        place.bus.subscribe(Full(place.service_store))
        with pytest.raises(StoreError, match="the disk is full"):
            session.compact()
        assert session.compactions() == []
    assert kept(place) == []
    assert place.told(*OF_A_COMPACTION) == []
