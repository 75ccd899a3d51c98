"""What is old is deleted beside the work, and never by whoever happens to write."""

from __future__ import annotations

import pytest

from context_compactor.sessions.jobs.worker import Cleanup
from tests.jobs.place import Place, Ticking, turn

DAY = 24 * 60 * 60


def known(place: Place) -> list[str]:
    return [row.id for row in place.store.sessions()]


def test_sessions_that_nobody_has_used_for_long_are_deleted_and_open_ones_are_not(
    still: Place, clock: Ticking, monkeypatch: pytest.MonkeyPatch
):
    with still.session("old") as session:
        session.append(turn(0, 30))
    with still.session("open") as session:
        session.append(turn(0, 30))
        clock.go_on(2 * DAY)
        tidier = Cleanup(still.store, still.service_store, clock)
        tidier.run()
        assert known(still) == ["old", "open"]  # nothing expires unless somebody says so
        monkeypatch.setenv("COMPACTOR_RETENTION_DAYS", "1")
        tidier.run()
        assert known(still) == ["open"]


def test_whoever_writes_to_a_session_of_a_server_deletes_nothing(
    still: Place, clock: Ticking, monkeypatch: pytest.MonkeyPatch
):
    with still.session("old") as session:
        session.append(turn(0, 30))
    clock.go_on(2 * DAY)
    monkeypatch.setenv("COMPACTOR_RETENTION_DAYS", "1")
    with still.session("new") as session:
        session.append(turn(0, 30))
    assert known(still) == ["new", "old"]


def test_what_a_killed_deletion_has_left_behind_is_removed(still: Place, clock: Ticking):
    with still.session("gone") as session:
        session.append(turn(0, 30))
    still.store.delete("gone")  # and killed here
    assert still.store._database.rows("SELECT 1 FROM entries")
    Cleanup(still.store, still.service_store, clock).run()
    assert not still.store._database.rows("SELECT 1 FROM entries")
    assert not still.store._database.rows("SELECT 1 FROM contents")
