"""One turn of a plan in full: every decision about it, and what was said."""

from __future__ import annotations

from context_compactor.errors import CompactorError
from context_compactor.plan.plan import Decision, TurnPlan
from context_compactor.tui.reading import Sheet, sheets_of
from context_compactor.tui.source import Source
from context_compactor.tui.values import Piece

_MOST_STEPS = 50


class DecidedReading:
    """A turn under the decisions about it."""

    def __init__(self, source: Source, session_id: str, turn: TurnPlan) -> None:
        self.title = f"turn {turn.turn:,}: {turn.tier}" if turn.turn > 0 else "instructions"
        self._source, self._id, self._turn = source, session_id, turn
        self._sheets: list[Sheet] = []

    async def sheet(self, number: int) -> Sheet:
        """A page, of what is read once."""
        if not self._sheets:
            said = await _said(self._source, self._id, self._turn.turn)
            decided = Piece("what would become of it", "\n\n".join(map(_in_full, self._turn.decisions)))
            self._sheets = sheets_of([decided, *said])
        return self._sheets[number - 1]


def _in_full(decision: Decision) -> str:
    lines = [
        decision.target,
        f"  tier    {decision.tier}, {decision.tokens_before:,} → {decision.tokens_after:,} tokens",
        f"  worth   {decision.relevance:g} of 1",
        f"  how     {decision.strategy}",
        f"  why     {decision.reason}",
    ]
    return "\n".join([*lines, f"  recall  {decision.ref}"] if decision.ref else lines)


async def _said(source: Source, session_id: str, number: int) -> list[Piece]:
    try:
        at = await find_turn(source, session_id, number)
        return [] if at is None else await source.turn(session_id, at)
    except CompactorError as error:
        return [Piece("what was said cannot be read now", str(error))]


async def find_turn(source: Source, session_id: str, number: int) -> int | None:
    """Where in the history a turn of this number stands; instructions have no number, and stand between the others."""
    if number <= 0:
        return None
    while not (known := await source.turns(session_id, 0, 0)).is_all and known.total <= number:
        pass
    at = min(number, known.total) - 1
    for _ in range(_MOST_STEPS):
        lines = (await source.turns(session_id, max(at, 0), 1)).turns
        if not lines:
            return None
        if lines[0].number == number:
            return at
        at += number - lines[0].number if lines[0].number > 0 else 1
    return None
