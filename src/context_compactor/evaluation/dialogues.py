"""LoCoMo: long dialogues with questions; is all the evidence in what one search brings back?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.archive.originals import Original
from context_compactor.archive.search.search import Searcher
from context_compactor.evaluation.corpus import DIALOGUES, default_corpus, records
from context_compactor.evaluation.inputs import read_dialogues
from context_compactor.evaluation.messages import RawMessage, text_of
from context_compactor.evaluation.methods import COMPACTOR
from context_compactor.evaluation.output import ProgressListener, mean, show
from context_compactor.evaluation.pool import spread
from context_compactor.evaluation.results import DialogueScore
from context_compactor.evaluation.search import PlainIndex, Search, as_text
from context_compactor.tokens.counting import counter_for

KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}

SearchMaker = Callable[[list[RawMessage]], Search]


class DialogueQuestion(Struct, frozen=True):
    """One question of a dialogue and the words of the turns that answer it."""

    question: str
    kind: str
    evidence: tuple[str, ...]


def as_messages(record: dict[str, Any]) -> list[RawMessage]:
    """A dialogue as messages: the first speaker is the user, the second the assistant."""
    first = record["turns"][0]["speaker"]
    return [
        {"role": "user" if turn["speaker"] == first else "assistant", "content": _line(turn)}
        for turn in record["turns"]
    ]


def _line(turn: dict[str, Any]) -> str:
    return f"{turn['speaker']}: {turn['text']}"


def questions_of(record: dict[str, Any]) -> Iterator[DialogueQuestion]:
    """The questions of a dialogue whose evidence is known."""
    texts = {turn["dia_id"]: turn["text"] for turn in record["turns"]}
    for item in record["qa"]:
        ids = [part for entry in item["evidence"] for part in entry.replace(";", " ").split()]
        if ids and all(part in texts for part in ids):
            yield DialogueQuestion(item["question"], KINDS[item["category"]], tuple(texts[part] for part in ids))


def has_all(answer: str, question: DialogueQuestion) -> bool:
    """Whether all turns that answer a question are in the retrieved text."""
    return all(text in answer for text in question.evidence)


def plain(messages: list[RawMessage]) -> Search:
    """BM25 over turns with their neighbours."""
    return PlainIndex([text_of(message["content"]) for message in messages], neighbours=1).search


def archive(messages: list[RawMessage]) -> Search:
    """Our own search, over an archive that holds every turn."""
    turns = (Original(f"turn_{at:03}", "turn", "", 0, [message], "") for at, message in enumerate(messages, 1))
    return as_text(Searcher(turns, counter_for(None)).search)


def find_maker(name: str) -> SearchMaker:
    """`plain`, `archive`, or `module:function` that takes messages and gives a search."""
    if ":" not in name:
        return {"plain": plain, "archive": archive}[name]
    module, function = name.split(":")
    maker: SearchMaker = getattr(import_module(module), function)
    return maker


def evaluate(maker: SearchMaker, dialogues: Sequence[dict[str, Any]], tokens: int) -> list[tuple[str, bool]]:
    """For each question its kind and whether all its evidence was retrieved."""
    found: list[tuple[str, bool]] = []
    for record in dialogues:
        search = maker(as_messages(record))
        found.extend((item.kind, has_all(search(item.question, tokens), item)) for item in questions_of(record))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="quality.dialogues", description=__doc__)
    parser.add_argument("--search", default="plain", help="plain, archive, or module:function")
    parser.add_argument("--tokens", default="500,1000,2000,4000")
    parser.add_argument("--corpus", type=Path, default=default_corpus())
    options = parser.parse_args(arguments)
    dialogues = records(options.corpus, DIALOGUES)
    for tokens in map(int, options.tokens.split(",")):
        found = evaluate(find_maker(options.search), dialogues, tokens)
        parts = [f"{kind} {_share(found, kind):.1f}" for kind in KINDS.values()]
        show(f"{tokens:5} tokens: all {_share(found):.1f} of {len(found)} questions; {', '.join(parts)}")
    return 0


def _share(found: Sequence[tuple[str, bool]], kind: str = "") -> float:
    return 100 * (mean(float(hit) for name, hit in found if kind in ("", name)) or 0.0)


TOKENS = 2000
PLAIN = "plain search"

Hit = tuple[str, bool]


def ask_dialogues(
    paths: Sequence[str], methods: Sequence[str], jobs: int, watch: ProgressListener
) -> Iterator[DialogueScore]:
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


if __name__ == "__main__":
    sys.exit(main())
