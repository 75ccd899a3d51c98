"""Trying again what is worth it: with growing waits, within the deadline, and never after a cancel."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from context_compactor.errors import ModelError, ModelStopped
from context_compactor.llm.model import Control

Result = TypeVar("Result")


def with_retries(
    call: Callable[[], Result],
    attempts: int,
    delay: float,
    control: Control,
    on_retry: Callable[[ModelError, float], None] | None = None,
) -> Result:
    """The result of a call that is tried up to `attempts` times; the wait begins at `delay` seconds and doubles.

    Only an error that says `retry` is followed by another try, and not sooner than it asks. When the deadline would
    pass during a wait the error is raised at once; a cancel ends the wait. `on_retry` hears of each wait.
    """
    for attempt in range(attempts):
        check(control)
        try:
            return call()
        except ModelError as error:
            pause = max(delay * 2**attempt, error.retry_after or 0.0)
            if not error.retry or attempt + 1 >= attempts or monotonic() + pause >= control.deadline:
                raise
            if on_retry:
                on_retry(error, pause)
        control.cancel.wait(pause)
    raise ValueError(f"attempts is {attempts}; it must be at least 1")


def check(control: Control) -> None:
    """Raise `ModelStopped` once a call is cancelled or its deadline has passed."""
    if control.cancel.is_set():
        raise ModelStopped("cancelled")
    if monotonic() >= control.deadline:
        raise ModelStopped("the deadline has passed; deadline_seconds sets it")
