"""Sessions of a store on this machine, with the work done in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from context_compactor.agents.deleting import delete_all, with_subagents
from context_compactor.archive.export import Exported
from context_compactor.archive.search.hits import Hit
from context_compactor.classify.tier import Tier
from context_compactor.facts.fact import Fact
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.messages import HandoffRequest
from context_compactor.plan.plan import Plan
from context_compactor.report import Report
from context_compactor.session import views
from context_compactor.session.core import Clock, wall_clock
from context_compactor.session.diff import ContextDiff
from context_compactor.session.fill import Rules
from context_compactor.session.opening import change_settings, open_core
from context_compactor.session.pages import HistoryPage, history_page
from context_compactor.session.project import local_owner, project_of
from context_compactor.session.saw import saw_of
from context_compactor.session.session import Session
from context_compactor.store.address import without_password
from context_compactor.tui.courses import course_of
from context_compactor.tui.local_work import LocalWork
from context_compactor.tui.opened import Opened
from context_compactor.tui.standing import line_of_row, mark_of, standing_of
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
    Tooth,
    TurnPage,
)
from context_compactor.tui.watching import changes

_LOOK_SECONDS = 1.0
_PAGE_TOKENS = 2_000


class LocalSource(LocalWork):
    """The sessions of one store."""

    is_remote = False

    def __init__(self, url: str, *, clock: Clock = wall_clock, look_seconds: float = _LOOK_SECONDS) -> None:
        super().__init__(url, clock)
        self._look_seconds = look_seconds
        self._courses: dict[str, tuple[str, Course]] = {}

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

    async def history(self, session_id: str, first: int | None = None, count: int = 50) -> HistoryPage:
        """Some messages of the history."""
        return await self._use(session_id, lambda opened: history_page(opened.core, first, count))

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

    async def steering(self, session_id: str) -> dict[int, Tier]:
        """What was decided about turns that stand in the context."""
        return await self._use(session_id, lambda opened: opened.session.steering())

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
        """What a compaction would do now, turn by turn. One that nobody waits for any more comes to its own end."""
        return await self._beside(session_id, lambda twin, _: twin.plan(focus, level, target_tokens, steers=steers))

    async def steer(self, session_id: str, turn: int, tier: str) -> None:
        """Decide about a turn."""
        await self._use(session_id, lambda opened: opened.session.steer(turn, tier))

    async def unsteer(self, session_id: str, turn: int | None = None) -> None:
        """Leave a turn to the engine again, or all of them."""
        await self._use(session_id, lambda opened: opened.session.unsteer(turn))

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

    async def restore(self, session_id: str, ref: str) -> PutBack:
        """Put an original back into the context."""
        restored = await self._use(session_id, lambda opened: opened.session.restore(ref))
        return PutBack(**structs.asdict(restored))

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
                self._opened.let_go(each)
            delete_all(store, self._url, gone)

        await self._run(remove)

    async def append(
        self,
        session_id: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append messages, all or none. What follows from them is done while others look at the session."""
        watched = await self._use(session_id, lambda opened: opened.record(messages, usage))
        report = await self._cancellable(session_id, lambda twin, _: twin.answer(watched))
        line = await self._run(lambda: line_of_row(self._store().session(session_id), Rules()))
        return Appended(line.messages, line.tokens, line.share, line.level, report)

    async def request(self, session_id: str) -> Request:
        """The context as it must be sent now. Only the first one after opening finds a compaction due: see `append`."""

        known = await self._use(session_id, lambda opened: len(opened.core.lens.sight().compactions))
        await self._cancellable(session_id, lambda twin, opened: opened.check(twin))
        return await self._use(session_id, lambda opened: _request(opened, known))

    async def set_automatic(self, session_id: str, is_on: bool) -> bool:
        """Let the session compact by itself, or not."""
        changed = await self._run(lambda: change_settings(session_id, self._store(), {"automatic": is_on}))
        return changed.automatic

    async def export(self, session_id: str, folder: Path | None = None) -> Exported:
        """Write all archived originals as plain files."""
        return await self._use(session_id, lambda opened: opened.session.export(folder))

    # Living with it

    def watch(self) -> AsyncIterator[Change]:
        """Look at the store again and again; one that went away or came back is a change as well."""

        async def look() -> dict[str, str]:
            return {row.id: mark_of(row) for row in await self._run(lambda: self._store().sessions())}

        return changes(look, self._look_seconds)


def _request(opened: Opened, known: int) -> Request:
    core = opened.core
    made = [each for each in core.lens.sight().compactions[known:] if each.is_active]
    return Request(views.context(core, core.seen()), views.report_of(core, made[-1]) if made else None)


def _original(opened: Opened, ref: str, page: int) -> OriginalPage:
    found = opened.session.page(ref, page, _PAGE_TOKENS)
    shelved = opened.core.store.original(opened.core.id, ref)
    if shelved is None:
        return OriginalPage(found)
    return OriginalPage(found, f"{shelved.kind}: {shelved.summary}", shelved.target or "")
