"""What the user asks to be kept in view: a wish in words, looked for in every line.

A word says the more the fewer lines it stands in: of "the expiry of the token" it is `expiry` that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import log


class Focus:
    """The words of a wish. `split` takes a text apart into words that can be compared."""

    def __init__(self, wish: str, split: Callable[[str], Iterable[str]]) -> None:
        self._wanted = frozenset(split(wish))
        self._split = split

    def shares(self, texts: Sequence[str]) -> list[float]:
        """For each text how much of the wish it is about, from 0 to 1; less when many others are about it too."""
        if not self._wanted:
            return [0.0] * len(texts)
        found = [self._wanted.intersection(self._split(text)) for text in texts]
        counts = Counter(word for words in found for word in words)
        most = log(len(texts) + 1)
        rarity = {word: log((len(texts) + 1) / count) / most for word, count in counts.items()}
        whole = sum(rarity.values())
        return [sum(rarity[word] ** 2 for word in words) / whole if words else 0.0 for words in found]
