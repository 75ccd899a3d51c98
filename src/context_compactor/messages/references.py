"""Names of originals: `tool_017`, `file_003`, `agent_002`, `turn_096`.

The number is that of the exchange or the turn, so a reference can be written before anything is archived.
"""

from __future__ import annotations

import re
from typing import Literal

ID = re.compile(r"\b(?:turn|tool|file|agent)_\d{3,}\b")

# What is archived beside a conversation is numbered from here, far behind any call of it.
FIRST_BESIDE = 1_000_001

Prefix = Literal["tool", "file", "agent", "turn"]


def reference_id(prefix: Prefix, number: int) -> str:
    """The id under which an original is recalled."""
    return f"{prefix}_{number:03d}"
