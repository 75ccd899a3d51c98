"""What is asked of a model and what it answers, whoever serves it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

_log = logging.getLogger("context_compactor")
Shown = TypeVar("Shown")
Stop = Literal["complete", "length", "tool_call", "refusal", "other"]


class ModelMessage(Struct, frozen=True):
    """One message of a request."""

    role: Literal["system", "user", "assistant"]
    text: str


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request. With `schema` the answer must be a JSON value of it.

    `prefix` are the conversation's own messages in the provider's dialect, sent first, so that its cache is reused, and
    `beside` is what the agent sends with them, such as tools: a cache is only read when that is the same too.
    """

    messages: tuple[ModelMessage, ...]
    max_tokens: int
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    prefix: tuple[dict[str, Any], ...] = ()
    beside: dict[str, Any] = {}


class ModelUsage(Struct, frozen=True):
    """Tokens as the provider counted them. `input` are those that were neither read from a cache nor written to one."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """One answer. `value` is the parsed JSON when a schema was asked for."""

    text: str
    value: Any = None
    reasoning: str = ""
    tool_calls: int = 0
    stop: Stop
    usage: ModelUsage = ModelUsage()
    model: str = ""


class Step(Struct, frozen=True):
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

    Who sees them cannot stop the work: one that raises is told nothing more, and a warning is logged.
    """

    def __init__(
        self,
        deadline: float,
        cancel: Event,
        on_text: Callable[[str], None] | None = None,
        on_step: Callable[[Step], None] | None = None,
        on_thought: Callable[[str], None] | None = None,
    ) -> None:
        self.deadline = deadline
        self.cancel = cancel
        self.on_text = _harmless(on_text)
        self.on_step = _harmless(on_step)
        self.on_thought = _harmless(on_thought)

    def tell(self, step: Step) -> None:
        """Show a step to whoever looks."""
        if self.on_step:
            self.on_step(step)


class _Harmless(Generic[Shown]):
    def __init__(self, show: Callable[[Shown], None]) -> None:
        self._show: Callable[[Shown], None] | None = show

    def __call__(self, what: Shown) -> None:
        try:
            if self._show:
                self._show(what)
        except Exception as error:  # noqa: BLE001 - it is somebody else's code and must not stop a compaction
            self._show = None
            _log.warning("showing what a model does failed and is given up: %s: %s", type(error).__name__, error)


def _harmless(show: Callable[[Shown], None] | None) -> Callable[[Shown], None] | None:
    return show if show is None or isinstance(show, _Harmless) else _Harmless(show)
