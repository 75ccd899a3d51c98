"""The work that every framework does in these tests, and what is measured of it.

An agent is given twelve rules and reads sixty files in a window of 16,000 tokens. Each file is some 600 tokens, so that
the history is three times the window. The server answers from a script and refuses what the provider would refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer

WINDOW = 16_000
STEPS = 60
RULES = (
    "Never touch legacy/.",
    "Keep Node 18.",
    "No new dependencies.",
    "Use the existing validateToken pattern.",
    "Write tests first.",
    "Do not rename public functions.",
    "Log with structlog only.",
    "Dates are UTC.",
    "Money is in cents.",
    "Never print secrets.",
    "Ask before deleting files.",
    "Commit messages are in English.",
)
TASK = "Read the modules of src/ one by one and find why the login fails. " + " ".join(RULES)
ANSWER = "The clock of src/part_41.py is two seconds behind."
SYSTEM = "You are a careful engineer."
NEXT_TASK = "Now read part_60 again and say what it exports."


def file_path(step: int) -> str:
    """The file that is read in a step, counted from 1."""
    return f"src/part_{step}.py"


def read_file(path: str) -> str:
    """Read a file of the project."""
    name = path.rsplit("/", 1)[-1].removesuffix(".py")
    lines = [f"def {name}_{number}(token, leeway=5): return check(token, {number * 37 % 101})" for number in range(34)]
    return "\n".join([f"# {path}", *lines])


def script(steps: int = STEPS) -> list[ScriptedReply]:
    """One call of `read_file` in each reply, then the answer."""
    calls = (ScriptedCall("read_file", {"path": file_path(step)}) for step in range(1, steps + 1))
    return [*(ScriptedReply(calls=(call,)) for call in calls), ScriptedReply(ANSWER)]


def strict_server(replies: Iterable[ScriptedReply] | None = None, window: int = WINDOW) -> StrictServer:
    """A server with the script of this scenario."""
    return StrictServer(script() if replies is None else replies, window=window)


class RunFigures(Struct, frozen=True):
    """What a run came to. `rules` is how many of the rules stand in the last request, `rewrites` how often a request
    did not begin with all of the one before, `largest` the characters of the largest request."""

    requests: int
    refused: int
    overflows: int
    rules: int
    rewrites: int
    largest: int

    def line(self, name: str) -> str:
        """One row of a table."""
        return (
            f"| {name} | {self.requests} | {self.overflows} | {self.refused - self.overflows} | "
            f"{self.rules} of {len(RULES)} | {self.rewrites} |"
        )


HEADER = "| | requests | overflows | other refusals | rules kept | prefix rewrites |\n|---|---|---|---|---|---|"


def figures(server: StrictServer) -> RunFigures:
    """What a server saw."""
    sent = [_messages(request.body) for request in server.requests]
    texts = [json.dumps(messages, ensure_ascii=False) for messages in sent]
    return RunFigures(
        requests=len(sent),
        refused=len(server.refusals),
        overflows=sum("window" in each.rule for each in server.refusals),
        rules=sum(rule in texts[-1] for rule in RULES) if texts else 0,
        rewrites=sum(after[: len(before)] != before for before, after in pairwise(sent)),
        largest=max(map(len, texts), default=0),
    )


def _messages(body: dict[str, Any]) -> list[Any]:
    """The messages of a request of any provider, without marks for a cache."""
    found = body.get("messages") or body.get("input") or body.get("contents") or []
    return [_without_marks(each) for each in found] if isinstance(found, list) else [found]


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(inner) for key, inner in value.items() if key != "cache_control"}
    return [_without_marks(inner) for inner in value] if isinstance(value, list) else value


def write_files(folder: Path) -> None:
    """The files that are read, in a folder."""
    for step in range(1, STEPS + 1):
        place = folder / file_path(step)
        place.parent.mkdir(exist_ok=True)
        place.write_text(read_file(file_path(step)))


def snippet_of(page: Path) -> str:
    """The first code of a page, in the window and with the task of this scenario."""
    code = page.read_text().partition("```python\n")[2].partition("```")[0]
    assert "200_000" in code
    return code.replace("200_000", f"{WINDOW:_}").replace("Find out why the login fails.", TASK)


def assert_no_worse(found: dict[str, RunFigures], page: Path) -> None:
    """Ours never overflows and keeps no fewer rules than any other way; the page shows what was found."""
    ours = found["context-compactor"]
    assert (ours.overflows, ours.refused, ours.requests) == (0, 0, STEPS + 1)
    assert all(ours.rules >= other.rules for other in found.values())
    text = page.read_text()
    assert [each.line(name) for name, each in found.items() if each.line(name) not in text] == []
