from __future__ import annotations

import pytest
from msgspec import Struct

from context_compactor.evaluation.counting import CountedReply, anchored_errors, blind_errors


class Twice(Struct, frozen=True):
    """Learns nothing and says that the truth is twice the count."""

    tokens: int = 0

    def learn(self, counted, reported):
        return self

    def estimate(self, counted):
        return Twice(2 * counted)


REPLIES = [CountedReply(count, 2 * count) for count in range(1000, 11000, 1000)]


def test_a_gauge_that_is_right_has_no_error():
    assert list(blind_errors(REPLIES, Twice())) == [0.0] * 5


def test_the_anchored_error_is_only_in_what_is_new():
    assert next(anchored_errors(REPLIES)) == pytest.approx(1000 / 4000)
