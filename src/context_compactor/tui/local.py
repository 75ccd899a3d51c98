"""Sessions of a store on this machine, with the work done in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from context_compactor.archive.export import Exported
from context_compactor.archive.search.hits import Hit
from context_compactor.facts.fact import Fact
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.messages import HandoffRequest
from context_compactor.report import Report
from context_compactor.session import views
from context_compactor.session.core import Clock, wall_clock
from context_compactor.session.diff import ContextDiff
from context_compactor.session.fill import Rules
from context_compactor.session.saw import saw_of
from context_compactor.session.session import Session
from context_compactor.store.address import without_password
from context_compactor.store.connect import connect
from context_compactor.store.sql_store import SqlStore
from context_compactor.tui.courses import course_of
from context_compactor.tui.opened import Opened, OpenedSessions
from context_compactor.tui.source import (
    Appended,
    Change,
    CompactionLine,
    Course,
    OriginalPage,
    Piece,
    Plotted,
    PutBack,
    Raw,
    SessionLine,
    Standing,
    Tooth,
    TurnPage,
)
from context_compactor.tui.standing import line_of_row, mark_of, standing_of
from context_compactor.tui.watching import changes

T = TypeVar("T")

_LOOK_SECONDS = 1.0
_CANCEL_SECONDS = 0.05
_PAGE_TOKENS = 2_000


class LocalSource:
    """The sessions of one store. It is opened at the first look, and again when it was not there."""

    is_remote = False

    def __init__(self, url: str, *, clock: Clock = wall_clock, look_seconds: float = _LOOK_SECONDS) -> None:
        self._url = url
        self._look_seconds = look_seconds
        self._clock = clock
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="context-compactor tui")
        self._lock = Lock()
        self._kept: SqlStore | None = None
        self._opened = OpenedSessions(url, clock)
        self._courses: dict[str, tuple[str, Course]] = {}

    @property
    def name(self) -> str:
        """The address of the store, without a password."""
        return without_password(self._url)

    # Looking

    async def sessions(self) -> list[SessionLine]:
        """All sessions, by their ids."""
        return await self._run(self._sessions)

    def _sessions(self) -> list[SessionLine]:
        rules = Rules()
        return [line_of_row(row, rules) for row in self._store().sessions()]

    async def course(self, line: SessionLine) -> Course:
        """How a session of the list went."""
        known = self._courses.get(line.id)
        if known is None or known[0] != line.mark:
            known = self._courses[line.id] = line.mark, await self._run(lambda: course_of(self._store(), line.id))
        return known[1]

    async def session(self, session_id: str) -> Standing:
        """How a session stands."""
        return await self._use(session_id, lambda opened: standing_of(opened.core))

    async def turns(self, session_id: str, first: int = 0, count: int = 50) -> TurnPage:
        """Some turns of the history."""
        return await self._use(session_id, lambda opened: opened.turns(first, count))

    async def turn(self, session_id: str, at: int) -> list[Piece]:
        """A turn in full."""
        return await self._use(session_id, lambda opened: opened.turn(at))

    async def original(self, session_id: str, ref: str, page: int = 1) -> OriginalPage:
        """A page of an original."""
        return await self._use(session_id, lambda opened: _original(opened, ref, page))

    async def context(self, session_id: str, at: int | None = None) -> list[Raw]:
        """What the model is shown. Looking changes nothing: a compaction that is due waits for who sends a request."""

        def look(opened: Opened) -> list[Raw]:
            core = opened.core
            return views.context(core, core.seen() if at is None else views.seen_at(core, at))

        return await self._use(session_id, look)

    async def compactions(self, session_id: str) -> list[CompactionLine]:
        """Every compaction, in order."""

        def look(opened: Opened) -> list[CompactionLine]:
            made = opened.core.lens.sight().compactions
            return [
                CompactionLine(views.report_of(opened.core, each), each.created_at, each.is_active) for each in made
            ]

        return await self._use(session_id, look)

    async def plotted(self, session_id: str) -> Plotted:
        """Tokens over messages. The messages are weighed while others look at the session."""

        def look(_: Session, opened: Opened) -> Plotted:
            twin = opened.core.twin()
            with opened.weighing:
                opened.weighed.follow(twin)
                saw = saw_of(opened.weighed)
            teeth = [Tooth(each.id, each.message, each.before, each.after, each.is_active) for each in saw.teeth]
            budget = twin.budget(twin.counter(twin.dialect()))
            return Plotted(saw.points, teeth, budget.tokens, twin.settings.levels)

        return await self._beside(session_id, look)

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

        def look(opened: Opened) -> dict[str, Any]:
            plain: dict[str, Any] = msgspec.to_builtins(opened.core.settings)
            return {name: value for name, value in plain.items() if name != "store"}

        return await self._use(session_id, look)

    # Doing

    async def plan(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """What a compaction would do now."""
        return await self._beside(
            session_id,
            lambda twin, _: twin.compact(focus, level, dry_run=True, target_tokens=target_tokens),
            can_cancel=True,
        )

    async def compact(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """Compact now; a task that is cancelled cancels the compaction, and then nothing is changed."""
        return await self._beside(
            session_id,
            lambda twin, _: twin.compact(focus, level, target_tokens=target_tokens),
            can_cancel=True,
        )

    async def undo(self, session_id: str) -> Report | None:
        """Take the last compaction back."""
        return await self._use(session_id, lambda opened: opened.session.undo())

    async def redo(self, session_id: str) -> Report | None:
        """Take the last undo back."""
        return await self._use(session_id, lambda opened: opened.session.redo())

    async def restore(self, session_id: str, ref: str) -> PutBack:
        """Put an original back into the context."""
        restored = await self._use(session_id, lambda opened: opened.session.restore(ref))
        return PutBack(**structs.asdict(restored))

    async def checkpoint(self, session_id: str, note: str = "") -> str:
        """Where the work stands, which is written to the project as well."""
        return await self._use(session_id, lambda opened: render_checkpoint(opened.session.checkpoint(note)))

    async def handoff(self, session_id: str, phase: str = "write", task: str = "") -> HandoffRequest:
        """What the next phase is given."""
        return await self._beside(session_id, lambda twin, _: twin.handoff(phase, task), can_cancel=True)

    async def create(self, session_id: str, *, window: int, model: str | None = None, dialect: str = "auto") -> None:
        """Make a session, and the store when there is none, or go on with the one that is there."""

        def make() -> None:
            Session.open(session_id, window=window, store=self._url, model=model, dialect=dialect).close()

        await self._run(make)

    async def append(
        self,
        session_id: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append messages, all or none."""

        def work(opened: Opened) -> Appended:
            report = opened.session.append(messages, usage)
            line = line_of_row(opened.core.store.session(session_id), Rules())
            return Appended(line.messages, line.tokens, line.share, line.level, report)

        return await self._use(session_id, work, can_cancel=True)

    async def export(self, session_id: str, folder: Path) -> Exported:
        """Write all archived originals as plain files."""
        return await self._use(session_id, lambda opened: opened.session.export(folder))

    # Living with it

    def watch(self) -> AsyncIterator[Change]:
        """Look at the store again and again; one that went away or came back is a change as well."""

        async def look() -> dict[str, str]:
            return {row.id: mark_of(row) for row in await self._run(lambda: self._store().sessions())}

        return changes(look, self._look_seconds)

    async def close(self) -> None:
        """End what is under way and give back the store."""
        await self._run(self._opened.close)
        self._threads.shutdown(wait=False)
        if self._kept is not None:
            self._kept.close()

    # How it is done

    def _store(self) -> SqlStore:
        with self._lock:
            if self._kept is None:
                self._kept = connect(self._url, create=False)
            return self._kept

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _use(self, session_id: str, work: Callable[[Opened], T], *, can_cancel: bool = False) -> T:
        done = self._run(lambda: self._opened.use(self._store().session(session_id), work))
        return await (self._ending(session_id, done) if can_cancel else done)

    async def _beside(self, session_id: str, work: Callable[[Session, Opened], T], *, can_cancel: bool = False) -> T:
        done = self._run(lambda: self._opened.beside(self._store().session(session_id), work))
        return await (self._ending(session_id, done) if can_cancel else done)

    async def _ending(self, session_id: str, work: Any) -> Any:
        """Work whose task may be cancelled: then what is under way is ended, and waited for."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            while not task.done():
                self._opened.cancel(session_id)
                with suppress(asyncio.CancelledError):  # to be cancelled twice is no reason to leave the thread behind
                    await asyncio.wait([task], timeout=_CANCEL_SECONDS)
            task.exception()  # nobody waits for it any more
            raise


def _original(opened: Opened, ref: str, page: int) -> OriginalPage:
    found = opened.session.page(ref, page, _PAGE_TOKENS)
    shelved = opened.core.store.original(opened.core.id, ref)
    if shelved is None:
        return OriginalPage(found)
    return OriginalPage(found, f"{shelved.kind}: {shelved.summary}", shelved.target or "")
