"""What is asked of a model and what it answers, whoever serves it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, Literal

from msgspec import Struct

Stop = Literal["complete", "length", "tool_call", "refusal", "other"]


class ModelMessage(Struct, frozen=True):
    """One message of a request."""

    role: Literal["system", "user", "assistant"]
    text: str


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request. With `schema` the answer must be a JSON value of it.

    `prefix` are the conversation's own messages in the provider's dialect, sent first, so that its cache is reused.
    """

    messages: tuple[ModelMessage, ...]
    max_tokens: int
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    prefix: tuple[dict[str, Any], ...] = ()


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


class Control:
    """How long a call may take, how to end it, and who sees its text while it is written."""

    def __init__(self, deadline: float, cancel: Event, on_text: Callable[[str], None] | None = None) -> None:
        self.deadline = deadline
        self.cancel = cancel
        self.on_text = on_text
