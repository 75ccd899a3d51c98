"""Sessions of a server: reading and changing them, polling, events, and being offline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from context_compactor.archive.export import Exported
from context_compactor.archive.search.passages import Hit
from context_compactor.client import AsyncClient
from context_compactor.engine.plan import Plan
from context_compactor.engine.report import Report
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.handoff.protocol import HandoffRequest
from context_compactor.sessions.recall import RecallPage, Restored
from context_compactor.sessions.schemas import SessionAnswer, struct_from
from context_compactor.sessions.views import ContextDiff, HistoryPage
from context_compactor.settings import DEFAULT_LEVELS, LevelRule
from context_compactor.store.events import Event
from context_compactor.tui.sources.base import (
    AppendResult,
    CompactionLine,
    ContextRequest,
    OriginalPage,
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
from context_compactor.tui.sources.remote_history import RemoteHistory, estimate_plot, last_diff
from context_compactor.tui.sources.status import token_line, turn_count
from context_compactor.tui.sources.turns import TurnDecisions

_QUICK_SECONDS = 20.0
"""The longest that looking at something may take; what a model has a part in may take as long as the client lets it."""
_TURNS_SECONDS = 30.0
# Who looks is to see soon that the server is away, and looks again anyway.
_RETRY_SECONDS = 0.5


class RemoteReader:
    """Looks at the sessions that a token may see on one server."""

    def __init__(self, url: str, token: str | None) -> None:
        client = AsyncClient(url, token, timeout=_QUICK_SECONDS, retry_seconds=_RETRY_SECONDS)
        self.facts, self.tiers, self.set_tier, self.clear_tier = (
            client.facts,
            client.tiers,
            client.set_tier,
            client.clear_tier,
        )
        self.undo, self.redo = client.undo, client.redo
        self._client = client
        self._histories: dict[str, RemoteHistory] = {}
        self._decided: dict[str, tuple[tuple[int, tuple[str, ...]], list[Report], TurnDecisions]] = {}
        self._trends: dict[str, tuple[str, float, SessionTrend]] = {}

    async def sessions(self) -> list[SessionLine]:
        """All sessions, by their ids."""
        return [_session_line(answer) async for answer in self._client.every_session()]

    async def trend(self, line: SessionLine) -> SessionTrend:
        """How a session went. Its turns are counted at most twice a minute: that takes the whole context."""
        known = self._trends.get(line.id)
        if known is not None and known[0] == line.mark:
            return known[2]
        page = await self._client.compactions(line.id, limit=1)
        reports, made = await self._reports(line.id), page.totals
        if known is None or time.monotonic() - known[1] > _TURNS_SECONDS:
            context = await self._client.context(line.id, line.messages)
            counted_at, turns = time.monotonic(), await asyncio.to_thread(turn_count, context.messages, line.dialect)
        else:
            counted_at, turns = known[1], known[2].turns or 0
        trend = SessionTrend(
            turns=turns,
            compactions=made.compactions,
            undone=made.undone,
            saved=made.tokens_saved,
            last_at=made.last_at,
            line=_token_line(reports, line),
        )
        self._trends[line.id] = line.mark, counted_at, trend
        return trend

    async def session(self, session_id: str) -> SessionStatus:
        """How a session stands."""
        found = await self._client.session(session_id)
        usage = found.usage
        left = usage.turns_left
        growth = max(1, (usage.budget_tokens - usage.tokens) // left) if left else None
        known = {"line": _session_line(found), "totals": found.totals, "settings": found.settings}
        return struct_from(SessionStatus, usage, growth=growth, **known)

    async def turns(self, session_id: str, first: int = 0, count: int = 50) -> TurnPage:
        """Some turns of the history."""
        await self._reports(session_id)
        history = await self._history(session_id)
        async with history.lock:
            return await history.turns(first, count, self._decided[session_id][2])

    async def turn(self, session_id: str, at: int) -> list[TextPiece]:
        """A turn in full."""
        history = await self._history(session_id)
        async with history.lock:
            return await history.turn(at)

    async def _history(self, session_id: str) -> RemoteHistory:
        known = self._histories.get(session_id)
        if known is None:
            model = (await self._client.session(session_id)).model
            known = self._histories.setdefault(session_id, RemoteHistory(self._client, session_id, model))
        return known

    async def _reports(self, session_id: str) -> list[Report]:
        """The reports of the compactions that count; read again when there are others."""
        totals = (await self._client.compactions(session_id, limit=1)).totals
        mark = totals.compactions, totals.undone_ids
        known = self._decided.get(session_id)
        if known is None or known[0] != mark:
            made = await self.compactions(session_id)
            active = [each.report for each in made if each.is_active]
            known = mark, active, await asyncio.to_thread(TurnDecisions, active)
            self._decided[session_id] = known
        return known[1]

    async def original(self, session_id: str, ref: str, page: int = 1) -> OriginalPage:
        """A page of an original."""
        found = await self._client.page(session_id, ref, page, form="conversation")
        return OriginalPage(
            RecallPage(
                found.id, found.page or 1, found.pages or 1, found.first_line or 1, found.last_line or 1, found.text
            )
        )

    async def history(self, session_id: str, first: int | None = None, count: int = 50) -> HistoryPage:
        """Some messages of the history."""
        if first is None:
            first = max((await self._client.session(session_id)).messages - count, 0)
        page = await self._client.history(session_id, first, count)
        return HistoryPage(page.messages, first, page.total, page.compactions)

    async def context(self, session_id: str, at: int | None = None) -> list[Raw]:
        """What the model is shown. Looking changes nothing."""
        if at is None:
            at = (await self._client.session(session_id)).messages
        return (await self._client.context(session_id, at)).messages

    async def compactions(self, session_id: str) -> list[CompactionLine]:
        """Every compaction, in order."""
        found: list[CompactionLine] = []
        after: str | None = None
        while True:
            page = await self._client.compactions(session_id, after)
            undone = set(page.totals.undone_ids)
            found += [
                CompactionLine(report, report.created_at, report.compaction_id not in undone)
                for report in page.compactions
            ]
            after = page.next
            if after is None:
                return found

    async def plotted(self, session_id: str) -> TokenPlot:
        """Tokens over messages, reckoned from the history and the reports."""
        found = await self._client.session(session_id)
        reports = await self._reports(session_id)
        history = await self._history(session_id)
        async with history.lock:
            sums = await history.weigh()
            points, compactions = await asyncio.to_thread(estimate_plot, sums, reports)
        return TokenPlot(points, compactions, found.usage.budget_tokens, _levels(found), is_estimate=True)

    async def search(self, session_id: str, text: str, limit: int = 20) -> list[Hit]:
        """Lines of archived originals that answer a question."""
        return (await self._client.search(session_id, text, limit=limit, tokens=4_000)).hits

    async def diff(self, session_id: str) -> ContextDiff:
        """The context before and after the last compaction."""
        found = await self._client.session(session_id)
        reports = await self._reports(session_id)
        if not reports:
            raise BadSetting("diff: no compaction counts, so there is nothing to compare.")
        return await last_diff(self._client, session_id, found.messages, reports[-1])

    async def settings(self, session_id: str) -> dict[str, Any]:
        """The settings that differ from the defaults, which is what a server tells."""
        return (await self._client.session(session_id)).settings


def _session_line(answer: SessionAnswer) -> SessionLine:
    mark = f"{answer.updated_at} {answer.messages} {answer.tokens}"
    return struct_from(SessionLine, answer, levels=_levels(answer), model=answer.model or "", mark=mark)


def _levels(answer: SessionAnswer) -> tuple[LevelRule, ...]:
    """Where the levels begin: the session's own, else the usual ones. The server may have others of its own."""
    try:
        return msgspec.convert(answer.settings["levels"], tuple[LevelRule, ...])
    except (KeyError, msgspec.ValidationError):
        return DEFAULT_LEVELS


def _token_line(reports: Sequence[Report], line: SessionLine) -> tuple[int, ...]:
    """The corners at equal distances: a server does not say where they stand among the messages."""
    step = max(line.messages // (len(reports) + 1), 1)
    corners = [(step * at, report.tokens_before, report.tokens_after) for at, report in enumerate(reports, 1)]
    return token_line(corners, max(line.messages, step * (len(reports) + 1)), line.tokens)


T = TypeVar("T")

_POLL_SECONDS = 2.0
_CLOSE_SECONDS = 1.0
_NOTIFIED_EVENTS = (
    "session.compacted",
    "compaction.failed",
    "compaction.refused",
    "compaction.undone",
    "item.restored",
    "session.deleted",
)


class RemoteSource(RemoteReader):
    """The sessions that a token may see on one server."""

    is_remote = True
    checkpoint_file = ""

    def __init__(self, url: str, token: str | None = None, *, look_seconds: float = _POLL_SECONDS) -> None:
        super().__init__(url, token)
        self._url = url
        self._look_seconds = look_seconds
        self._slow = AsyncClient(url, token)
        self.delete = self._slow.delete
        self._looking: asyncio.Future[list[SessionLine]] | None = None
        self._reported: dict[str, set[str]] = {}
        """Per session the compactions whose reports were given to whoever sends requests."""

    @property
    def name(self) -> str:
        """The address of the server."""
        return self._url

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
        """What a compaction would do now, turn by turn."""
        return await self._slow.plan(session_id, focus, level, target_tokens, tiers=tiers)

    async def compact(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """Compact now; a task that is cancelled has the server end it, and then nothing is changed, or it was done."""
        work = self._slow.compact(session_id, focus, level, target_tokens=target_tokens)
        answer = await self._cancellable(session_id, work, is_done=lambda answer: answer.compacted)
        self._note_reported(session_id, answer.report)
        return answer.report

    async def _cancellable(self, session_id: str, work: Coroutine[Any, Any, T], is_done: Callable[[T], bool]) -> T:
        return await end_on_cancel(work, lambda: self._client.cancel(session_id), is_done)

    async def restore(self, session_id: str, ref: str) -> Restored:
        """Put an original back into the context."""
        return Restored(**structs.asdict(await self._slow.restore(session_id, ref)))

    async def checkpoint(self, session_id: str, note: str = "") -> str:
        """Where the work stands, which the server keeps as well."""
        return (await self._client.write_checkpoint(session_id, note)).markdown

    async def handoff(self, session_id: str, phase: str = "write", task: str = "") -> HandoffRequest:
        """What the next phase is given."""
        return await self._cancellable(session_id, self._slow.handoff(session_id, phase, task), is_done=bool)

    async def create(self, session_id: str, *, window: int, model: str | None = None, dialect: str = "auto") -> None:
        """Make a session, or go on with the one that is there."""
        await self._client.create(session_id, window=window, model=model, dialect=dialect)

    async def append(
        self,
        session_id: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
    ) -> AppendResult:
        """Append messages, all or none."""
        done = await self._slow.append(session_id, messages, usage)
        self._note_reported(session_id, done.report)
        return struct_from(AppendResult, done)

    async def request(self, session_id: str) -> ContextRequest:
        """The context as it must be sent now. A compaction that a job has made meanwhile is reported."""
        known = self._reported.get(session_id)
        if known is None:
            known = {report.compaction_id for report in await self._reports(session_id)}
        messages = (await self._slow.context(session_id)).messages
        made = await self._reports(session_id)
        new = [report for report in made if report.compaction_id not in known]
        self._reported[session_id] = known | {report.compaction_id for report in new}
        return ContextRequest(messages, new[-1] if new else None)

    def _note_reported(self, session_id: str, report: Report | None) -> None:
        """The next request does not report it again."""
        if report is not None and session_id in self._reported:
            self._reported[session_id].add(report.compaction_id)

    async def set_automatic(self, session_id: str, is_on: bool) -> bool:
        """Let the session compact by itself, or not. Where its own settings are as usual, those of the server count."""
        found = await self._client.session(session_id)
        if found.window is None:
            raise BadSetting(f"automatic: {session_id!r:.80} has no window of its own. Try: create it with one.")
        settings = {**found.settings, "automatic": is_on}
        made = await self._client.create(session_id, window=found.window, settings=settings)
        return bool(made.settings.get("automatic", is_on))

    async def export(self, session_id: str, folder: Path | None = None) -> Exported:
        """A server keeps its archive: files can be written where its store is."""
        what = folder or "it"
        raise BadSetting(
            f"export: the archive of {session_id!r:.80} is on the server, so {what} cannot be written from here. "
            "Try: `compactor export` there, or recall originals one by one."
        )

    # Living with it

    async def watch(self) -> AsyncIterator[SourceChange]:
        """Look again and again, and hear events in between: those come at once."""
        changes: asyncio.Queue[SourceChange] = asyncio.Queue()
        tasks = [asyncio.create_task(work(changes.put)) for work in (self._look, self._follow)]
        try:
            while True:
                yield await changes.get()
        finally:
            for task in tasks:
                task.cancel()

    async def _look(self, put: Callable[[SourceChange], Awaitable[None]]) -> None:
        async def look() -> dict[str, str]:
            self._looking = asyncio.ensure_future(self.sessions())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
            return {line.id: line.mark for line in await asyncio.shield(self._looking)}

        async for change in poll_changes(look, self._look_seconds):
            await put(change)

    async def _follow(self, put: Callable[[SourceChange], Awaitable[None]]) -> None:
        while True:
            try:
                async with aclosing(self._client.events(types=_NOTIFIED_EVENTS)) as events:
                    async for event in events:
                        await put(SourceChange(frozenset({event.session_id}), message=_event_text(event)))
            except CompactorError:
                pass  # who looks says what is wrong
            await asyncio.sleep(self._look_seconds)

    async def close(self) -> None:
        """Close the connections, behind the look that is under way: a verb that ends later would keep its own."""
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=_CLOSE_SECONDS)
        await self._client.close()
        await self._slow.close()


def _event_text(event: Event) -> str:
    payload = event.payload
    if event.type == "session.compacted":
        before, after = payload.get("tokens_before", 0), payload.get("tokens_after", 0)
        return f"{event.session_id}: compacted, {before:,} → {after:,} tokens"
    if event.type in ("compaction.failed", "compaction.refused"):
        return f"{event.session_id}: not compacted, {payload.get('reason', '')}"
    return ""
