"""How far our token counts are from what providers reported.

    python benchmarks/count_error.py [FOLDER]

FOLDER holds conversations as gzip JSONL, with `usage` on their assistant messages. Three errors are printed, as a share
of the reported prompt: of the gauge anchored on the reply before, of an estimate that has learned from every reply so
far, and of one that has learned from the first five replies and is blind from then on.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import read_usage
from context_compactor.evaluation.counting import (
    BLIND_AFTER,
    CountedReply,
    anchored_errors,
    blind_errors,
    sent_before_each,
)
from context_compactor.tokens.calibration import Calibration
from context_compactor.tokens.counting import message_counter_for

FEWEST_REPLIES = 10
SOURCES = (("claude_code_entireio", "anthropic", None), ("mini_swe_deepseek_chat", "openai-chat", "deepseek-chat"))


def main() -> int:
    """Print the errors for each source of the corpus."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "shared/corpus/dev"
    if not folder.is_dir():
        show(f"There is no corpus in {folder}: nothing to compare with.")
        return 0
    for source, dialect, model in SOURCES:
        report(source, [list(runs(record, dialect, model)) for record in records(folder / f"{source}.jsonl.gz")])
    return 0


def report(source: str, conversations: Sequence[Sequence[tuple[str, Sequence[CountedReply]]]]) -> None:
    """One table: the three errors over all replies of a source."""
    every = [run for conversation in conversations for run in conversation]
    first = [conversation[0] for conversation in conversations if conversation]
    show(f"{source}: {len(first)} conversations, {sum(len(replies) for _, replies in every):,} replies")
    show_errors("anchored on the last reply", [error for _, replies in every for error in anchored_errors(replies)])
    show_errors("learning from each reply", [error for run in every for error in learning_errors(*run)])
    blind = [
        list(blind_errors(replies, Calibration(model))) for model, replies in first if len(replies) >= FEWEST_REPLIES
    ]
    show_errors(f"blind after {BLIND_AFTER} replies", [error for errors in blind for error in errors])
    show(f"  median conversation, blind        {median(map(median, blind)):8.2%}" if blind else "")


def runs(record: dict[str, Any], dialect: str, model: str | None) -> Iterator[tuple[str, list[CountedReply]]]:
    """For each stretch between two compactions: the model and, for each reply, our count and the provider's."""
    items = [{key: value for key, value in item.items() if key != "usage"} for item in record["messages"]]
    messages = find_dialect(dialect, items).parse(items)
    name = model or record["model"]
    counter = message_counter_for(name, dialect)
    counter.learn(messages)
    borders = sorted({0, len(messages), *(event["at"] for event in record.get("events") or ())})
    for start, end in pairwise(borders):
        usages = [read_usage(item.get("usage")) for item in record["messages"][start:end]]
        counts = sent_before_each(messages[start:end], counter)
        replies = [CountedReply(count, usage.prompt) for count, usage in zip(counts, usages, strict=True) if usage]
        if replies:
            yield name, replies


def learning_errors(model: str, replies: Sequence[CountedReply]) -> Iterator[float]:
    """The error before each reply of an estimate that has learned from all replies before it."""
    calibration = Calibration(model)
    for reply in replies:
        if calibration.replies:
            yield abs(calibration.estimate(reply.counted).tokens - reply.reported) / reply.reported
        calibration = calibration.learn(reply.counted, reply.reported)


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The conversations of one file, if it is there."""
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def show_errors(name: str, errors: Sequence[float]) -> None:
    """One line: median, mean and the value that nine of ten errors stay below."""
    if errors:
        worst = sorted(errors)[int(0.9 * (len(errors) - 1))]
        show(f"  {name:<32} median {median(errors):8.3%}   mean {mean(errors):8.3%}   90 % below {worst:8.3%}")


def show(line: str) -> None:
    """Print one line."""
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
