"""The feed of a server: one follower that fails keeps nothing from the others, and is asked again."""

from __future__ import annotations

from tests.server.streams import event
from tests.waiting import wait_for


def test_a_follower_that_fails_keeps_the_events_from_nobody(server):
    seen: list[int] = []

    def failing(batch) -> None:
        raise ValueError("as if an event could not be read")

    server.service.feed._followers.insert(0, failing)
    server.service.feed.follow(lambda batch: seen.extend(kept.event.payload["number"] for kept in batch))
    for number in range(3):
        server.service.bus.emit(event("job.queued", "run", number=number))
        wait_for(lambda: len(seen) == number + 1)  # noqa: B023
    assert seen == [0, 1, 2]
    assert server.get("/healthz").status == 200
