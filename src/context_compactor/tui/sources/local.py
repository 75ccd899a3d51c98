"""Sessions of a store on this machine; blocking work is done in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec

from context_compactor.agents.deletion import delete_sessions, with_subagents
from context_compactor.archive.export import Exported
from context_compactor.archive.search.passages import Hit
from context_compactor.engine.plan import Plan
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.facts.fact import Fact
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.protocol import HandoffRequest
from context_compactor.sessions import views
from context_compactor.sessions.core import Clock, wall_clock
from context_compactor.sessions.lifecycle import change_settings, open_core
from context_compactor.sessions.project import local_owner, project_of
from context_compactor.sessions.recall import Restored
from context_compactor.sessions.schemas import struct_from
from context_compactor.sessions.session import Session
from context_compactor.sessions.token_series import FillRules, token_series
from context_compactor.sessions.views import ContextDiff, HistoryPage, history_page
from context_compactor.store.connect import connect
from context_compactor.store.sql_store import SqlStore
from context_compactor.store_urls import without_password
from context_compactor.tui.sources.base import (
    AppendResult,
    CompactionLine,
    ContextRequest,
    OriginalPage,
    PlottedCompaction,
    Raw,
    SessionLine,
    SessionStatus,
    SessionTrend,
    SourceChange,
    TextPiece,
    TokenPlot,
    TurnPage,
    end_on_cancel,
    poll_changes,
)
from context_compactor.tui.sources.local_sessions import LocalSession, LocalSessions
from context_compactor.tui.sources.status import revision_of, session_line, session_status, session_trend

T = TypeVar("T")


class ThreadedStore:
    """One store and its sessions. It is opened at the first look, and again when it was not there."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="context-compactor tui")
        self._lock = Lock()
        self._kept: SqlStore | None = None
        self._opened = LocalSessions(url, clock)

    async def close(self) -> None:
        """End what is under way and give back the store."""
        await self._run(self._opened.close)
        self._threads.shutdown(wait=False)
        if self._kept is not None:
            self._kept.close()

    def _store(self) -> SqlStore:
        with self._lock:
            if self._kept is None:
                self._kept = connect(self._url, create=False)
            return self._kept

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _use(self, session_id: str, work: Callable[[LocalSession], T]) -> T:
        return await self._run(lambda: self._opened.use(self._store().session(session_id), work))

    async def _use_twin(self, session_id: str, work: Callable[[Session, LocalSession], T]) -> T:
        return await self._run(lambda: self._opened.use_twin(self._store().session(session_id), work))

    async def _cancellable(
        self,
        session_id: str,
        work: Callable[[Session, LocalSession], T],
        is_done: Callable[[T], bool] = lambda _: False,
    ) -> T:
        """The same, ended with its task; when it `is_done` by then, its result counts."""

        async def end() -> None:
            self._opened.cancel(session_id)

        return await end_on_cancel(self._use_twin(session_id, work), end, is_done)


_POLL_SECONDS = 1.0
_PAGE_TOKENS = 2_000


class LocalSource(ThreadedStore):
    """The sessions of one store."""

    is_remote = False

    def __init__(self, url: str, *, clock: Clock = wall_clock, look_seconds: float = _POLL_SECONDS) -> None:
        super().__init__(url, clock)
        self._look_seconds = look_seconds
        self._trends: dict[str, tuple[str, SessionTrend]] = {}

    @property
    def name(self) -> str:
        """The address of the store, without a password."""
        return without_password(self._url)

    @property
    def checkpoint_file(self) -> str:
        """In the project, where the store has one."""
        project = project_of(self._url)
        return str(project.checkpoint_file) if project else ""

    # Looking

    async def sessions(self) -> list[SessionLine]:
        """All sessions, by their ids."""
        return await self._run(self._sessions)

    def _sessions(self) -> list[SessionLine]:
        rules = FillRules()
        return [session_line(row, rules) for row in self._store().sessions()]

    async def trend(self, line: SessionLine) -> SessionTrend:
        """How a session of the list went."""
        known = self._trends.get(line.id)
        if known is None or known[0] != line.mark:
            known = self._trends[line.id] = line.mark, await self._run(lambda: session_trend(self._store(), line.id))
        return known[1]

    async def session(self, session_id: str) -> SessionStatus:
        """How a session stands."""
        return await self._use(session_id, lambda opened: session_status(opened.core))

    async def turns(self, session_id: str, first: int = 0, count: int = 50) -> TurnPage:
        """Some turns of the history."""
        return await self._use(session_id, lambda opened: opened.turns(first, count))

    async def turn(self, session_id: str, at: int) -> list[TextPiece]:
        """A turn in full."""
        return await self._use(session_id, lambda opened: opened.turn(at))

    async def original(self, session_id: str, ref: str, page: int = 1) -> OriginalPage:
        """A page of an original."""
        return await self._use(session_id, lambda opened: _original_page(opened, ref, page))

    async def history(self, session_id: str, first: int | None = None, count: int = 50) -> HistoryPage:
        """Some messages of the history."""
        return await self._use(session_id, lambda opened: history_page(opened.core, first, count))

    async def context(self, session_id: str, at: int | None = None) -> list[Raw]:
        """What the model is shown. Looking changes nothing: a compaction that is due waits for who sends a request."""

        def look(opened: LocalSession) -> list[Raw]:
            core = opened.core
            return views.context(core, core.current_context() if at is None else views.context_at(core, at))

        return await self._use(session_id, look)

    async def compactions(self, session_id: str) -> list[CompactionLine]:
        """Every compaction, in order."""

        def look(opened: LocalSession) -> list[CompactionLine]:
            made = opened.core.context_reader.log_state().compactions
            return [
                CompactionLine(views.report_of(opened.core, each), each.created_at, each.is_active) for each in made
            ]

        return await self._use(session_id, look)

    async def plotted(self, session_id: str) -> TokenPlot:
        """Tokens over messages. The messages are weighed while others look at the session."""

        def look(_: Session, opened: LocalSession) -> TokenPlot:
            twin = opened.core.clone()
            with opened.weighing:
                opened.weighed.follow(twin)
                series = token_series(opened.weighed)
            compactions = [struct_from(PlottedCompaction, each) for each in series.compactions]
            budget = twin.budget(twin.counter(twin.dialect()))
            return TokenPlot(series.points, compactions, budget.tokens, twin.settings.levels)

        return await self._use_twin(session_id, look)

    async def facts(self, session_id: str, kind: str | None = None) -> list[Fact]:
        """What must outlive the text, by turn."""
        return await self._use(session_id, lambda opened: opened.session.facts(kind))

    async def search(self, session_id: str, text: str, limit: int = 20) -> list[Hit]:
        """Lines of archived originals that answer a question."""
        return await self._use(session_id, lambda opened: opened.session.search(text, limit=limit, tokens=4_000))

    async def diff(self, session_id: str) -> ContextDiff:
        """The context before and after the last compaction."""
        return await self._use(session_id, lambda opened: opened.session.diff())

    async def settings(self, session_id: str) -> dict[str, Any]:
        """Every setting in force but the store, whose address may be secret."""

        def look(opened: LocalSession) -> dict[str, Any]:
            plain: dict[str, Any] = msgspec.to_builtins(opened.core.settings)
            return {name: value for name, value in plain.items() if name != "store"}

        return await self._use(session_id, look)

    async def tiers(self, session_id: str) -> dict[int, Tier]:
        """What was decided about turns that stand in the context."""
        return await self._use(session_id, lambda opened: opened.session.tiers())

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
        """What a compaction would do now, turn by turn. One that nobody waits for any more comes to its own end."""
        return await self._use_twin(session_id, lambda twin, _: twin.plan(focus, level, target_tokens, tiers=tiers))

    async def set_tier(self, session_id: str, turn: int, tier: str) -> None:
        """Decide about a turn."""
        await self._use(session_id, lambda opened: opened.session.set_tier(turn, tier))

    async def clear_tier(self, session_id: str, turn: int | None = None) -> None:
        """Leave a turn to the engine again, or all of them."""
        await self._use(session_id, lambda opened: opened.session.clear_tier(turn))

    async def compact(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """Compact now; a task that is cancelled cancels the compaction, and then nothing is changed, or it was done."""
        return await self._cancellable(
            session_id,
            lambda twin, _: twin.compact(focus, level, target_tokens=target_tokens),
            is_done=lambda report: report.changed,
        )

    async def undo(self, session_id: str) -> Report | None:
        """Take the last compaction back."""
        return await self._use(session_id, lambda opened: opened.session.undo())

    async def redo(self, session_id: str) -> Report | None:
        """Take the last undo back."""
        return await self._use(session_id, lambda opened: opened.session.redo())

    async def restore(self, session_id: str, ref: str) -> Restored:
        """Put an original back into the context."""
        return await self._use(session_id, lambda opened: opened.session.restore(ref))

    async def checkpoint(self, session_id: str, note: str = "") -> str:
        """Where the work stands, which is written to the project as well."""
        return await self._use(session_id, lambda opened: render_checkpoint(opened.session.checkpoint(note)))

    async def handoff(self, session_id: str, phase: str = "write", task: str = "") -> HandoffRequest:
        """What the next phase is given."""
        return await self._cancellable(session_id, lambda twin, _: twin.handoff(phase, task), is_done=bool)

    async def create(self, session_id: str, *, window: int, model: str | None = None, dialect: str = "auto") -> None:
        """Make a session, and the store when there is none, or go on with the one that is there."""

        def make() -> None:
            core = open_core(
                session_id,
                window=window,
                store=self._url,
                dialect=dialect,
                model=model,
                settings=None,
                count_tokens=None,
                bus=None,
                clock=wall_clock,
                owner=local_owner(self._url, Path.cwd()),
            )
            Session(core, owns_store=True).close()

        await self._run(make)

    async def delete(self, session_id: str) -> None:
        """Delete a session and those of its sub-agents, with the files made from them."""

        def remove() -> None:
            store = self._store()
            gone = with_subagents(store, session_id)
            for each in gone:
                self._opened.close_session(each)
            delete_sessions(store, self._url, gone)

        await self._run(remove)

    async def append(
        self,
        session_id: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
    ) -> AppendResult:
        """Append messages, all or none. What follows from them is done while others look at the session."""
        watched = await self._use(session_id, lambda opened: opened.record(messages, usage))
        report = await self._cancellable(session_id, lambda twin, _: twin.answer(watched))
        line = await self._run(lambda: session_line(self._store().session(session_id), FillRules()))
        return AppendResult(line.messages, line.tokens, line.share, line.level, report)

    async def request(self, session_id: str) -> ContextRequest:
        """The context as it must be sent now. Only the first one after opening finds a compaction due: see `append`."""

        known = await self._use(session_id, lambda opened: len(opened.core.context_reader.log_state().compactions))
        await self._cancellable(session_id, lambda twin, opened: opened.check(twin))
        return await self._use(session_id, lambda opened: _context_request(opened, known))

    async def set_automatic(self, session_id: str, is_on: bool) -> bool:
        """Let the session compact by itself, or not."""
        changed = await self._run(lambda: change_settings(session_id, self._store(), {"automatic": is_on}))
        return changed.automatic

    async def export(self, session_id: str, folder: Path | None = None) -> Exported:
        """Write all archived originals as plain files."""
        return await self._use(session_id, lambda opened: opened.session.export(folder))

    # Living with it

    def watch(self) -> AsyncIterator[SourceChange]:
        """Look at the store again and again; one that went away or came back is a change as well."""

        async def look() -> dict[str, str]:
            return {row.id: revision_of(row) for row in await self._run(lambda: self._store().sessions())}

        return poll_changes(look, self._look_seconds)


def _context_request(opened: LocalSession, known: int) -> ContextRequest:
    core = opened.core
    made = [each for each in core.context_reader.log_state().compactions[known:] if each.is_active]
    return ContextRequest(
        views.context(core, core.current_context()), views.report_of(core, made[-1]) if made else None
    )


def _original_page(opened: LocalSession, ref: str, page: int) -> OriginalPage:
    found = opened.session.page(ref, page, _PAGE_TOKENS)
    original = opened.core.store.original(opened.core.id, ref)
    if original is None:
        return OriginalPage(found)
    return OriginalPage(found, f"{original.kind}: {original.summary}", original.target or "")
