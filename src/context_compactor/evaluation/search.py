"""A plain search over a history: passages ranked by BM25. What an archive has to beat."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from context_compactor.archive.search.passages import Hit, render_hits
from context_compactor.evaluation.messages import RawMessage, count_text, read_messages

Search = Callable[[str, int], str]

_WORD = re.compile(r"[a-z0-9]+")
_PASSAGE = 800
_K1, _B = 1.2, 0.75


def passages(messages: Sequence[RawMessage]) -> list[str]:
    """The texts of a history in passages of whole lines, about 800 characters each."""
    return [passage for piece in read_messages(messages) if piece.kind != "system" for passage in _cut(piece.text)]


def _cut(text: str) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for line in text.splitlines():
        for start in range(0, len(line), _PASSAGE) or (0,):
            lines.append(line[start : start + _PASSAGE])
            size += len(lines[-1]) + 1
            if size >= _PASSAGE:
                yield "\n".join(lines)
                lines, size = [], 0
    if size:
        yield "\n".join(lines)


class PlainIndex:
    """BM25 over passages. Each is ranked, and comes, together with its `neighbours` on both sides."""

    def __init__(self, texts: Sequence[str], neighbours: int = 0) -> None:
        self._texts = texts
        self._neighbours = neighbours
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._lengths: list[int] = []
        for number in range(len(texts)):
            counts = Counter(word for near in self._around(number) for word in words(texts[near]))
            self._lengths.append(sum(counts.values()))
            for word, count in counts.items():
                self._postings.setdefault(word, []).append((number, count))
        self._mean = sum(self._lengths) / len(texts) if texts else 0.0

    def _around(self, number: int) -> range:
        return range(max(0, number - self._neighbours), min(len(self._texts), number + self._neighbours + 1))

    def rank(self, query: str) -> list[int]:
        """Passage numbers, best first; passages that share no word with the query are left out."""
        scores: dict[int, float] = {}
        for word in set(words(query)):
            found = self._postings.get(word, [])
            rarity = math.log(1 + (len(self._texts) - len(found) + 0.5) / (len(found) + 0.5))
            for number, count in found:
                norm = _K1 * (1 - _B + _B * self._lengths[number] / self._mean)
                scores[number] = scores.get(number, 0.0) + rarity * count * (_K1 + 1) / (count + norm)
        return sorted(scores, key=lambda number: (-scores[number], number))

    def search(self, query: str, tokens: int) -> str:
        """The best passages that fit into so many tokens, in their old order."""
        taken: set[int] = set()
        for number in self.rank(query):
            fresh = [near for near in self._around(number) if near not in taken]
            cost = sum(count_text(self._texts[near] + "\n") for near in fresh)
            if cost > tokens:
                break
            tokens -= cost
            taken.update(fresh)
        return "\n".join(self._texts[number] for number in sorted(taken))


def words(text: str) -> list[str]:
    """The words of a text, lower case, identifiers in their parts."""
    return _WORD.findall(text.lower())


def as_text(search: Callable[..., list[Hit]]) -> Search:
    """An archive's own search with its hits as text; nothing is asked of it where nothing is left to ask."""
    return lambda text, tokens: render_hits(search(text, tokens=tokens)) if text.strip() else ""


def plain_search(messages: Sequence[RawMessage]) -> Search:
    """A BM25 search over a history."""
    return PlainIndex(passages(messages)).search
