"""Baselines that write lists: a bare list of names, and a rough ledger of failures and one line per identifier.

They use the harness' own patterns, so they show how far a measure can be gamed, not what a product reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from context_compactor.quality.failures import failures
from context_compactor.quality.identifiers import longest_identifiers
from context_compactor.quality.reading import Piece, RawMessage, read_messages
from context_compactor.quality.sizes import PER_MESSAGE, count_text

_LINE = 300


def name_list(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """The identifiers the agent used most, nothing else, as many as fit."""
    return _as_message(_fitting((name for name, _ in _most_used(read_messages(messages))), " ", budget))


def ledger(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """Failures, then for each identifier, most used first, one line in which it stood."""
    history = read_messages(messages)
    failed = (f"{failure.command}: {' ... '.join(failure.lines)}" for failure in failures(history))
    return _as_message(_fitting(_unique([*failed, *_lines(history)]), "\n", budget))


def _unique(lines: Iterable[str]) -> Iterator[str]:
    return iter(dict.fromkeys(lines))


def _most_used(history: Sequence[Piece]) -> list[tuple[str, int]]:
    """Identifiers by how many pieces hold them, the agent's own far dearer than a tool's."""
    counts: Counter[str] = Counter()
    for piece in history:
        weight = 1 if piece.kind == "result" else 20
        for forms in longest_identifiers(piece.text):
            counts[forms[0]] += weight
    return counts.most_common()


def _lines(history: Sequence[Piece]) -> Iterator[str]:
    """For each identifier the longest line, up to a limit, in which it stood."""
    best: dict[str, str] = {}
    for piece in history:
        for line in piece.text.splitlines():
            short = line.strip()[:_LINE]
            for forms in longest_identifiers(short):
                if len(best.get(forms[0], "")) < len(short):
                    best[forms[0]] = short
    return (best[name] for name, _ in _most_used(history) if name in best)


def _fitting(parts: Iterable[str], joint: str, budget: int) -> str:
    room, kept = budget - PER_MESSAGE, list[str]()
    for part in parts:
        room -= count_text(joint + part)
        if room < 0:
            break
        kept.append(part)
    return joint.join(kept)


def _as_message(text: str) -> list[RawMessage]:
    return [{"role": "user", "content": text}]
