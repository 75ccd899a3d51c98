"""A fact: one thing that must outlive the text it stood in, with its source."""

from __future__ import annotations

from typing import Literal

from context_compactor.dialects.messages import Role
from context_compactor.json_values import FormerNames

FactKind = Literal[
    "task",
    "constraint",
    "decision",
    "failure",
    "error",
    "file_state",
    "dependency",
    "command",
    "approval",
    "denial",
    "side_effect",
    "subagent",
    "mode",
    "todo",
    "blocker",
    "next_step",
]


class Fact(FormerNames, frozen=True):
    """`content` is one line, in the words of its source; `detail` a second one (of a failure, its error).

    `status` is what became of it (`done`, `active`, `blocked`, `open`, `resolved`, `given up`, `denied`, `running`,
    `superseded`; a failure of an earlier version has none and counts as open);
    `count` how often it was seen, first in `turn` and last in `last_turn`; `ref` recalls its original. `first_seen` and
    `last_seen` are the times of these turns in UTC, null where nobody knows.
    """

    kind: FactKind
    content: str
    turn: int
    role: Role
    detail: str = ""
    status: str = ""
    count: int = 1
    last_turn: int = 0
    ref: str = ""
    summarized_by: str = ""
    """The model that says so; empty when it was read from the conversation itself. A hint then, and never a rule."""
    outcome: str = ""
    """Of a failure: what resolved it or who gave it up, in a few words that the conversation shows."""
    first_seen: str | None = None
    last_seen: str | None = None


def expand_kind(kind: str) -> tuple[str, ...]:
    """The kinds that are meant by one that is asked for: whoever asks for errors wants failed attempts as well."""
    return ("failure", "error") if kind == "error" else (kind,)
