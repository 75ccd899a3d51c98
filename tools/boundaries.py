"""How often a compaction comes at a task boundary, with and without waiting: `python -m tools.boundaries`.

A simulation on recorded sessions: tokens are a quarter of the characters, long outputs are cut as on appending, and a
compaction brings the fill down to its level's target. `docs/why/sessions.md` quotes it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.transcripts.reader import read_transcripts
from context_compactor.dialects.turns import Turn, split_turns
from context_compactor.evaluation.corpus import default_corpus
from context_compactor.facts.tasks import find_task_boundary
from context_compactor.settings import Settings
from context_compactor.tokens.counting import message_counter_for

_SOURCES = ("claude_code_entireio", "codex_agentv")
_BUDGETS = (48_000, 160_000)
_LOOKBACK = 60
_SOFT, _AGGRESSIVE = Settings().levels[:2]
# How far the fill may go without a boundary, and how many steps like the last one before that.
_WAITS = {
    "no wait": (0.0, 0),
    "up to aggressive": (_AGGRESSIVE.threshold, 0),
    "one step less": (_AGGRESSIVE.threshold, 1),
}


class Talk:
    """A recorded session: its turns, the tokens of each, and where the boundaries are, found when they are needed."""

    def __init__(self, messages: list[dict[str, object]]) -> None:
        dialect = find_dialect("auto", messages)
        parsed = dialect.parse(messages)
        counter = message_counter_for(None, dialect.name, lambda text: len(text) // 4 + 1)
        most = Settings().max_output_tokens
        tokens = iter([min(count, most) for count in counter.count_many(parsed)])
        self.turns: list[Turn] = split_turns(parsed)
        self.sizes = [sum(next(tokens) for _ in turn.messages) for turn in self.turns]
        self._known: dict[int, bool] = {}

    def is_boundary(self, at: int) -> bool:
        """Whether a task ends with this turn."""
        if at not in self._known:
            self._known[at] = bool(find_task_boundary(self.turns[max(0, at - _LOOKBACK) : at + 1]))
        return self._known[at]


def outcomes(talk: Talk, budget: int, limit: float, steps: int) -> Iterator[str]:
    """What each compaction of a session was."""
    fill = 0.0
    for at, size in enumerate(talk.sizes):
        step = size / budget
        fill += step
        if fill < _SOFT.threshold:
            continue
        if fill >= _AGGRESSIVE.threshold:
            yield "aggressive"
            fill = _AGGRESSIVE.target
        elif talk.is_boundary(at) or fill + steps * step >= limit:
            yield "at a boundary" if talk.is_boundary(at) else "elsewhere"
            fill = _SOFT.target


def main() -> int:
    """Print one line for each budget and way to wait."""
    corpus = default_corpus()
    paths = [Path(corpus) / f"{name}.jsonl.gz" for name in _SOURCES]
    if not all(path.is_file() for path in paths):
        print(f"no recorded sessions in {corpus}: nothing measured")
        return 0
    talks = [Talk(found.messages) for path in paths for found in read_transcripts(path)]
    print(f"{'budget':>8}  {'wait':18}{'at a boundary':>15}{'elsewhere':>11}{'aggressive':>12}")
    for budget in _BUDGETS:
        for name, wait in _WAITS.items():
            found = Counter(what for talk in talks for what in outcomes(talk, budget, *wait))
            cells = (found["at a boundary"], found["elsewhere"], found["aggressive"])
            print(f"{budget:>8,}  {name:18}{cells[0]:>15}{cells[1]:>11}{cells[2]:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
