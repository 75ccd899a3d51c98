"""What a method loses, by shape, writer and age: `python -m context_compactor.evaluation.losses --budget 10`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from context_compactor.evaluation.corpus import AGENT_SOURCES, default_corpus
from context_compactor.evaluation.messages import count_messages, origin, read_messages
from context_compactor.evaluation.methods import COMPACTOR, budget_tokens, run_method, suits
from context_compactor.evaluation.output import show
from context_compactor.evaluation.pool import spread
from context_compactor.evaluation.samples import Sample, samples
from context_compactor.evaluation.scoring import Retention, measure_retention
from context_compactor.evaluation.wanted import CopiedSpan, RecalledName

_WRITERS_BY_RANK = ("user", "assistant", "call", "thinking", "result")
_SHAPES = (
    ("url", r"https?:"),
    ("path", r".*/"),
    ("number", r"\d+$"),
    ("hash", r"[0-9a-f-]+$"),
    ("file", r"[\w-]+(\.[\w-]+)*\.(go|py|ts|tsx|js|md|json|ya?ml|toml|sh|txt|html|css|mdx|cfg|rst)$"),
    ("dotted", r".*\."),
    ("snake", r"\w*_"),
    ("constant", r"[A-Z0-9_-]+$"),
)


class RetentionItem(Struct, frozen=True):
    """One wanted thing of one sample: its measure, text, places in H, and whether it is still there."""

    measure: str
    text: str
    origins: tuple[str, ...]
    last: float
    kept: bool


def items(sample: Sample, found: Retention) -> Iterator[RetentionItem]:
    """Everything a sample wants, with whether a context kept it."""
    wanted = sample.wanted
    groups: tuple[tuple[str, Sequence[RecalledName | CopiedSpan], Sequence[bool]], ...] = (
        ("FRR", wanted.names, found.names),
        ("BND", wanted.names, found.bound),
        ("CSR", wanted.spans, found.spans),
        ("EDT", wanted.edits, found.edits),
    )
    for measure, things, flags in groups:
        for thing, flag in zip(things, flags, strict=True):
            yield RetentionItem(measure, thing.text, thing.origins, thing.last, flag)
    for failure, flag in zip(wanted.failures, found.failures, strict=True):
        yield RetentionItem("FAIL", f"{failure.command} → {' … '.join(failure.lines)}", ("result",), 0.0, flag)


def most_important_writer(item: RetentionItem) -> str:
    """The dearest place a thing stood in: the user's words, the agent's, its calls, a result."""
    return min(item.origins or ("result",), key=lambda who: (_writer_rank(who.split()[0]), who))


def _writer_rank(kind: str) -> int:
    return _WRITERS_BY_RANK.index(kind) if kind in _WRITERS_BY_RANK else len(_WRITERS_BY_RANK)


def kind(item: RetentionItem) -> str:
    """The dearest place without the tool's name."""
    return most_important_writer(item).split()[0]


def shape(item: RetentionItem) -> str:
    """What an identifier looks like."""
    return next((name for name, pattern in _SHAPES if re.match(pattern, item.text)), "camel")


def age(item: RetentionItem) -> str:
    """The fifth of H in which it stood last."""
    return f"{min(4, int(item.last * 5)) * 20:>2}-{min(4, int(item.last * 5)) * 20 + 20} % of H"


def breakdown(found: Sequence[RetentionItem], measure: str, key: Callable[[RetentionItem], str]) -> list[str]:
    """A table: how many are wanted, kept and lost by a key."""
    chosen = [item for item in found if item.measure == measure]
    lost_all = sum(not item.kept for item in chosen) or 1
    rows = []
    for name in sorted({key(item) for item in chosen}):
        group = [item for item in chosen if key(item) == name]
        lost = sum(not item.kept for item in group)
        kept_share, loss_share = 100 - 100 * lost / len(group), 100 * lost / lost_all
        rows.append((lost, f"  {name:28}{len(group):7d}{kept_share:8.1f}{lost:7d}{loss_share:8.1f}"))
    heading = f"{measure} by {key.__name__:22}  wanted  kept %   lost  % of loss"
    return [heading, *(row for _, row in sorted(rows, reverse=True)[:14])]


def describe(sample: Sample, method: str, budget: str, most: int) -> Iterator[str]:
    """What a method lost of one sample, with the lines in which it stood."""
    made = run_method(method, sample, budget)
    found = measure_retention(sample.wanted, made.messages)
    size, limit = count_messages(made.messages), budget_tokens(sample, budget)
    yield f"# {sample.id}  {method} at {budget}: {size:,} of {limit:,} tokens, {made.seconds:.2f} s"
    yield str({name: value if value is None else round(100 * value) for name, value in found.shares().items()})
    missing = [item for item in items(sample, found) if not item.kept]
    for measure in ("FRR", "BND", "CSR", "EDT", "FAIL"):
        chosen = [item for item in missing if item.measure == measure]
        yield f"\n## {measure}: {len(chosen)} lost"
        yield from (row for item in chosen[:most] for row in _where(item, sample))
    yield "\n## calls that miss something"
    for call, there in zip(sample.wanted.calls, found.calls, strict=True):
        if not there:
            yield "  " + ", ".join(sample.wanted.names[index].text for index in call if not found.names[index])


def _where(item: RetentionItem, sample: Sample) -> Iterator[str]:
    yield f"  {item.text}   [{', '.join(item.origins[:4])}; {100 * item.last:.0f} %]"
    pieces = reversed(read_messages(sample.history)) if item.measure in ("FRR", "BND") else ()
    stood = ((piece, line) for piece in pieces for line in piece.text.splitlines() if item.text in line)
    for piece, line in islice(stood, 1):
        yield f"      {origin(piece)}: {line.strip()[:160]}"


def aggregate(method: str, chosen: list[Sample], budget: str, jobs: int) -> Iterator[str]:
    """Losses of a method over many samples, by kind, tool, shape and age."""
    tasks = [(method, index, budget) for index in range(len(chosen))]
    found = [item for group in spread(_items_of, chosen, tasks, jobs) for item in group]
    for measure in ("FRR", "BND", "CSR", "EDT"):
        for key in (kind, most_important_writer, age):
            yield from ("", *breakdown(found, measure, key))
    yield from ("", *breakdown(found, "FRR", shape))


def _items_of(chosen: list[Sample], task: tuple[str, int, str]) -> list[RetentionItem]:
    method, index, budget = task
    return list(
        items(
            chosen[index], measure_retention(chosen[index].wanted, run_method(method, chosen[index], budget).messages)
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _options(arguments)
    step = 1 if options.sample else options.every
    found = samples(options.corpus, options.sources.split(","), step, options.jobs)
    chosen = [item for item in found if suits(item, options.budget) and (options.sample or "") in item.id]
    if options.list:
        show(*(f"{sample.id}  {sample.cut.tokens:,} tokens" for sample in chosen))
    elif options.sample:
        for sample in chosen:
            show(*describe(sample, options.method, options.budget, options.most))
    else:
        show(*aggregate(options.method, chosen, options.budget, options.jobs))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quality.inspect", description=__doc__)
    parser.add_argument("--sample", help="part of a sample's id, for instance 0276a600@75")
    parser.add_argument("--method", default=COMPACTOR)
    parser.add_argument("--budget", default="10")
    parser.add_argument("--sources", default=",".join(AGENT_SOURCES))
    parser.add_argument("--every", type=int, default=3, help="take each N-th conversation")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=40, help="how many lost things of each kind to show")
    parser.add_argument("--list", action="store_true", help="only list the samples")
    parser.add_argument("--corpus", type=Path, default=default_corpus())
    return parser.parse_args(arguments)


KEYS = {"shape": shape, "writer": kind, "age": age}


class Loss(Struct, frozen=True):
    """Of the wanted identifiers of one group, how many a method kept at a budget. `by` is a key of `KEYS`."""

    method: str
    budget: str
    by: str
    group: str
    wanted: int
    kept: int


def losses(method: str, budget: str, sample: Sample, found: Retention) -> Iterator[Loss]:
    """The accounts of one sample, one entry for each identifier and key."""
    for item in items(sample, found):
        if item.measure == "FRR":
            yield from (Loss(method, budget, by, key(item), 1, int(item.kept)) for by, key in KEYS.items())


def sum_losses(entries: Iterable[Loss]) -> list[Loss]:
    """The accounts put together, those with most losses first within each method, budget and key."""
    sums: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    for entry in entries:
        key = (entry.method, entry.budget, entry.by, entry.group)
        wanted, kept = sums.get(key, (0, 0))
        sums[key] = (wanted + entry.wanted, kept + entry.kept)
    done = [Loss(*key, wanted, kept) for key, (wanted, kept) in sums.items()]
    places = {key: index for index, key in enumerate(dict.fromkeys(_sort_key(entry) for entry in done))}
    return sorted(done, key=lambda entry: (places[_sort_key(entry)], entry.kept - entry.wanted, entry.group))


def _sort_key(entry: Loss) -> tuple[str, str, str]:
    return entry.method, entry.budget, entry.by


if __name__ == "__main__":
    sys.exit(main())
