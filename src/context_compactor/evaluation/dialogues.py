"""LoCoMo: long dialogues with questions; is all the evidence in what one search brings back?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compactor.archive.originals import Original
from context_compactor.archive.search.search import Searcher
from context_compactor.evaluation.inputs import read_dialogues
from context_compactor.evaluation.messages import RawMessage
from context_compactor.evaluation.methods import COMPACTOR
from context_compactor.evaluation.output import ProgressListener, mean
from context_compactor.evaluation.pool import spread
from context_compactor.evaluation.results import DialogueScore
from context_compactor.evaluation.search import PlainIndex, Search, as_text
from context_compactor.tokens.counting import counter_for

KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
TOKENS = 2000
PLAIN = "plain search"

Hit = tuple[str, bool]
"""The kind of a question, and whether all its evidence was retrieved."""


def ask_dialogues(
    paths: Sequence[str], methods: Sequence[str], jobs: int, watch: ProgressListener
) -> Iterator[DialogueScore]:
    """The questions of all dialogues put to each search."""
    records = [record for path in paths for record in read_dialogues(path)]
    searches = [COMPACTOR, PLAIN] if COMPACTOR in methods else [PLAIN]
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
    name, index = task
    record = records[index]
    lines = [f"{turn['speaker']}: {turn['text']}" for turn in record["turns"]]
    search = PlainIndex(lines, neighbours=1).search if name == PLAIN else _archive(lines, record)
    return [
        (kind, all(text in answer for text in evidence))
        for question, kind, evidence in _questions(record)
        for answer in [search(question, TOKENS)]
    ]


def _archive(lines: Sequence[str], record: dict[str, Any]) -> Search:
    """Our own search, over an archive that holds every turn; the first speaker is the user."""
    first = record["turns"][0]["speaker"]
    messages: list[RawMessage] = [
        {"role": "user" if turn["speaker"] == first else "assistant", "content": line}
        for turn, line in zip(record["turns"], lines, strict=True)
    ]
    turns = (Original(f"turn_{at:03}", "turn", "", 0, [message], "") for at, message in enumerate(messages, 1))
    return as_text(Searcher(turns, counter_for(None)).search)


def _questions(record: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """The questions whose evidence is known, each with its kind and the texts of the turns that answer it."""
    texts = {turn["dia_id"]: turn["text"] for turn in record["turns"]}
    for item in record["qa"]:
        ids = [part for entry in item["evidence"] for part in entry.replace(";", " ").split()]
        if ids and all(part in texts for part in ids):
            yield item["question"], KINDS[item["category"]], [texts[part] for part in ids]


def _score(search: str, hits: Sequence[Hit]) -> DialogueScore:
    kinds = {kind: mean(float(hit) for name, hit in hits if name == kind) for kind in KINDS.values()}
    there = {kind: share for kind, share in kinds.items() if share is not None}
    return DialogueScore(search, TOKENS, len(hits), mean(float(hit) for _, hit in hits) or 0.0, there)
