"""Fill the target: choose by estimate, write, count, and correct until the context fits and little room is left."""

from __future__ import annotations

from collections.abc import Callable

from context_compactor.apply.compose import Written
from context_compactor.plan.planner import Draft
from context_compactor.tracing import traced

_ROUNDS = 6
_SLACK = 0.004


@traced("write")
def fill_target(draft: Draft, target: int, write: Callable[[], Written]) -> Written:
    """Take pieces until the written context is just under the target; when it cannot be, the smallest one there is."""
    chooser = draft.chooser
    chooser.start()
    base = write()
    room = target - base.tokens
    if room <= 0:
        return base
    chooser.fill(room)
    written = write()
    for _ in range(_ROUNDS):
        if target * (1 - _SLACK) <= written.tokens <= target:
            return written
        rate = max(written.tokens - base.tokens, 1) / max(chooser.tokens, 1.0)
        aim = (room - target * _SLACK / 2) / rate
        before = len(chooser.chosen)
        if chooser.tokens > aim:
            chooser.drop_last(chooser.tokens - aim)
        else:
            chooser.fill(aim)
        if len(chooser.chosen) == before:
            break
        written = write()
    while written.tokens > target and chooser.chosen:
        chooser.drop_last(max(written.tokens - target, 1))
        written = write()
    return written
