"""Hits: what a search returns, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from context_compactor.archive.search.exchanges import Exchanges
from context_compactor.archive.search.passages import TALK, Passage

GAP = "…"


class Hit(Struct, frozen=True):
    """Lines of an original that answer a search.

    `id` recalls the whole original. Lines count from 1 in what a reader of the original sees; `position` orders hits
    as the history does. `exchange` is the turn in which the user opened the exchange that they stand in.
    """

    id: str
    kind: str
    first_line: int
    last_line: int
    text: str
    score: float
    position: int
    exchange: str = ""


def make_hits(chosen: Sequence[tuple[Passage, float]], exchanges: Exchanges) -> list[Hit]:
    """Join passages that follow one another, given in their order with their scores; the best hits come first."""
    hits = [_hit([passage for passage, _ in run], max(score for _, score in run), exchanges) for run in _joined(chosen)]
    return sorted(hits, key=lambda hit: (-hit.score, hit.position))


def _joined(chosen: Sequence[tuple[Passage, float]]) -> Iterator[list[tuple[Passage, float]]]:
    joined = list(chosen[:1])
    for before, after in pairwise(chosen):
        if not before[0].goes_on_in(after[0]):
            yield joined
            joined = []
        joined.append(after)
    if joined:
        yield joined


def _hit(run: Sequence[Passage], score: float, exchanges: Exchanges) -> Hit:
    first, last = run[0], run[-1]
    parts = [first.text]
    for before, after in pairwise(run):
        parts += "\n" * (after.line - before.last_line), after.text
    asked = exchanges.asked(exchanges.of(first.id))
    text = "".join(parts)
    return Hit(first.id, first.kind, first.line, last.last_line, text, round(score, 4), first.position, asked)


def render_hits(hits: Sequence[Hit]) -> str:
    """Hits as text in the order of the history: each original's id and kind over its lines, with a mark at gaps."""
    blocks: list[str] = []
    open_head = ""
    for hit in sorted(hits, key=lambda hit: hit.position):
        head = heading(hit)
        blocks.append(f"{GAP}{hit.text}" if head == open_head else f"{head}{hit.text}")
        open_head = head
    return "\n".join(blocks)


def heading(shown: Hit | Passage) -> str:
    """What stands before the first lines of an original: talk goes on behind it, anything else under it."""
    return f"{shown.id}: " if shown.kind in TALK else f"{shown.id} {shown.kind}:\n"


def by_exchange(hits: Sequence[Hit]) -> list[Hit]:
    """Hits for a reader: those of the exchange with the best one first, each exchange from its beginning to its end."""
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(hit.exchange, []).append(hit)
    return [hit for group in groups.values() for hit in sorted(group, key=lambda hit: hit.position)]
