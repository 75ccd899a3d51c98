"""The two messages of a handoff: what a sub-agent is asked, and what it answers.

A value that breaks the protocol cannot be made: `context_summary` has at most 500 tokens in every message there is.
`reading.py` makes messages of what sub-agents really write.
"""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from msgspec import Struct, structs

from context_compactor.errors import BadInput
from context_compactor.handoff.summary import MOST_TOKENS, count_tokens
from context_compactor.messages.dialect import kind_of_value
from context_compactor.messages.jsontext import json_text

Phase = Literal["research", "write", "validate", "parallel"]
Status = Literal["complete", "partial", "failed", "blocked"]
Decision = Literal["PROCEED", "STOP", "CLARIFY"]
PHASES: tuple[Phase, ...] = get_args(Phase)
STATUSES: tuple[Status, ...] = get_args(Status)
DECISIONS: tuple[Decision, ...] = get_args(Decision)

LONGEST_FEATURE, LONGEST_SPEC_PATH = 200, 500
_LONGEST_ID = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SHOWN = 60
_MOST_USED = 10**15


class HandoffRequest(Struct, frozen=True):
    """What a sub-agent is given: its task, and what those before it found out. `references` recall originals.

    `feature` and `spec_path` say what all phases work on, where that is known.
    """

    task_id: str
    phase: Phase
    task: str
    context_summary: str = ""
    constraints: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    feature: str = ""
    spec_path: str = ""

    def __post_init__(self) -> None:
        _check_opening("request", self)
        _check_text("request", "task", self.task)
        _check_summary("request", self.context_summary)
        for name in ("constraints", "files", "references"):
            _check_texts("request", name, getattr(self, name))
        for name, most in (("feature", LONGEST_FEATURE), ("spec_path", LONGEST_SPEC_PATH)):
            _check_line("request", name, getattr(self, name), most)

    def to_dict(self) -> dict[str, Any]:
        """The request as plain JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in structs.asdict(self).items()
        }

    def to_json(self) -> str:
        """The request as compact JSON text."""
        return json_text(self.to_dict())


class HandoffResponse(Struct, frozen=True):
    """What a sub-agent answers. `findings` hold whatever it found; only `context_summary` is handed on.

    `tokens_used` is what it spent on the task, None when nobody told.
    """

    task_id: str
    phase: Phase
    status: Status
    decision: Decision
    findings: dict[str, Any]
    context_summary: str
    tokens_used: int | None = None

    def __post_init__(self) -> None:
        _check_opening("response", self)
        _check_choice("response", "status", self.status, STATUSES)
        _check_choice("response", "decision", self.decision, DECISIONS)
        if not isinstance(self.findings, dict):
            raise wrong("response", "findings", f"must be an object, not {kind_of_value(self.findings)}")
        _check_text("response", "context_summary", self.context_summary)
        _check_summary("response", self.context_summary)
        _check_used(self.tokens_used)

    def to_dict(self) -> dict[str, Any]:
        """The response as plain JSON values, each field under its own name."""
        return structs.asdict(self)

    def to_json(self) -> str:
        """The response as compact JSON text."""
        return json_text(self.to_dict())


def wrong(message: str, field: str, problem: str) -> BadInput:
    """The error for one field of a handoff's request or response."""
    return BadInput(f"handoff {message}, field {field!r}: {problem}")


def _check_opening(message: str, value: HandoffRequest | HandoffResponse) -> None:
    _check_text(message, "task_id", value.task_id)
    if len(value.task_id) > _LONGEST_ID:
        raise wrong(message, "task_id", f"has {len(value.task_id):,} characters; {_LONGEST_ID} are the most")
    _check_choice(message, "phase", value.phase, PHASES)


def _check_text(message: str, field: str, value: object) -> None:
    if not isinstance(value, str):
        raise wrong(message, field, f"must be a text, not {kind_of_value(value)}")
    if not value.strip():
        raise wrong(message, field, "is empty; say it in a sentence")


def _check_line(message: str, field: str, value: object, most: int) -> None:
    if not isinstance(value, str):
        raise wrong(message, field, f"must be a text, not {kind_of_value(value)}")
    if len(value) > most:
        raise wrong(message, field, f"has {len(value):,} characters; {most} are the most")
    if _CONTROL.search(value):
        raise wrong(message, field, f"{value[:_SHOWN]!r} must be one line without control characters")


def _check_texts(message: str, field: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
        raise wrong(message, field, "must be a list of texts")


def _check_choice(message: str, field: str, value: object, known: tuple[str, ...]) -> None:
    if not isinstance(value, str):
        raise wrong(message, field, f"must be one of {', '.join(known)}, not {kind_of_value(value)}")
    if value not in known:
        raise wrong(message, field, f"{value[:_SHOWN]!r} is not known; use one of {', '.join(known)}")


def _check_summary(message: str, value: object) -> None:
    if not isinstance(value, str):
        raise wrong(message, "context_summary", f"must be a text, not {kind_of_value(value)}")
    tokens = count_tokens(value)
    if tokens > MOST_TOKENS:
        problem = f"has {tokens:,} tokens; {MOST_TOKENS} are the most. clean_summary(text) brings it there by rule"
        raise wrong(message, "context_summary", problem)


def _check_used(value: object) -> None:
    if value is None:
        return
    if type(value) is not int or not 0 <= value < _MOST_USED:
        told = str(value) if type(value) is int and abs(value) < _MOST_USED else kind_of_value(value)
        raise wrong("response", "tokens_used", f"must be a whole number of tokens, 0 or more, not {told}")
