"""What strategies propose: a source is one text of the history, an option one way to shorten it."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator, Sequence

from msgspec import Struct

from context_compactor.dialects.record import RecordEntry
from context_compactor.engine.tiers import Tier
from context_compactor.facts.kinds import Kind, Voice


class Block(Struct, frozen=True):
    """A line, or a few that belong together; `lines` says how many lines of the original they were."""

    text: str
    first: int
    lines: int


class Blocks:
    """The blocks of a text as places in it: thousands stand in a conversation, and each is cut out when it is read."""

    __slots__ = ("_places", "_text")

    def __init__(self, text: str, places: Iterable[int] = ()) -> None:
        """Four numbers for each block: where it begins and ends in the text, its first line and how many it has."""
        self._text = text
        self._places = array("I", places)

    def __len__(self) -> int:
        return len(self._places) // 4

    def __getitem__(self, at: int) -> Block:
        start, end, first, lines = self._places[4 * at : 4 * at + 4]
        return Block(self._text[start:end], first, lines)

    def __iter__(self) -> Iterator[Block]:
        text, numbers = self._text, iter(self._places)
        for start, end, first, lines in zip(numbers, numbers, numbers, numbers, strict=True):
            yield Block(text[start:end], first, lines)

    def first_line(self, at: int) -> int:
        """The line of the original at which a block begins."""
        return self._places[4 * at + 2]

    def text(self, at: int) -> str:
        """The words of one block."""
        return self._text[self._places[4 * at] : self._places[4 * at + 1]]

    def is_text_of(self, text: str, at: int) -> bool:
        """Whether a text is the words of one block."""
        start, end = self._places[4 * at], self._places[4 * at + 1]
        return end - start == len(text) and self._text.startswith(text, start)


def joined_blocks(blocks: Sequence[Block]) -> tuple[str, Blocks]:
    """Blocks as one text, a line break between two, and their places in it."""
    places: list[int] = []
    at = 0
    for block in blocks:
        places += (at, at + len(block.text), block.first, block.lines)
        at += len(block.text) + 1
    text = "\n".join(block.text for block in blocks)
    return text, Blocks(text, places)


class TextSource(Struct, frozen=True):
    """One text of the history with all that is known about it.

    A *loose* source belongs to no turn of the context: an excerpt of an earlier record, or a ledger.
    """

    number: int
    turn: int
    voice: Voice
    kind: Kind
    label: str
    ref: str
    text: str
    tokens: int
    blocks: Blocks
    lines: int
    exchange: int = 0
    path: str = ""
    weight: float = 1.0
    is_failure: bool = False
    superseded_by: int = 0
    duplicate_of: int = 0
    message: int = -1
    part: int = -1
    is_loose: bool = False
    is_clearable: bool = True
    entries: tuple[RecordEntry, ...] = ()
    """Of a ledger the entry that each block stands for."""


def token_rate(source: TextSource) -> float:
    """Tokens for each character of a source."""
    return source.tokens / max(len(source.text), 1)


# In the place of a block's number: a line of ours on how a call ended.
OUTCOME = -2


class Option(Struct, frozen=True):
    """One way to shorten one target.

    With `block` the text stands for that block of the source (a KEEP of some lines), as an `OUTCOME` in front of them;
    without it for the whole source. `weight` is the value of a token of this text, before what is already in the
    context is taken off. With `is_all` nothing else of the source may be chosen.
    """

    strategy: str
    source: int
    tier: Tier
    text: str
    reason: str
    weight: float = 1.0
    block: int = -1
    is_all: bool = False


class Offers:
    """The options that may be taken, as numbers: each is made anew when it is read, with its block's own words."""

    def __init__(self, sources: Sequence[TextSource]) -> None:
        self.sources = array("I")
        self.blocks = array("i")
        self.weights = array("d")
        self._sources = sources
        self._texts: dict[int, str] = {}
        """Texts that are not the words of their block."""
        self._kinds: list[tuple[str, Tier, str, bool]] = []
        self._kind_of = array("I")
        self._numbers: dict[tuple[str, Tier, str, bool], int] = {}
        self._known: dict[int, array[int]] = {}

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, at: int) -> Option:
        strategy, tier, reason, is_all = self._kinds[self._kind_of[at]]
        source, block = self.sources[at], self.blocks[at]
        return Option(strategy, source, tier, self.text(at), reason, self.weights[at], block, is_all)

    def __iter__(self) -> Iterator[Option]:
        return map(self.__getitem__, range(len(self)))

    def text(self, at: int) -> str:
        """The text of one option."""
        text = self._texts.get(at)
        return self._sources[self.sources[at]].blocks.text(self.blocks[at]) if text is None else text

    def texts(self) -> Iterator[str]:
        """The text of each option."""
        texts, sources = self._texts, self._sources
        for at, (source, block) in enumerate(zip(self.sources, self.blocks, strict=True)):
            yield texts[at] if at in texts else sources[source].blocks.text(block)

    def add(self, option: Option) -> None:
        """One more; of several for one target the dearest counts, in the place of the first."""
        known = self._known.get(option.source)
        if known is None:
            known = self._known[option.source] = array("i")
        target = option.block - OUTCOME
        if target >= len(known):
            known.extend([-1] * (max(len(self._sources[option.source].blocks) - OUTCOME, target + 1) - len(known)))
        at = known[target]
        if at >= 0 and option.weight <= self.weights[at]:
            return
        kind = (option.strategy, option.tier, option.reason, option.is_all)
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self._kinds)
            self._kinds.append(kind)
        if at < 0:
            at = known[target] = len(self.sources)
            self.sources.append(option.source)
            self.blocks.append(option.block)
            self.weights.append(option.weight)
            self._kind_of.append(number)
        else:
            self.weights[at] = option.weight
            self._kind_of[at] = number
            self._texts.pop(at, None)
        if option.block < 0 or not self._sources[option.source].blocks.is_text_of(option.text, option.block):
            self._texts[at] = option.text

    def without(self, sources: Container[int]) -> Offers:
        """The offers of all other sources."""
        kept = [at for at, source in enumerate(self.sources) if source not in sources]
        if len(kept) == len(self):
            return self
        fewer = Offers(self._sources)
        for name in ("sources", "blocks", "weights", "_kind_of"):
            numbers = getattr(self, name)
            getattr(fewer, name).extend(map(numbers.__getitem__, kept))
        fewer._kinds = self._kinds
        fewer._texts = {at: self._texts[old] for at, old in enumerate(kept) if old in self._texts}
        return fewer
