"""A day of many words, so that its turns are folded and a model has something to tell, and who tells it."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

from msgspec import structs

from context_compactor.dialects.record import FINDINGS, STANDING, parse_record
from context_compactor.protocols import Model, Store
from context_compactor.sessions.core import Clock, wall_clock
from context_compactor.sessions.events import Bus
from context_compactor.sessions.session import Session
from context_compactor.settings import Settings
from context_compactor.store.events import Event as Told
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest, raise_if_stopped
from context_compactor.testing import ScriptedModel
from tests.engine.test_model import working_day
from tests.sessions.talk import CALM, count
from tests.summarize.samples import GOOD

Raw = dict[str, Any]

WINDOW = 32_000
QUICK = structs.replace(CALM, retry_delay_seconds=0.0)
FIRST = working_day(0)[:-1]
"""What everything else is about: the request, an edit, a failed test, a decision, and a to-do list."""

PLAIN = """## Where things stand
- doing: the agent looks around with `ls`, one folder after the other, 24 areas each
## Findings and decisions
- the folders hold 12 files each and nothing of interest for the refresh
"""
"""A summary of steps alone."""


def step(number: int) -> list[Raw]:
    """One step of the agent: many words, a look around, and what it saw."""
    words = " ".join(f"Folder {number} of area {part} holds nothing of interest for the refresh." for part in range(24))
    function = {"name": "Bash", "arguments": json.dumps({"command": f"ls folder_{number}"})}
    call = {"id": f"look_{number}", "type": "function", "function": function}
    seen = "\n".join(f"file_{number}_{n}.py" for n in range(12))
    return [
        {"role": "assistant", "content": f"Looking around, part {number}. {words}", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"look_{number}", "content": seen},
    ]


def steps(first: int, after: int) -> list[Raw]:
    """The steps from one number up to another."""
    return [raw for number in range(first, after) for raw in step(number)]


class Ears:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.events: list[Told] = []
        self.bus.subscribe(self.events.append)

    def reasons(self, what: str) -> list[str]:
        """Why work of this name was dropped."""
        return [
            str(event.payload["reason"])
            for event in self.events
            if event.type == "job.dropped" and event.payload["what"] == what
        ]

    @property
    def types(self) -> list[str]:
        """The types of all events."""
        return [event.type for event in self.events]


def opened(
    model: Model | None = None,
    store: Path | Store | str = "memory:",
    *,
    ears: Ears | None = None,
    clock: Clock = wall_clock,
    window: int = WINDOW,
    settings: Settings = QUICK,
    **more: Any,
) -> Session:
    """A calm session whose stories this model tells."""
    wanted = structs.replace(settings, **more)
    place = f"sqlite:///{store / 'sessions.db'}" if isinstance(store, Path) else store
    return Session.open(
        "run",
        window=window,
        store=place,
        settings=wanted,
        count_tokens=count,
        bus=ears.bus if ears else None,
        clock=clock,
        summarizer=model,
    )


class Slow(ScriptedModel):
    """A model that thinks until it is let go, or cancelled."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(answers or (GOOD,))
        self.begun = Event()
        self.go = Event()

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """The next answer, once it may be given."""
        self.begun.set()
        while not self.go.wait(0.01):
            raise_if_stopped(control)
        return super().write(request, control)


def stories(session: Session) -> list[str]:
    """The lines of the record in the context that say how things stand and what was found."""
    records = [parse_record(str(raw["content"])) for raw in session.context()]
    return [line for record in records if record for title in (STANDING, FINDINGS) for line in record.lines(title)]
