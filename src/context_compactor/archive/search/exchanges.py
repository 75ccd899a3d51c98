"""Exchanges: what the user asked, what was done about it, and what the agent concluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from context_compactor.archive.search.passages import SAID, Passage
from context_compactor.classify.kinds import Voice


class Exchanges:
    """The exchanges of a history, by the ids of its originals in their order."""

    def __init__(self, refs: Iterable[tuple[str, str]]) -> None:
        """Each original comes with who speaks in it: the user, the agent, or nobody."""
        self._number: dict[str, int] = {}
        self._asked: list[str] = [""]
        self._concluded: list[str] = [""]
        self._told: list[list[str]] = [[]]
        for ref, voice in refs:
            if voice == Voice.USER:
                self._asked.append(ref)
                self._concluded.append("")
                self._told.append([])
            elif voice == Voice.AGENT:
                self._concluded[-1] = ref
                self._told[-1].append(ref)
            self._number.setdefault(ref, len(self._asked) - 1)

    def of(self, ref: str) -> int:
        """The number of the exchange in which an original stands."""
        return self._number.get(ref, 0)

    def asked(self, number: int) -> str:
        """The id of the turn in which the user opened it; empty before the first."""
        return self._asked[number]

    def concluded(self, number: int) -> str:
        """The id of the turn with the agent's last words in it."""
        return self._concluded[number]

    def replied(self, number: int) -> str:
        """The id of the turn in which the user replied to that; empty when it is the last."""
        return self._asked[number + 1] if number + 1 < len(self._asked) else ""

    def told_around(self, refs: Iterable[str], most: int) -> list[str]:
        """Turns in which the agent said something, in the exchanges that hold most of some originals."""
        often = Counter(map(self.of, refs))
        return [ref for number, _ in often.most_common() for ref in self._told[number]][:most]

    def newest(self, count: int) -> list[str]:
        """The turns that opened the newest exchanges."""
        return [ref for ref in self._asked[-count:] if ref]

    def frame_of(self, refs: Iterable[str]) -> list[str]:
        """The turns that open and close the exchanges of some originals, and what the user replied."""
        frames = ((self.asked(each), self.concluded(each), self.replied(each)) for each in {*map(self.of, refs)})
        return [ref for frame in frames for ref in frame if ref]


def voices_of(passages: Iterable[Passage]) -> Iterator[tuple[str, str]]:
    """Each original with the first of its voices that says something; nothing where none does."""
    voices: dict[str, str] = {}
    for passage in passages:
        voices[passage.id] = voices.get(passage.id) or (passage.kind if passage.kind in SAID else "")
    yield from voices.items()
