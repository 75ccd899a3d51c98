"""What the screens need to know and can have done, and nothing about where it comes from.

Every verb is awaited and leaves the event loop free. What goes wrong is a `CompactorError` that says what to try.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from context_compactor.archive.export import Exported
from context_compactor.archive.search.hits import Hit
from context_compactor.classify.tier import Tier
from context_compactor.facts.fact import Fact
from context_compactor.handoff.messages import HandoffRequest
from context_compactor.plan.plan import Plan
from context_compactor.report import Report
from context_compactor.session.diff import ContextDiff
from context_compactor.session.pages import HistoryPage
from context_compactor.tui.values import (
    Appended,
    Change,
    CompactionLine,
    Course,
    OriginalPage,
    Piece,
    Plotted,
    PutBack,
    Raw,
    Request,
    SessionLine,
    Standing,
    TurnPage,
)


class Source(Protocol):
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

    async def history(self, session_id: str, first: int | None = None, count: int = 50) -> HistoryPage:
        """So many messages of the history from this index on, or the last ones, with the compactions among them."""
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

    async def steering(self, session_id: str) -> dict[int, Tier]:
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
        steers: Mapping[int, str] | None = None,
    ) -> Plan:
        """What a compaction would do now, turn by turn. Nothing is changed, and no model is asked.

        With `steers`, tiers by turn, it is as if these had been decided and no others.
        """
        ...

    async def steer(self, session_id: str, turn: int, tier: str) -> None:
        """Decide about a turn: every compaction gives it this tier, until that is taken back."""
        ...

    async def unsteer(self, session_id: str, turn: int | None = None) -> None:
        """Leave a turn to the engine again, or all of them."""
        ...

    async def compact(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """Compact now. Cancel the task to cancel the compaction: then nothing is changed.

        One that was done before it could be cancelled is told as it is.
        """
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

    async def delete(self, session_id: str) -> None:
        """Delete a session for good; in a store on this machine also those of its sub-agents."""
        ...

    async def append(
        self,
        session_id: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append messages, all or none."""
        ...

    async def request(self, session_id: str) -> Request:
        """The context as it must be sent now. It is compacted first when that is due and nobody has looked yet."""
        ...

    async def set_automatic(self, session_id: str, is_on: bool) -> bool:
        """Let the session compact by itself, or not, for whoever opens it from now on; whether it does then."""
        ...

    async def export(self, session_id: str, folder: Path | None = None) -> Exported:
        """Write all archived originals as plain files, to the project's readable archive or below another folder."""
        ...

    # Living with it

    def watch(self) -> AsyncIterator[Change]:
        """Changes as they are seen, without end; what goes wrong meanwhile is a change as well."""
        ...

    async def close(self) -> None:
        """Give back what is held."""
        ...
