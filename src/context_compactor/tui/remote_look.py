"""What is seen of the sessions of a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from context_compactor.api import SessionAnswer
from context_compactor.archive.search.hits import Hit
from context_compactor.classify.tier import Tier
from context_compactor.client import AsyncClient
from context_compactor.errors import BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.levels import DEFAULT_LEVELS, LevelRule
from context_compactor.report import Report
from context_compactor.session.diff import ContextDiff
from context_compactor.session.pages import HistoryPage
from context_compactor.session.recall import Page
from context_compactor.tui.courses import line_through, turn_count
from context_compactor.tui.remote_history import RemoteHistory, estimated, last_change
from context_compactor.tui.turn_lines import Decided
from context_compactor.tui.values import (
    CompactionLine,
    Course,
    OriginalPage,
    Piece,
    Plotted,
    Raw,
    SessionLine,
    Standing,
    TurnPage,
)

_QUICK_SECONDS = 20.0
"""The longest that looking at something may take; what a model has a part in may take as long as the client lets it."""
_TURNS_SECONDS = 30.0
# Who looks is to see soon that the server is away, and looks again anyway.
_RETRY_SECONDS = 0.5


class RemoteLook:
    """Looks at the sessions that a token may see on one server."""

    def __init__(self, url: str, token: str | None) -> None:
        self._client = AsyncClient(url, token, timeout=_QUICK_SECONDS, retry_seconds=_RETRY_SECONDS)
        self._histories: dict[str, RemoteHistory] = {}
        self._decided: dict[str, tuple[tuple[int, tuple[str, ...]], list[Report], Decided]] = {}
        self._courses: dict[str, tuple[str, float, Course]] = {}

    async def sessions(self) -> list[SessionLine]:
        """All sessions, by their ids."""
        return [_line(answer) async for answer in self._client.every_session()]

    async def course(self, line: SessionLine) -> Course:
        """How a session went. Its turns are counted at most twice a minute: that takes the whole context."""
        known = self._courses.get(line.id)
        if known is not None and known[0] == line.mark:
            return known[2]
        page = await self._client.compactions(line.id, limit=1)
        reports, made = await self._reports(line.id), page.totals
        if known is None or time.monotonic() - known[1] > _TURNS_SECONDS:
            context = await self._client.context(line.id, line.messages)
            counted_at, turns = time.monotonic(), await asyncio.to_thread(turn_count, context.messages, line.dialect)
        else:
            counted_at, turns = known[1], known[2].turns or 0
        course = Course(
            turns=turns,
            compactions=made.compactions,
            undone=made.undone,
            saved=made.tokens_saved,
            last_at=made.last_at,
            line=_spark(reports, line),
        )
        self._courses[line.id] = line.mark, counted_at, course
        return course

    async def session(self, session_id: str) -> Standing:
        """How a session stands."""
        found = await self._client.session(session_id)
        usage = found.usage
        left = usage.turns_left
        return Standing(
            line=_line(found),
            budget_tokens=usage.budget_tokens,
            bytes=usage.bytes,
            budget_bytes=usage.budget_bytes,
            margin=usage.margin,
            source=usage.source,
            tool_results=usage.tool_results,
            files_loaded=usage.files_loaded,
            growth=max(1, (usage.budget_tokens - usage.tokens) // left) if left else None,
            turns_left=left,
            sections=usage.sections,
            totals=found.totals,
            settings=found.settings,
        )

    async def turns(self, session_id: str, first: int = 0, count: int = 50) -> TurnPage:
        """Some turns of the history."""
        await self._reports(session_id)
        history = await self._history(session_id)
        async with history.lock:
            return await history.turns(first, count, self._decided[session_id][2])

    async def turn(self, session_id: str, at: int) -> list[Piece]:
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
            known = mark, active, await asyncio.to_thread(Decided, active)
            self._decided[session_id] = known
        return known[1]

    async def original(self, session_id: str, ref: str, page: int = 1) -> OriginalPage:
        """A page of an original."""
        found = await self._client.page(session_id, ref, page, form="conversation")
        return OriginalPage(
            Page(found.id, found.page or 1, found.pages or 1, found.first_line or 1, found.last_line or 1, found.text)
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

    async def plotted(self, session_id: str) -> Plotted:
        """Tokens over messages, reckoned from the history and the reports."""
        found = await self._client.session(session_id)
        reports = await self._reports(session_id)
        history = await self._history(session_id)
        async with history.lock:
            sums = await history.weigh()
            points, teeth = await asyncio.to_thread(estimated, sums, reports)
        return Plotted(points, teeth, found.usage.budget_tokens, _levels(found), is_estimate=True)

    async def facts(self, session_id: str, kind: str | None = None) -> list[Fact]:
        """What must outlive the text, by turn."""
        return await self._client.facts(session_id, kind)

    async def search(self, session_id: str, text: str, limit: int = 20) -> list[Hit]:
        """Lines of archived originals that answer a question."""
        return (await self._client.search(session_id, text, limit=limit, tokens=4_000)).hits

    async def diff(self, session_id: str) -> ContextDiff:
        """The context before and after the last compaction."""
        found = await self._client.session(session_id)
        reports = await self._reports(session_id)
        if not reports:
            raise BadSetting("diff: no compaction counts, so there is nothing to compare.")
        return await last_change(self._client, session_id, found.messages, reports[-1])

    async def settings(self, session_id: str) -> dict[str, Any]:
        """The settings that differ from the defaults, which is what a server tells."""
        return (await self._client.session(session_id)).settings

    async def steering(self, session_id: str) -> dict[int, Tier]:
        """What was decided about turns that stand in the context."""
        return await self._client.steering(session_id)


def _line(answer: SessionAnswer) -> SessionLine:
    return SessionLine(
        id=answer.id,
        updated_at=answer.updated_at,
        messages=answer.messages,
        tokens=answer.tokens,
        share=answer.share,
        level=answer.level,
        levels=_levels(answer),
        window=answer.window,
        model=answer.model or "",
        dialect=answer.dialect,
        mark=f"{answer.updated_at} {answer.messages} {answer.tokens}",
    )


def _levels(answer: SessionAnswer) -> tuple[LevelRule, ...]:
    """Where the levels begin: the session's own, else the usual ones. The server may have others of its own."""
    try:
        return msgspec.convert(answer.settings["levels"], tuple[LevelRule, ...])
    except (KeyError, msgspec.ValidationError):
        return DEFAULT_LEVELS


def _spark(reports: Sequence[Report], line: SessionLine) -> tuple[int, ...]:
    """The corners at equal distances: where they stand among the messages is not told."""
    step = max(line.messages // (len(reports) + 1), 1)
    corners = [(step * at, report.tokens_before, report.tokens_after) for at, report in enumerate(reports, 1)]
    return line_through(corners, max(line.messages, step * (len(reports) + 1)), line.tokens)
