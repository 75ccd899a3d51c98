"""What is asked of a model and what it answers: requests, answers, deadlines, cancelling and retries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from context_compactor.errors import ModelError, ModelStopped
from context_compactor.tokens.prices import ModelUsage

_log = logging.getLogger("context_compactor")
_Shown = TypeVar("_Shown")
StopReason = Literal["complete", "length", "tool_call", "refusal", "other"]


class ModelMessage(Struct, frozen=True):
    """One message of a request."""

    role: Literal["system", "user", "assistant"]
    text: str


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request.

    `prefix` are the conversation's own messages in the provider's dialect, sent first, so that its cache is reused, and
    `beside` is what the agent sends with them, such as tools: a cache is only read when that is the same too.
    """

    messages: tuple[ModelMessage, ...]
    max_tokens: int
    prefix: tuple[dict[str, Any], ...] = ()
    beside: dict[str, Any] = {}


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """One answer."""

    text: str
    reasoning: str = ""
    tool_calls: int = 0
    stop: StopReason
    usage: ModelUsage = ModelUsage()
    model: str = ""


class ModelStep(Struct, frozen=True):
    """What happens while a model is at work: a request is sent, sent again after a wait, or answered.

    `number` is that of the call within the compaction, or of the attempt when it is sent again; `of` is how many there
    will be, as far as that is known.
    """

    kind: Literal["asked", "retried", "answered"]
    what: str
    number: int
    of: int
    reason: str = ""


class Control:
    """How long a call may take, how to end it, and who sees its text, its steps and its reasoning while it is written.

    Who sees them cannot stop the work: one that raises is not called again, and a warning is logged.
    """

    def __init__(
        self,
        deadline: float,
        cancel: Event,
        on_text: Callable[[str], None] | None = None,
        on_step: Callable[[ModelStep], None] | None = None,
        on_thought: Callable[[str], None] | None = None,
    ) -> None:
        self.deadline = deadline
        self.cancel = cancel
        self.on_text = _safe_callback(on_text)
        self.on_step = _safe_callback(on_step)
        self.on_thought = _safe_callback(on_thought)

    def report(self, step: ModelStep) -> None:
        """Show a step to whoever looks."""
        if self.on_step:
            self.on_step(step)


class _SafeCallback(Generic[_Shown]):
    def __init__(self, show: Callable[[_Shown], None]) -> None:
        self._show: Callable[[_Shown], None] | None = show

    def __call__(self, what: _Shown) -> None:
        try:
            if self._show:
                self._show(what)
        except Exception as error:  # noqa: BLE001 - it is somebody else's code and must not stop a compaction
            self._show = None
            _log.warning("showing what a model does failed and is given up: %s: %s", type(error).__name__, error)


def _safe_callback(show: Callable[[_Shown], None] | None) -> Callable[[_Shown], None] | None:
    return show if show is None or isinstance(show, _SafeCallback) else _SafeCallback(show)


_Result = TypeVar("_Result")


def with_retries(
    call: Callable[[], _Result],
    attempts: int,
    delay: float,
    control: Control,
    on_retry: Callable[[ModelError, float], None] | None = None,
) -> _Result:
    """The result of a call that is tried up to `attempts` times; the wait begins at `delay` seconds and doubles.

    Only an error that says `retry` is followed by another try, and not sooner than it asks. When the deadline would
    pass during a wait the error is raised at once; a cancel ends the wait. `on_retry` hears of each wait.
    """
    for attempt in range(attempts):
        raise_if_stopped(control)
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


def raise_if_stopped(control: Control) -> None:
    """Raise `ModelStopped` once a call is cancelled or its deadline has passed."""
    if control.cancel.is_set():
        raise ModelStopped("cancelled")
    if monotonic() >= control.deadline:
        raise ModelStopped("the deadline has passed; deadline_seconds sets it")
