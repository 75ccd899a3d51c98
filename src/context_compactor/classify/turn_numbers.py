"""Turns by their numbers, as people write them: `12`, `12,15`, `3-9`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from context_compactor.classify.tier import Tier
from context_compactor.errors import BadSetting

TURNS = "12,15 or 3-9"
"""What may be written, for a help text."""
_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_MOST = 10_000


def read_turns(name: str, turns: str | None) -> list[int]:
    """The numbers of turns that were written under a name; none when there is nothing."""
    found: list[int] = []
    for part in turns.split(",") if turns is not None else ():
        run = _RUN.fullmatch(part.strip())
        first, last = (int(run[1]), int(run[2] or run[1])) if run else (1, 0)
        if not first <= last < first + _MOST - len(found):
            raise BadSetting(f"{name}: {part!r:.40} is no turn, or too many of them. Try: {TURNS}.")
        found.extend(range(first, last + 1))
    return found


def write_turns(turns: Iterable[int]) -> str:
    """The same the other way round, in order and with runs where there are any."""
    runs: list[list[int]] = []
    for turn in sorted(set(turns)):
        if runs and turn == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], turn]
        else:
            runs.append([turn])
    return ",".join("-".join(map(str, run)) for run in runs)


def read_steers(given: Mapping[Tier, str | None], prefix: str = "") -> dict[int, Tier]:
    """Tiers by turn, written as turns by tier; a turn has one tier. Names in errors begin with the prefix."""
    found: dict[int, Tier] = {}
    for tier, turns in given.items():
        for turn in read_turns(f"{prefix}{tier}", turns):
            if found.setdefault(turn, tier) is not tier:
                raise BadSetting(f"{prefix}{tier}: turn {turn} is named by {prefix}{found[turn]} as well")
    return found
