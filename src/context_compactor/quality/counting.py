"""COUNT: how far a token count is from what the provider reported, anchored on the last reply and blind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

from msgspec import Struct

BLIND_AFTER = 5


class Reply(Struct, frozen=True):
    """What was counted for a request, and what the provider reported for it."""

    counted: int
    reported: int


class Gauge(Protocol):
    """Something that learns from replies; `estimate` gives a value with `tokens`."""

    def learn(self, counted: int, reported: int) -> Gauge:
        """The gauge after one more reply."""
        ...

    def estimate(self, counted: int) -> Any:
        """What the provider would count."""
        ...


def reported_tokens(usage: dict[str, int]) -> int:
    """The prompt a provider billed: fresh, written to the cache and read from it."""
    return usage.get("input", 0) + usage.get("cache_write", 0) + usage.get("cache_read", 0)


def anchored_errors(replies: Sequence[Reply]) -> Iterator[float]:
    """The error of what the last reply reported plus the count since."""
    for before, now in pairwise(replies):
        yield abs(before.reported + now.counted - before.counted - now.reported) / now.reported


def blind_errors(replies: Sequence[Reply], gauge: Gauge) -> Iterator[float]:
    """The error of a gauge that learns from the first five replies alone."""
    for reply in replies[:BLIND_AFTER]:
        gauge = gauge.learn(reply.counted, reply.reported)
    for reply in replies[BLIND_AFTER:]:
        yield abs(gauge.estimate(reply.counted).tokens - reply.reported) / reply.reported
