"""What the screens need to know and can have done, and nothing about where it comes from.

Every verb is awaited and leaves the event loop free. What goes wrong is a `CompactorError` that says what to try.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from context_compactor.archive.export import Exported
from context_compactor.archive.search.hits import Hit
from context_compactor.classify.tier import Tier
from context_compactor.facts.fact import Fact
from context_compactor.handoff.messages import HandoffRequest
from context_compactor.levels import DEFAULT_LEVELS, Level, LevelRule
from context_compactor.measure.usage import Sections
from context_compactor.report import Report
from context_compactor.session.diff import ContextDiff
from context_compactor.session.recall import Page
from context_compactor.session.record import Totals

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


class PutBack(Struct, frozen=True):
    """An original that stands in the context again."""

    ref: str
    tokens: int
    in_place: bool
    compacted: bool
    tokens_after: int


class Change(Struct, frozen=True):
    """Something is no longer as it was: these sessions, or all that are listed when there are none named.

    `offline` says why the source cannot be reached; an empty one says that it can. `told` is for people.
    """

    sessions: frozenset[str] = frozenset()
    offline: str = ""
    told: str = ""


class Source(Protocol):
    """Where sessions come from, and who does what is asked for."""

    @property
    def name(self) -> str:
        """Where that is, for people; no secret is in it."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether it is a server: what it does goes on when nobody waits for it."""
        ...

    # Looking

    async def sessions(self) -> list[SessionLine]:
        """All sessions, by their ids."""
        ...

    async def course(self, line: SessionLine) -> Course:
        """How a session of the list went; what was found out is kept until its mark changes."""
        ...

    async def session(self, session_id: str) -> Standing:
        """How a session stands."""
        ...

    async def turns(self, session_id: str, first: int = 0, count: int = 50) -> TurnPage:
        """So many turns of the history from this one on, counted from 0; only these are read and weighed.

        A history is found out about step by step: a page says how many turns are known by now. Ask again for more.
        """
        ...

    async def turn(self, session_id: str, at: int) -> list[Piece]:
        """A turn in full, as it was said."""
        ...

    async def original(self, session_id: str, ref: str, page: int = 1) -> OriginalPage:
        """A page of an original."""
        ...

    async def context(self, session_id: str, at: int | None = None) -> list[Raw]:
        """What the model is shown now, or was shown when so many messages had been appended."""
        ...

    async def compactions(self, session_id: str) -> list[CompactionLine]:
        """Every compaction, in order."""
        ...

    async def plotted(self, session_id: str) -> Plotted:
        """Tokens over messages."""
        ...

    async def facts(self, session_id: str, kind: str | None = None) -> list[Fact]:
        """What must outlive the text, by turn."""
        ...

    async def search(self, session_id: str, text: str, limit: int = 20) -> list[Hit]:
        """Lines of archived originals that answer a question, best first."""
        ...

    async def diff(self, session_id: str) -> ContextDiff:
        """The context before and after the last compaction."""
        ...

    async def settings(self, session_id: str) -> dict[str, Any]:
        """Every setting in force, or where only those are known, those that differ from the defaults."""
        ...

    # Doing

    async def plan(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """What a compaction would do now. Nothing is changed."""
        ...

    async def compact(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """Compact now. Cancel the task to cancel the compaction: then nothing is changed, unless a server does it."""
        ...

    async def undo(self, session_id: str) -> Report | None:
        """Take the last compaction back; None when there is none."""
        ...

    async def redo(self, session_id: str) -> Report | None:
        """Take the last undo back; None when there is none."""
        ...

    async def restore(self, session_id: str, ref: str) -> PutBack:
        """Put an original back into the context."""
        ...

    async def checkpoint(self, session_id: str, note: str = "") -> str:
        """Where the work stands, as Markdown."""
        ...

    async def handoff(self, session_id: str, phase: str = "write", task: str = "") -> HandoffRequest:
        """What the next phase is given. Compacts first."""
        ...

    async def create(self, session_id: str, *, window: int, model: str | None = None, dialect: str = "auto") -> None:
        """Make a session, or go on with the one that is there."""
        ...

    async def append(
        self,
        session_id: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append messages, all or none."""
        ...

    async def export(self, session_id: str, folder: Path) -> Exported:
        """Write all archived originals as plain files below a folder."""
        ...

    # Living with it

    def watch(self) -> AsyncIterator[Change]:
        """Changes as they are seen, without end; what goes wrong meanwhile is a change as well."""
        ...

    async def close(self) -> None:
        """Give back what is held."""
        ...
