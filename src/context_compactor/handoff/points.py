"""The four measurement points of a handoff: how large answers, summaries and the state are, and how many calls it took.

The size of an answer is counted; what the sub-agent spent to find it, which its `tokens_used` tells, stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Literal, Self, get_args

from msgspec import Struct, structs

from context_compactor.errors import BadInput
from context_compactor.handoff.messages import HandoffResponse
from context_compactor.handoff.reading import Received
from context_compactor.handoff.state import OrchestratorState, read_stored, stored_text
from context_compactor.handoff.summary import count_tokens
from context_compactor.messages.jsontext import json_text

Point = Literal["response_tokens", "summary_tokens", "state_tokens", "tool_calls", "tokens_used"]
POINTS: tuple[Point, ...] = get_args(Point)


class Figures(Struct, frozen=True):
    """A measurement point in four numbers, all 0 when nothing was measured."""

    count: int
    median: float
    max: int
    total: int


class Points(Struct, frozen=True):
    """What was measured, in order: sizes in tokens for each answer, and the tool calls of each session."""

    response_tokens: tuple[int, ...] = ()
    summary_tokens: tuple[int, ...] = ()
    state_tokens: tuple[int, ...] = ()
    tool_calls: tuple[int, ...] = ()
    tokens_used: tuple[int, ...] = ()

    def answered(self, received: Received[HandoffResponse], state: OrchestratorState) -> Self:
        """With one more answer, and the state after it."""
        raw, used = received.raw, received.message.tokens_used
        size = count_tokens(raw if isinstance(raw, str) else json_text(raw))
        return structs.replace(
            self,
            response_tokens=(*self.response_tokens, size),
            summary_tokens=(*self.summary_tokens, count_tokens(received.message.context_summary)),
            state_tokens=(*self.state_tokens, state.tokens),
            tokens_used=self.tokens_used if used is None else (*self.tokens_used, used),
        )

    def called(self, times: int = 1) -> Self:
        """With more tool calls in the session at hand, which is the last one."""
        if times < 0:
            raise BadInput(f"tool calls: {times} is less than none")
        *before, now = self.tool_calls or (0,)
        return structs.replace(self, tool_calls=(*before, now + times))

    def figures(self, point: Point) -> Figures:
        """Count, median, largest and sum of one point."""
        if point not in POINTS:
            raise BadInput(f"there is no measurement point {str(point)[:60]!r}; use one of {', '.join(POINTS)}")
        values: tuple[int, ...] = getattr(self, point)
        return Figures(len(values), median(values), max(values), sum(values)) if values else Figures(0, 0, 0, 0)

    def to_json(self) -> str:
        """The points as JSON text."""
        return stored_text(self)


def join_points(sessions: Iterable[Points]) -> Points:
    """The points of several sessions as one, so that tool calls can be compared from session to session."""
    every = list(sessions)
    return Points(
        *(tuple(value for points in every for value in getattr(points, name)) for name in Points.__struct_fields__)
    )


def read_points(text: str | bytes) -> Points:
    """Points from their JSON text."""
    return read_stored(text, Points, "list of measurement points")
