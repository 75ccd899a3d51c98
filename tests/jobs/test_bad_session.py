"""A session that cannot be opened costs its own job, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from context_compactor.sessions.jobs.leases import WorkerTiming
from context_compactor.store.rows import timestamp
from tests.jobs.place import Place, fill, turn
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow

QUICK = WorkerTiming(lease=60.0, beat=0.5, poll=0.01, watch=0.02)


def rot_content(place: Place) -> None:
    """The first message of the session `a` is no longer what its hash says."""
    session = "(SELECT number FROM sessions WHERE id = 'a')"
    found = f"(SELECT content FROM entries WHERE session = {session} AND position = 1)"
    place.store._database.write(f"UPDATE contents SET bytes = ?, codec = 0 WHERE number = {found}", [b"rotten"])


def rot_profile(place: Place) -> None:
    """The session `a` was opened with something that this version does not know."""
    place.store._database.write("UPDATE sessions SET profile = ? WHERE id = 'a'", [b'{"window": "200k"}'])


def fill_another(place: Place) -> None:
    """A session `b`, with a first message of its own."""
    with place.session("b") as session:
        session.append(turn(1_000, 30))
        fill(session, 0.82)


ROTS = pytest.mark.parametrize("rot", [rot_content, rot_profile])


@ROTS
def test_the_jobs_of_a_dead_worker_are_freed_though_one_of_them_cannot_be_done(
    place: Place, rot: Callable[[Place], None]
):
    with place.session("a", retry_delay_seconds=0.01) as session:
        fill(session, 0.82)
    fill_another(place)
    long_ago = timestamp(place.clock(), -100)
    for _ in "ab":
        assert place.service_store.jobs.claim("dead", timestamp(place.clock()), long_ago) is not None
    rot(place)
    with place.engine(pace=QUICK):
        wait_for(lambda: [job.state for job in place.jobs("b")] == ["done"])
        wait_for(lambda: [job.state for job in place.jobs("a")] == ["dropped"])
    assert [event.session_id for event in place.told("job.dropped")] == ["a"]


@ROTS
def test_a_hand_goes_on_after_a_session_that_cannot_be_opened(place: Place, rot: Callable[[Place], None]):
    with place.session("a", retry_delay_seconds=0.01) as session:
        fill(session, 0.82)
    rot(place)
    with place.engine(workers=1) as engine:
        wait_for(lambda: [job.state for job in place.jobs("a")] == ["dropped"])
        fill_another(place)
        assert engine.wait_idle(PATIENCE)
    assert [job.state for job in place.jobs("b")] == ["done"]
