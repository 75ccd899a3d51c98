"""`compactor hook`: for `--help` alone. What agents call is `hooks/quick.py`, which does not wait for this."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from context_compactor.hooks.quick import EVENTS
from context_compactor.hooks.quick import main as answer

Event = Annotated[str, typer.Argument(metavar="EVENT", help=f"One of {', '.join(EVENTS)}.")]
Agent = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="claude-code or codex; without it that is seen from the input.")
]


def hook(event: Event, agent: Agent = "") -> None:
    """Answer a coding agent: it says on standard input what happens, and reads JSON on standard output.

    `compactor install` registers it. It always leaves with 0, since any other code could stop the agent; what went
    wrong stands in `.compactor/logs/hooks.jsonl`, and `compactor doctor` explains it.

    Example: `compactor hook pre-compact < input.json`
    """
    sys.exit(answer([event, *(["--agent", agent] if agent else [])]))
