"""placeholder until the other comes"""

from __future__ import annotations

import re

from context_compactor.classify.failures import Failure
from context_compactor.classify.kinds import Kind
from context_compactor.messages.turn import ToolUse


def outcome_of(use: ToolUse, kind: Kind, failure: Failure | None, most: int = 160) -> str:
    if failure:
        return " ".join(failure.error.split())[:most]
    text = use.result.text if use.result else ""
    if kind in (Kind.CODE, Kind.LISTING, Kind.DIFF):
        return ""
    lines = [line.strip() for line in text[-2000:].split("\n") if re.search(r"\w", line)]
    return lines[-1][:most] if lines else "no output"
