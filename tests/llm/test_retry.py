"""Trying again: what, how often, and when not."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from context_compactor.errors import ModelDenied, ModelOverflow, ModelStopped, ModelUnavailable
from context_compactor.summarize.model import Control, with_retries
from tests.llm.asking import control


class Waiting(threading.Event):
    """A cancel that notes how long somebody would have waited for it, and takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return self.is_set()


def _failing(*errors):
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_the_waits_grow():
    waiting = Waiting()
    busy = ModelUnavailable("busy")
    assert with_retries(_failing(busy, busy), 3, 2.0, Control(monotonic() + 99, waiting)) == "done"
    assert waiting.waits == [2.0, 4.0]


def test_nobody_comes_back_sooner_than_asked():
    waiting = Waiting()
    with_retries(_failing(ModelUnavailable("busy", 30.0)), 3, 2.0, Control(monotonic() + 99, waiting))
    assert waiting.waits == [30.0]


def test_a_wait_beyond_the_deadline_is_not_begun():
    waiting = Waiting()
    with pytest.raises(ModelUnavailable, match="busy"):
        with_retries(_failing(ModelUnavailable("busy", 300.0)), 3, 0, Control(monotonic() + 99, waiting))
    assert waiting.waits == []


def test_after_the_last_attempt_its_error_is_raised():
    errors = [ModelUnavailable(word) for word in ("first", "second", "third", "fourth")]
    with pytest.raises(ModelUnavailable, match="third"):
        with_retries(_failing(*errors), 3, 0, control())


@pytest.mark.parametrize("error", [ModelDenied("no"), ModelOverflow("too long"), ModelStopped("cancelled")])
def test_what_is_not_worth_it_is_not_tried_again(error):
    with pytest.raises(type(error)):
        with_retries(_failing(error), 3, 0, control())


def test_a_cancel_ends_the_wait():
    asked = control(1000)
    threading.Timer(0.1, asked.cancel.set).start()
    with pytest.raises(ModelStopped, match="cancelled"):
        with_retries(_failing(ModelUnavailable("busy", 900.0)), 3, 0, asked)


def test_each_wait_is_told():
    found = []
    busy = ModelUnavailable("busy")
    waiting = Control(monotonic() + 99, Waiting())
    with_retries(_failing(busy), 3, 2.0, waiting, lambda error, pause: found.append((error, pause)))
    assert found == [(busy, 2.0)]
