"""What the screens show: sessions, turns, compactions and what was done, as plain values."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from context_compactor.classify.tier import Tier
from context_compactor.levels import DEFAULT_LEVELS, Level, LevelRule
from context_compactor.measure.usage import Sections
from context_compactor.report import Report
from context_compactor.session.recall import Page
from context_compactor.session.record import Totals
from context_compactor.session.restore import Restored

Raw = dict[str, Any]
Point = tuple[int, int]


class SessionLine(Struct, frozen=True, kw_only=True):
    """A session in a list. `share` is of the budget, from 0; `mark` changes whenever the session does."""

    id: str
    updated_at: str
    messages: int
    tokens: int
    share: float
    level: Level | None
    levels: tuple[LevelRule, ...] = DEFAULT_LEVELS
    window: int | None = None
    model: str = ""
    dialect: str = ""
    mark: str = ""


class Course(Struct, frozen=True):
    """How a session went: its turns, its compactions in numbers, and a line of tokens from its beginning to now."""

    turns: int | None = None
    compactions: int = 0
    undone: int = 0
    saved: int = 0
    last_at: str = ""
    line: tuple[int, ...] = ()


class Standing(Struct, frozen=True, kw_only=True):
    """How one session stands: its fill with forecast, its sections, and its compactions in numbers."""

    line: SessionLine
    budget_tokens: int
    bytes: int
    budget_bytes: int
    margin: float
    source: str
    """Who counted."""
    tool_results: int
    files_loaded: int
    growth: int | None
    """Tokens of a turn, about; None when it cannot be told."""
    turns_left: int | None
    sections: Sections
    totals: Totals
    settings: dict[str, Any]
    """Those that differ from the defaults."""

    def turns_until(self, tokens: int) -> int | None:
        """About how many more turns it takes to reach so many tokens."""
        return None if self.growth is None else max(0, tokens - self.line.tokens) // self.growth


class TurnLine(Struct, frozen=True, kw_only=True):
    """A turn in a list. `at` counts all turns of the history from 0, `number` those that references count."""

    at: int
    number: int
    role: str
    words: str
    kind: str
    tokens: int
    tier: Tier
    reason: str
    refs: tuple[str, ...] = ()
    """What recalls it and its results, as far as they are archived."""

    @property
    def ref(self) -> str:
        """The id of the turn; instructions have none."""
        return f"turn_{self.number:03d}" if self.number > 0 else ""


class TurnPage(Struct, frozen=True):
    """Some turns, and how many there are. While `is_all` is not so, more are still being read."""

    turns: list[TurnLine]
    total: int
    is_all: bool = True


class Piece(Struct, frozen=True):
    """Some text of a turn under a heading. `path` says what it is written in."""

    title: str
    text: str
    path: str = ""
    role: str = ""


class OriginalPage(Struct, frozen=True):
    """A page of an original, with what it is and the path it was read from, as far as that is known."""

    page: Page
    title: str = ""
    path: str = ""


class CompactionLine(Struct, frozen=True):
    """A compaction: its report, when it was made, and whether it counts or was undone."""

    report: Report
    created_at: str
    is_active: bool = True


class Tooth(Struct, frozen=True):
    """A compaction in the plot: at which message, from how many tokens to how many."""

    id: str
    message: int
    before: int
    after: int
    is_active: bool = True


class Plotted(Struct, frozen=True):
    """Tokens over messages, with the compactions among them. An estimate says so."""

    points: list[Point]
    teeth: list[Tooth]
    budget_tokens: int
    levels: tuple[LevelRule, ...]
    is_estimate: bool = False


class Appended(Struct, frozen=True):
    """What an append led to; `report` is that of a compaction made at once."""

    messages: int
    tokens: int
    share: float
    level: Level | None
    report: Report | None = None


class Request(Struct, frozen=True):
    """What must be sent to a model now; `report` is that of a compaction which was made on the way."""

    messages: list[Raw]
    report: Report | None = None


class PutBack(Restored, frozen=True):
    """An original that stands in the context again."""


class Change(Struct, frozen=True):
    """Something is no longer as it was: these sessions, or all that are listed when there are none named.

    `offline` says why the source cannot be reached; an empty one says that it can. `told` is for people.
    """

    sessions: frozenset[str] = frozenset()
    offline: str = ""
    told: str = ""
