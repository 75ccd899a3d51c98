"""The history of a session of a server, read page by page: its turns, an estimated plot, and the last diff."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from context_compactor.client import AsyncClient
from context_compactor.dialects.detection import likely_dialect
from context_compactor.dialects.messages import Message
from context_compactor.dialects.turns import Turn
from context_compactor.engine.report import Report
from context_compactor.json_values import json_text
from context_compactor.sessions.views import ContextDiff, side_by_side
from context_compactor.tokens.counting import MessageCounter, message_counter_for
from context_compactor.tui.sources.base import PlottedCompaction, Point, Raw, TextPiece, TurnLine, TurnPage
from context_compactor.tui.sources.turns import TurnDecisions, TurnIndex, turn_line, turn_pieces

_PAGE_MESSAGES = 1_000
"""Messages in one answer of a server."""
_MAX_POINTS = 600


class RemoteHistory:
    """What was found out about one session's turns. Used by one task at a time."""

    def __init__(self, client: AsyncClient, session_id: str, model: str | None) -> None:
        self.lock = asyncio.Lock()
        self._client = client
        self._id = session_id
        self._model = model
        self._index = TurnIndex()
        self._counter: MessageCounter | None = None
        self._sums: list[int] = []

    async def turns(self, first: int, count: int, decided: TurnDecisions) -> TurnPage:
        """Some turns; one step of what is not known yet is looked at."""
        start = self._index.wanted
        raws, total = await self._read(start, max(self._index.messages - start, 0) + _PAGE_MESSAGES // 2)
        if start + len(raws) > self._index.messages:
            await asyncio.to_thread(self._take, raws)
        found = await self._turns(first, count)
        lines = await asyncio.to_thread(self._lines, first, found, decided)
        return TurnPage(lines, len(self._index), self._index.messages >= total)

    async def turn(self, at: int) -> list[TextPiece]:
        """A turn in full."""
        return [piece for turn in await self._turns(at, 1) for piece in turn_pieces(turn)]

    async def _read(self, after: int, limit: int) -> tuple[list[Raw], int]:
        found: list[Raw] = []
        total = after
        while limit > 0:
            answer = await self._client.history(self._id, after + len(found), min(limit, _PAGE_MESSAGES))
            found += answer.messages
            total = answer.total
            limit -= len(answer.messages)
            if not answer.messages or answer.next is None:
                break
        return found, total

    async def _turns(self, first: int, count: int) -> list[Turn]:
        span = self._index.span(first, count)
        if not span.count:
            return []
        raws, _ = await self._read(span.start, span.end - span.start)
        return span.turns(self._parse(raws))

    def _parse(self, raws: Sequence[Raw]) -> list[Message]:
        return likely_dialect(raws).parse(raws) if raws else []

    def _take(self, raws: list[Raw]) -> None:
        self._index.take(self._parse(raws))

    def _lines(self, first: int, turns: list[Turn], decided: TurnDecisions) -> list[TurnLine]:
        counter = self._counting([turn.messages[0].raw for turn in turns])
        return [turn_line(first + at, turn, counter, decided) for at, turn in enumerate(turns)]

    def _counting(self, raws: Sequence[Raw]) -> MessageCounter:
        if self._counter is None:
            self._counter = message_counter_for(self._model, likely_dialect(raws).name)
        return self._counter

    # The plot

    async def weigh(self) -> list[int]:
        """The tokens of the first messages, had nothing ever been compacted, one sum for each."""
        while True:
            raws, total = await self._read(len(self._sums), _PAGE_MESSAGES)
            if raws:
                await asyncio.to_thread(self._add, raws)
            if len(self._sums) >= total or not raws:
                return self._sums

    def _add(self, raws: list[Raw]) -> None:
        before = self._sums[-1] if self._sums else 0
        for tokens in self._counting(raws).count_many(self._parse(raws)):
            before += tokens
            self._sums.append(before)


def estimate_plot(sums: Sequence[int], reports: Sequence[Report]) -> tuple[list[Point], list[PlottedCompaction]]:
    """Tokens over messages: a compaction stands where there are first as many tokens as its report says it found."""
    points: list[Point] = []
    made: list[PlottedCompaction] = []
    at, shift = 0, 0
    for report in reports:
        until = next(
            (each for each in range(at, len(sums)) if sums[each] + shift >= report.tokens_before), len(sums) - 1
        )
        points += [(each + 1, sums[each] + shift) for each in range(at, until + 1)]
        if until < 0:
            break
        shift = report.tokens_after - sums[until]
        made.append(PlottedCompaction(report.compaction_id, until + 1, report.tokens_before, report.tokens_after))
        points.append((until + 1, report.tokens_after))
        at = until + 1
    points += [(each + 1, sums[each] + shift) for each in range(at, len(sums))]
    step = max(-(-len(points) // _MAX_POINTS), 1)
    corners = {each.message for each in made}
    kept = [
        point for each, point in enumerate(points) if each % step == 0 or point[0] in corners or each == len(points) - 1
    ]
    return kept, made


# The diff


async def last_diff(client: AsyncClient, session_id: str, messages: int, report: Report) -> ContextDiff:
    """The context before and after the last compaction that counts, which is looked for among the contexts that were.

    From that compaction on every context is the beginning of the one there is now, and before it none is.
    """
    now = (await client.context(session_id, messages)).messages
    low, high = 0, messages
    after = now
    while low < high:
        middle = (low + high) // 2
        then = (await client.context(session_id, middle)).messages
        if then and now[: len(then)] == then:
            high, after = middle, then
        else:
            low = middle + 1
    before = (await client.context(session_id, high - 1)).messages if high else []
    last = (await client.history(session_id, high - 1, 1)).messages if high else []
    names = f"before {report.compaction_id}", f"after {report.compaction_id}"
    tokens = report.tokens_before, report.tokens_after
    return await asyncio.to_thread(_compare, names, [*before, *last], after, tokens)


def _compare(title: tuple[str, str], old: list[Raw], new: list[Raw], tokens: tuple[int, int]) -> ContextDiff:
    dialect = likely_dialect([*old, *new])
    before, after = ([(json_text(raw), raw) for raw in raws] for raws in (old, new))
    return side_by_side(title, before, after, dialect, tokens)
