"""Fill the target: share it between the story and the exact lines, write, count, and correct until it fits."""

from __future__ import annotations

from collections.abc import Callable

from context_compactor.apply.compose import Written
from context_compactor.engine.story import Story
from context_compactor.plan.planner import Draft
from context_compactor.tracing import traced

_ROUNDS = 6
_SLACK = 0.004
# How much of the free room the story may have, by how much of the history may stay: the less, the more of it tells what
# happened. Set by blind readings; see docs/why/story.md.
_SHARES = ((0.04, 0.85), (0.1, 0.62), (0.25, 0.3), (0.5, 0.2))


def story_share(kept: float) -> float:
    """The share of the story where so much of the history may stay; between two lines of the table in proportion."""
    (least, most), *rest = _SHARES
    if kept <= least:
        return most
    for size, share in rest:
        if kept <= size:
            return most + (share - most) * (kept - least) / (size - least)
        least, most = size, share
    return most


@traced("write")
def fill_target(draft: Draft, story: Story, target: int, kept: float, write: Callable[[], Written]) -> Written:
    """Tell and keep as much as fits just under the target; when nothing does, the smallest context there is.

    `kept` is the share of the history that may stay.
    """
    base = write()
    room = target - base.tokens
    if room <= 0:
        return base
    story.fill(room * story_share(kept))
    draft.cover(line.text for line in story.lines())
    draft.chooser.start()
    told = write()
    written = _fill_lines(draft, told, target, write)
    for _ in range(_ROUNDS):
        left = target - written.tokens
        if 0 <= left <= target * _SLACK * 2:
            break
        before = story.tokens
        if left > 0:
            story.fill(story.tokens + left)
        else:
            story.drop_last(-left + 1)
        if story.tokens == before:
            break
        written = write()
    while written.tokens > target and not (draft.chooser.is_empty and story.is_empty):
        draft.chooser.drop_last(max(written.tokens - target, 1))
        if draft.chooser.is_empty:
            story.drop_last(max(written.tokens - target, 1))
        written = write()
    return written


def _fill_lines(draft: Draft, base: Written, target: int, write: Callable[[], Written]) -> Written:
    """Take exact lines until the written context is just under the target."""
    chooser = draft.chooser
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
    while written.tokens > target and not chooser.is_empty:
        chooser.drop_last(max(written.tokens - target, 1))
        written = write()
    return written
