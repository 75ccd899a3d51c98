"""Token counters: exact where a vocabulary is known, a scaled estimate elsewhere, or any function of yours."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from operator import index
from typing import TYPE_CHECKING

from context_compactor.errors import BadSetting
from context_compactor.measure.families import family_of
from context_compactor.protocols import TokenCounter

if TYPE_CHECKING:
    from splintr import AnyTokenizer

_CONTROL = "<|"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with lone surrogates replaced, since no tokenizer and no UTF-8 encoder takes them."""
    if text.isascii() or not _LONE_SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class VocabularyCounter:
    """Counts with a bundled vocabulary, times `scale` where it stands in for one that is not public."""

    def __init__(self, vocabulary: str, *, scale: float = 1.0, margin: float = 0.0) -> None:
        self.vocabulary = vocabulary
        self.scale = scale
        self.margin = margin
        self.name = vocabulary if scale == 1.0 else f"{vocabulary} x {scale:g}"

    def count(self, text: str) -> int:
        """The tokens of one text."""
        return self.count_many((text,))[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text; one call is cheaper than many."""
        try:
            counts = _load(self.vocabulary)(texts)
        except UnicodeEncodeError:
            counts = _load(self.vocabulary)([clean(text) for text in texts])
        return counts if self.scale == 1.0 else [int(n * self.scale + 0.5) for n in counts]


class FunctionCounter:
    """Counts with any function from a text to a number of tokens."""

    def __init__(self, function: Callable[[str], int], *, margin: float = 0.0) -> None:
        self._function = function
        self.margin = margin
        self.name = getattr(function, "__name__", type(function).__name__)

    def count(self, text: str) -> int:
        """The tokens of one text."""
        try:
            tokens = self._function(text)
        except Exception as problem:  # whatever a user's function raises, the user must learn which function it was
            raise BadSetting(
                f"count_tokens: {self.name} failed on a text of {len(text):,} characters with "
                f"{type(problem).__name__}: {problem}"
            ) from problem
        return self._checked(tokens)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text."""
        return [self.count(text) for text in texts]

    def _checked(self, tokens: object) -> int:
        wrong = BadSetting(
            f"count_tokens: {self.name} must return a whole number of tokens, 0 or more; it returned {tokens!r}"
        )
        if isinstance(tokens, bool) or not hasattr(tokens, "__index__"):
            raise wrong
        number = index(tokens)
        if number < 0:
            raise wrong
        return number


def counter_for(model: str | None) -> TokenCounter:
    """The counter that fits a model's name best; its `margin` says how far to trust it."""
    family = family_of(model)
    return VocabularyCounter(family.vocabulary, scale=family.scale, margin=family.margin)


@cache
def _load(vocabulary: str) -> Callable[[Sequence[str]], list[int]]:
    from splintr import Tokenizer

    tokenizer = Tokenizer.from_pretrained(vocabulary)
    if all(token.startswith(_CONTROL) for token in tokenizer.special_tokens()):
        return lambda texts: _count_flat(tokenizer, texts)
    return lambda texts: [len(tokenizer.encode_ordinary(text)) for text in texts]


def _count_flat(tokenizer: AnyTokenizer, texts: Sequence[str]) -> list[int]:
    """The fastest way to count a batch; it reads control tokens in the text as such, so those texts go again."""
    ends = array("Q")
    ends.frombytes(tokenizer.encode_batch_flat(texts)[1])
    counts = [end - start for start, end in pairwise(ends)]
    for at, text in enumerate(texts):
        if _CONTROL in text:
            counts[at] = len(tokenizer.encode_ordinary(text))
    return counts
