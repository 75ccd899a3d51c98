"""Requests and controls for tests."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Any

from context_compactor.summarize.model import Control, ModelMessage, ModelRequest
from tests.waiting import PATIENCE


def ask(text: str = "Say hello.", **more: Any) -> ModelRequest:
    said = (ModelMessage("system", "You are brief."), ModelMessage("user", text))
    return ModelRequest(**{"messages": said, "max_tokens": 50, **more})


def control(seconds: float = PATIENCE, on_text: Callable[[str], None] | None = None) -> Control:
    return Control(monotonic() + seconds, Event(), on_text)
