"""Names in a text: the paths, symbols, ids and numbers by which an agent takes up its work again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# One run of characters that may be a name: a path, a symbol, a version, a hash. ASCII alone is twice as fast, and a
# path in a sentence of Chinese is found by itself.
CHUNK = re.compile(r"[A-Za-z0-9_./~@$-]{4,}")
_NAME_SIGN = re.compile(r"[/_.0-9]|[a-z][A-Z]|[A-Z]{4}|[a-z]-[a-z]")
_PART = re.compile(r"[A-Za-z0-9_-]{4,}")
_NUMBER = re.compile(r"[\d.\-]+")
_BLANK = re.compile(r"\s")
_EDGES = "./~@$-"
_LONGEST = 400
# Longer texts are looked at in parts, so that not all of their words are in memory at once.
_LONG_TEXT = 100_000

# What kind of name it is tells how likely it is to be needed again: a constant, a file, a symbol are; a hyphenated
# word, an acronym or a number hardly ever is.
_SHAPES: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"[\d.\-]+|v\d.*"), 0.1),
    (re.compile(r"[0-9a-f-]{7,}"), 0.25),
    (re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+"), 2.0),
    (re.compile(r".*[\w-]\.[A-Za-z_]\w*"), 1.3),
    (re.compile(r".*/.*[_.0-9A-Z].*"), 0.8),
    (re.compile(r"\w*_\w+"), 1.0),
    (re.compile(r"\w*[a-z][A-Z]\w*"), 0.9),
)
_OTHER_SHAPE = 0.1


class NameTable:
    """Numbers the names of one conversation in the order in which they are met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}
        self.alone = bytearray()
        """For each name 1 when it stood by itself, 0 when only as a part of another."""
        self._chunks = _Chunks(self._number, self.alone)
        self._found = self._chunks.__getitem__

    def __len__(self) -> int:
        return len(self.names)

    def ids(self, text: str) -> set[int]:
        """The names in a text, each once."""
        if len(text) > _LONG_TEXT:
            return set().union(*(set().union(*map(self._found, CHUNK.findall(part))) for part in _parts_of(text)))
        # The loop over a conversation's words is left to C: this is the hottest line of a compaction.
        return set().union(*map(self._found, dict.fromkeys(CHUNK.findall(text))))

    def known(self, text: str) -> set[int]:
        """The names in a text in the writing in which the conversation had them; no new number is given."""
        chunks = dict.fromkeys(CHUNK.findall(text))
        return set().union(*(self._chunks[chunk] for chunk in chunks if chunk in self._chunks))

    def met_in(self, text: str) -> set[int]:
        """The names in a text that have a number, in any writing; nothing is kept of the others."""
        ids, met = {name: number for number, name in enumerate(self.names)}, set[int]()
        for part in _parts_of(text):
            for chunk in set(CHUNK.findall(part)):
                if not chunk.isidentifier():
                    found = self._chunks.get(chunk)
                    met.update((ids[name] for name in names_in(chunk) if name in ids) if found is None else found)
                elif chunk in ids:
                    met.add(ids[chunk])
        return met

    def forget_words(self) -> None:
        """Let go of what can be told without looking into it again, when all texts are read: words, and names that
        have no others in them. No number is given any more."""
        kept = {chunk: found for chunk, found in self._chunks.items() if found and not chunk.isidentifier()}
        self._chunks.clear()
        self._chunks.update(kept)
        self._ids.clear()

    def _number(self, name: str) -> int:
        number = self._ids.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
            self.alone.append(0)
        return number


def _parts_of(text: str) -> Iterator[str]:
    """A long text in parts that end at a blank or between two lines: no name goes over either."""
    start = 0
    while start < len(text):
        blank = _BLANK.search(text, start + _LONG_TEXT)
        end = blank.start() if blank else len(text)
        yield text[start:end]
        start = end


class _Chunks(dict[str, tuple[int, ...]]):
    """The names of every chunk met so far; a new one is looked into once."""

    def __init__(self, number: Callable[[str], int], alone: bytearray) -> None:
        super().__init__()
        self._number = number
        self._alone = alone

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        found = tuple(self._number(name) for name in names_in(chunk))
        self[chunk] = found
        if found:
            self._alone[found[0]] = 1
        return found


def names_in(chunk: str) -> list[str]:
    """A chunk that is a name, and the names it is made of. A path goes by its end: agents write it in many ways."""
    if not _NAME_SIGN.search(chunk) or len(chunk) > _LONGEST:
        return []
    whole = chunk.strip(_EDGES)
    if not _is_name(whole):
        return []
    if whole.isidentifier():
        return [whole]
    steps = [step for step in whole.split("/") if step]
    found = ["/".join(steps[-2:]), *(step for step in steps if _is_name(step))]
    return list(dict.fromkeys((*found, *(part for part in _PART.findall(whole) if _is_name(part)))))


def _is_name(text: str) -> bool:
    if len(text) < 4 or not _NAME_SIGN.search(text):
        return False
    return not _NUMBER.fullmatch(text) or len(text.replace(".", "")) >= 4


def shape_worth(name: str) -> float:
    """How likely a name of this shape is to be used again, beside others."""
    return next((worth for shape, worth in _SHAPES if shape.fullmatch(name)), _OTHER_SHAPE)
