"""The protocol of a source of sessions, the values it answers with, and what every source needs: polling, and
cancelling work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from context_compactor.archive.export import Exported
from context_compactor.archive.search.passages import Hit
from context_compactor.engine.plan import Plan
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.errors import CompactorError
from context_compactor.facts.fact import Fact
from context_compactor.handoff.protocol import HandoffRequest
from context_compactor.sessions.recall import RecallPage, Restored
from context_compactor.sessions.views import ContextDiff, HistoryPage, Totals
from context_compactor.settings import DEFAULT_LEVELS, Level, LevelRule
from context_compactor.tokens.budget import Sections

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


class SessionTrend(Struct, frozen=True):
    """How a session went: its turns, its compactions in numbers, and a line of tokens from its beginning to now."""

    turns: int | None = None
    compactions: int = 0
    undone: int = 0
    saved: int = 0
    last_at: str = ""
    line: tuple[int, ...] = ()


class SessionStatus(Struct, frozen=True, kw_only=True):
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
    """Tokens of a turn, about; None when it is not known."""
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


class TextPiece(Struct, frozen=True):
    """Some text of a turn under a heading. `path` says what it is written in."""

    title: str
    text: str
    path: str = ""
    role: str = ""


class OriginalPage(Struct, frozen=True):
    """A page of an original, with what it is and the path it was read from, as far as that is known."""

    page: RecallPage
    title: str = ""
    path: str = ""


class CompactionLine(Struct, frozen=True):
    """A compaction: its report, when it was made, and whether it counts or was undone."""

    report: Report
    created_at: str
    is_active: bool = True


class PlottedCompaction(Struct, frozen=True):
    """A compaction in the plot: at which message, from how many tokens to how many."""

    id: str
    message: int
    before: int
    after: int
    is_active: bool = True


class TokenPlot(Struct, frozen=True):
    """Tokens over messages, with the compactions among them. An estimate says so."""

    points: list[Point]
    compactions: list[PlottedCompaction]
    budget_tokens: int
    levels: tuple[LevelRule, ...]
    is_estimate: bool = False


class AppendResult(Struct, frozen=True):
    """What an append led to; `report` is that of a compaction made at once."""

    messages: int
    tokens: int
    share: float
    level: Level | None
    report: Report | None = None


class ContextRequest(Struct, frozen=True):
    """What must be sent to a model now; `report` is that of a compaction which was made on the way."""

    messages: list[Raw]
    report: Report | None = None


class SourceChange(Struct, frozen=True):
    """Something is no longer as it was: these sessions, or all that are listed when there are none named.

    `offline` says why the source cannot be reached; an empty one says that it can. `message` is for people.
    """

    sessions: frozenset[str] = frozenset()
    offline: str = ""
    message: str = ""


class SessionSource(Protocol):
    """Where sessions come from, and who does what is asked for."""

    @property
    def name(self) -> str:
        """Where that is, for people; no secret is in it."""
        ...

    @property
    def checkpoint_file(self) -> str:
        """Where checkpoints are written; empty when that is nowhere on this machine."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether it is a server: what it does may go on when nobody waits for it."""
        ...

    # Looking

    async def sessions(self) -> list[SessionLine]:
        """All sessions, by their ids."""
        ...

    async def trend(self, line: SessionLine) -> SessionTrend:
        """How a session of the list went; what was found out is kept until its mark changes."""
        ...

    async def session(self, session_id: str) -> SessionStatus:
        """How a session stands."""
        ...

    async def turns(self, session_id: str, first: int = 0, count: int = 50) -> TurnPage:
        """So many turns of the history from this one on, counted from 0; only these are read and weighed.

        A history is found out about step by step: a page says how many turns are known by now. Ask again for more.
        """
        ...

    async def turn(self, session_id: str, at: int) -> list[TextPiece]:
        """A turn in full, as it was said."""
        ...

    async def original(self, session_id: str, ref: str, page: int = 1) -> OriginalPage:
        """A page of an original."""
        ...

    async def history(self, session_id: str, first: int | None = None, count: int = 50) -> HistoryPage:
        """So many messages of the history from this index on, or the last ones, with the compactions among them."""
        ...

    async def context(self, session_id: str, at: int | None = None) -> list[Raw]:
        """What the model is shown now, or was shown when so many messages had been appended."""
        ...

    async def compactions(self, session_id: str) -> list[CompactionLine]:
        """Every compaction, in order."""
        ...

    async def plotted(self, session_id: str) -> TokenPlot:
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

    async def tiers(self, session_id: str) -> dict[int, Tier]:
        """What was decided about turns that stand in the context, by their number."""
        ...

    # Doing

    async def planned(
        self,
        session_id: str,
        *,
        level: str | None = None,
        target_tokens: int | None = None,
        focus: str | None = None,
        tiers: Mapping[int, str] | None = None,
    ) -> Plan:
        """What a compaction would do now, turn by turn. Nothing is changed, and no model is asked.

        With `tiers`, tiers by turn, it is as if these had been decided and no others.
        """
        ...

    async def set_tier(self, session_id: str, turn: int, tier: str) -> object:
        """Decide about a turn: every compaction gives it this tier, until that is taken back."""
        ...

    async def clear_tier(self, session_id: str, turn: int | None = None) -> object:
        """Leave a turn to the engine again, or all of them."""
        ...

    async def compact(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """Compact now. Cancel the task to cancel the compaction: then nothing is changed.

        One that was done before it could be cancelled is returned as it is.
        """
        ...

    async def undo(self, session_id: str) -> Report | None:
        """Take the last compaction back; None when there is none."""
        ...

    async def redo(self, session_id: str) -> Report | None:
        """Take the last undo back; None when there is none."""
        ...

    async def restore(self, session_id: str, ref: str) -> Restored:
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

    async def delete(self, session_id: str) -> None:
        """Delete a session for good; in a store on this machine also those of its sub-agents."""
        ...

    async def append(
        self,
        session_id: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
    ) -> AppendResult:
        """Append messages, all or none."""
        ...

    async def request(self, session_id: str) -> ContextRequest:
        """The context as it must be sent now. It is compacted first when that is due and nobody has looked yet."""
        ...

    async def set_automatic(self, session_id: str, is_on: bool) -> bool:
        """Let the session compact by itself, or not, for whoever opens it from now on; whether it does then."""
        ...

    async def export(self, session_id: str, folder: Path | None = None) -> Exported:
        """Write all archived originals as plain files, to the project's readable archive or below another folder."""
        ...

    # Living with it

    def watch(self) -> AsyncIterator[SourceChange]:
        """Changes as they are seen, without end; what goes wrong meanwhile is a change as well."""
        ...

    async def close(self) -> None:
        """Give back what is held."""
        ...


_POLL_PAUSE_FACTOR = 10
"""What takes long to look at is looked at so many times more seldom than it takes."""


async def poll_changes(look: Callable[[], Awaitable[dict[str, str]]], seconds: float) -> AsyncIterator[SourceChange]:
    """Sessions whose mark is another than before; that the source went away, and that it came back."""
    known: dict[str, str] | None = None
    problem = ""
    while True:
        began = time.monotonic()
        try:
            now = await look()
        except CompactorError as error:
            if str(error) != problem:
                problem = str(error)
                yield SourceChange(offline=problem)
        else:
            before = known if known is not None else now
            changed = frozenset(name for name in now.keys() | before if now.get(name) != before.get(name))
            if problem:
                yield SourceChange()
            elif changed:
                yield SourceChange(changed)
            known, problem = now, ""
        await asyncio.sleep(max(seconds, _POLL_PAUSE_FACTOR * (time.monotonic() - began)))


T = TypeVar("T")

_RETRY_SECONDS = 0.05


async def end_on_cancel(
    work: Coroutine[Any, Any, T], end: Callable[[], Awaitable[object]], is_done: Callable[[T], bool]
) -> T:
    """The result of some work. When the task that waits for it is cancelled, `end` is called until it is over.

    It may only be about to begin, so `end` is called again and again; when that fails nobody waits any longer. What was
    done before it could be ended is no less done: then it `is_done`, and its result is returned as if nobody had
    cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
        await _end_until_done(task, end)
        if not task.done() or task.cancelled() or task.exception() is not None or not is_done(task.result()):
            raise
    waiting = asyncio.current_task()
    if waiting is not None:
        waiting.uncancel()
    return task.result()


async def _end_until_done(task: asyncio.Future[Any], end: Callable[[], Awaitable[object]]) -> None:
    while not task.done():
        # To be cancelled once more is no reason to leave the work behind.
        with suppress(asyncio.CancelledError):
            try:
                await end()
            except CompactorError:
                return
            await asyncio.wait([task], timeout=_RETRY_SECONDS)
