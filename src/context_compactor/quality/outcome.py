"""What an evaluation found, as one value: what the table, the page and the JSON document are made from."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.quality.gather import Skipped
from context_compactor.quality.losses import Loss
from context_compactor.quality.told import ToldRow

ALL = "all"


class Inputs(Struct, frozen=True):
    """What was read. `every` is the step with which conversations were taken, `samples` the places they were cut at."""

    files: int
    conversations: int
    too_short: int
    every: int
    taken: int
    samples: int
    real: int
    projects: int
    common_names: int
    skipped: tuple[Skipped, ...] = ()


class Row(Struct, frozen=True):
    """The means of one method at one budget, over all samples or those of one source. Shares are from 0 to 1."""

    method: str
    budget: str
    source: str
    samples: int
    misfits: int
    shares: dict[str, float | None]


class Trouble(Struct, frozen=True):
    """A context that did not fit or that a provider would refuse."""

    method: str
    budget: str
    sample: str
    reason: str


class Cost(Struct, frozen=True):
    """What sessions cost with a method against never compacting: the mean ratio, and that of all bills together."""

    method: str
    source: str
    conversations: int
    mean: float
    together: float
    compactions: float


class CountError(Struct, frozen=True):
    """The mean error of the token gauge over the replies of one source, as a share of what the provider reported."""

    source: str
    conversations: int
    replies: int
    anchored: float | None
    blind: float | None


class DialogueScore(Struct, frozen=True):
    """The share of questions whose evidence was all retrieved, over all and by kind."""

    search: str
    tokens: int
    questions: int
    share: float
    kinds: dict[str, float]


class SampleScore(Struct, frozen=True):
    """One method on one sample at one budget."""

    sample: str
    source: str
    method: str
    budget: str
    tokens: int
    limit: int
    fits: bool
    shares: dict[str, float | None]


class Evaluation(Struct, frozen=True, kw_only=True):
    """Everything that was measured."""

    version: str
    budgets: tuple[str, ...]
    methods: tuple[str, ...]
    inputs: Inputs
    model: str = ""
    """The model that `compactor+model` asked; empty when none was."""
    rows: tuple[Row, ...] = ()
    told: tuple[ToldRow, ...] = ()
    losses: tuple[Loss, ...] = ()
    costs: tuple[Cost, ...] = ()
    counts: tuple[CountError, ...] = ()
    dialogues: tuple[DialogueScore, ...] = ()
    misfits: tuple[Trouble, ...] = ()
    illegal: tuple[Trouble, ...] = ()
    samples: tuple[SampleScore, ...] = ()

    def row(self, method: str, budget: str, source: str = ALL) -> Row | None:
        """The means of a method at a budget."""
        same = (row for row in self.rows if (row.method, row.budget, row.source) == (method, budget, source))
        return next(same, None)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that have samples."""
        return tuple(dict.fromkeys(row.source for row in self.rows if row.source != ALL))

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as plain JSON values, with what each measure means."""
        from context_compactor.quality.words import MEASURE_WORDS

        meanings = {name: words.meaning for name, words in MEASURE_WORDS.items()}
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {**fields, "measures": meanings}
