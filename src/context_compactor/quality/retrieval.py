"""LoCoMo on dialogue files: our archive's search beside a plain one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compactor.quality.dialogues import KINDS, archive, evaluate, plain
from context_compactor.quality.gather import read_dialogues
from context_compactor.quality.methods import COMPACTOR
from context_compactor.quality.outcome import DialogueScore
from context_compactor.quality.pool import spread
from context_compactor.quality.tables import mean
from context_compactor.quality.watch import Watch

TOKENS = 2000
PLAIN = "plain search"

Hit = tuple[str, bool]


def ask_dialogues(paths: Sequence[str], methods: Sequence[str], jobs: int, watch: Watch) -> Iterator[DialogueScore]:
    """The questions of all dialogues put to each search."""
    records = [record for path in paths for record in read_dialogues(path)]
    searches = [search for search in (COMPACTOR, PLAIN) if search == PLAIN or search in methods]
    tasks = [(search, index) for search in searches for index in range(len(records))]
    if not tasks:
        return
    watch.start("Asking", len(tasks))
    found: dict[str, list[Hit]] = {}
    for (search, _), hits in zip(tasks, spread(_ask, records, tasks, jobs), strict=True):
        found.setdefault(search, []).extend(hits)
        watch.step()
    yield from (_score(search, hits) for search, hits in found.items())


def _ask(records: list[dict[str, Any]], task: tuple[str, int]) -> list[Hit]:
    search, index = task
    return evaluate(plain if search == PLAIN else archive, [records[index]], TOKENS)


def _score(search: str, hits: Sequence[Hit]) -> DialogueScore:
    kinds = {kind: mean(float(hit) for name, hit in hits if name == kind) for kind in KINDS.values()}
    there = {kind: share for kind, share in kinds.items() if share is not None}
    return DialogueScore(search, TOKENS, len(hits), mean(float(hit) for _, hit in hits) or 0.0, there)
