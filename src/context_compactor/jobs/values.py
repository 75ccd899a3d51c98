"""How an engine is set, and what it says of itself."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from context_compactor.errors import BadSetting
from context_compactor.store.desk_rows import Job


class Pace(Struct, frozen=True):
    """How often an engine looks, in seconds.

    `lease` is how long a job is held without a sign of life, `beat` how often that sign is given, `poll` how often
    somebody with nothing to do looks for jobs of other processes, and `watch` how often for those of dead ones.
    """

    lease: float = 15.0
    beat: float = 5.0
    poll: float = 0.5
    watch: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.beat < self.lease or self.poll <= 0 or self.watch <= 0:
            raise BadSetting(
                f"pace: a lease of {self.lease:g} s with a beat of {self.beat:g} s, looks every {self.poll:g} s and "
                f"{self.watch:g} s. All must be above 0, and the beat shorter than the lease."
            )


class Stage(IntEnum):
    """How far an engine has come: from doing all it can to doing nothing."""

    WORKING = 0
    STOPPING = 1
    RETURNING = 2
    OVER = 3


class EngineStatus(Struct, frozen=True):
    """What an engine is doing: the jobs it runs itself, and how many there are in the store by kind and state."""

    name: str
    workers: int
    is_stopping: bool
    running: tuple[Job, ...]
    counts: dict[tuple[str, str], int]

    @property
    def waiting(self) -> int:
        """Jobs in the store that nobody has begun."""
        return sum(count for (_, state), count in self.counts.items() if state == "waiting")
