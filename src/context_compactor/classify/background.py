"""Commands that run in the background: the call that starts one, and those that ask later how it is."""

from __future__ import annotations

import re

from context_compactor.classify.calls import read_call
from context_compactor.messages.message import ToolCall

_RUNNING = re.compile(r"(?:running|background)\b[^\n]{0,40}\bID:? (\w+)", re.IGNORECASE)
_KEYS = ("session_id", "bash_id", "shell_id", "task_id", "process_id")


def running_id(answer: str) -> str:
    """The id under which a command goes on running, when its answer says that it does."""
    head = answer[:300]
    found = _RUNNING.search(head) if "ID" in head or "id" in head else None
    return found[1] if found else ""


def asked_id(call: ToolCall | None) -> str:
    """The id of the running command that a call asks about."""
    values = read_call(call).arguments if call else {}
    return next((str(values[key]) for key in _KEYS if values.get(key)), "")
