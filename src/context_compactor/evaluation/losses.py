"""Which of the names that the agent went on to use a method loses: by shape, by writer and by age."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from context_compactor.evaluation.expected import RecalledName, Sample
from context_compactor.evaluation.scoring import Retention

_WRITERS = ("user", "assistant", "call", "thinking", "result")  # the most important first
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


class Loss(Struct, frozen=True):
    """Of the wanted identifiers of one group, how many a method kept at a budget. `by` is a key of `KEYS`."""

    method: str
    budget: str
    by: str
    group: str
    wanted: int
    kept: int


def losses(method: str, budget: str, sample: Sample, found: Retention) -> Iterator[Loss]:
    """One entry for each identifier of a sample and each key."""
    for name, kept in zip(sample.wanted.names, found.names, strict=True):
        yield from (Loss(method, budget, by, key(name), 1, int(kept)) for by, key in KEYS.items())


def _shape(name: RecalledName) -> str:
    return next((shape for shape, pattern in _SHAPES if re.match(pattern, name.text)), "camel")


def _writer(name: RecalledName) -> str:
    """The most important of those who wrote it: the user, the agent, its calls, a result."""
    kinds = {origin.split()[0] for origin in name.origins} or {"result"}
    return min(kinds, key=lambda kind: (_WRITERS.index(kind) if kind in _WRITERS else len(_WRITERS), kind))


def _age(name: RecalledName) -> str:
    """The fifth of H in which it stood last."""
    first = min(4, int(name.last * 5)) * 20
    return f"{first:>2}-{first + 20} % of H"


KEYS = {"shape": _shape, "writer": _writer, "age": _age}


def sum_losses(entries: Iterable[Loss]) -> list[Loss]:
    """The entries added up, those with most losses first within each method, budget and key."""
    sums: dict[tuple[str, str, str], dict[str, tuple[int, int]]] = {}
    for entry in entries:
        groups = sums.setdefault((entry.method, entry.budget, entry.by), {})
        wanted, kept = groups.get(entry.group, (0, 0))
        groups[entry.group] = (wanted + entry.wanted, kept + entry.kept)
    return [
        Loss(*key, group, wanted, kept)
        for key, groups in sums.items()
        for group, (wanted, kept) in sorted(groups.items(), key=lambda item: (item[1][1] - item[1][0], item[0]))
    ]
