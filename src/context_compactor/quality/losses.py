"""Where identifiers were lost: by what they look like, by who wrote them, by how long ago."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from context_compactor.quality.inspect import age, items, kind, shape
from context_compactor.quality.measures import Kept
from context_compactor.quality.prepared import Sample

KEYS = {"shape": shape, "writer": kind, "age": age}


class Loss(Struct, frozen=True):
    """Of the wanted identifiers of one group, how many a method kept at a budget. `by` is a key of `KEYS`."""

    method: str
    budget: str
    by: str
    group: str
    wanted: int
    kept: int


def losses(method: str, budget: str, sample: Sample, found: Kept) -> Iterator[Loss]:
    """The accounts of one sample, one entry for each identifier and key."""
    for item in items(sample, found):
        if item.measure == "FRR":
            yield from (Loss(method, budget, by, key(item), 1, int(item.kept)) for by, key in KEYS.items())


def added(entries: Iterable[Loss]) -> list[Loss]:
    """The accounts put together, those with most losses first within each method, budget and key."""
    sums: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    for entry in entries:
        key = (entry.method, entry.budget, entry.by, entry.group)
        wanted, kept = sums.get(key, (0, 0))
        sums[key] = (wanted + entry.wanted, kept + entry.kept)
    done = [Loss(*key, wanted, kept) for key, (wanted, kept) in sums.items()]
    places = {key: index for index, key in enumerate(dict.fromkeys(_place(entry) for entry in done))}
    return sorted(done, key=lambda entry: (places[_place(entry)], entry.kept - entry.wanted, entry.group))


def _place(entry: Loss) -> tuple[str, str, str]:
    return entry.method, entry.budget, entry.by
