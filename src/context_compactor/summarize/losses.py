"""Facts that a text does not tell, in its own words or in enough of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from context_compactor.classify.telling import stands_in
from context_compactor.facts.fact import Fact
from context_compactor.summarize.evidence import words_of
from context_compactor.summarize.exact import paths_in, urls_in

_OPEN = ("active", "blocked", "open")
_START = 40
_TOLD = 0.6
_FAILURE_TOLD = 0.5


class Lost(Struct, frozen=True):
    """A fact that nobody tells any more, and what is lost with it."""

    code: str
    fact: Fact


def is_open_item(fact: Fact) -> bool:
    """Whether a fact says that something is not finished."""
    return fact.kind == "blocker" or (fact.kind == "todo" and fact.status in _OPEN)


def find_losses(facts: Iterable[Fact], text: str) -> list[Lost]:
    """The failures, decisions, unfinished points and paths that a text does not tell."""
    told = Told(text.split("\n"))
    return [lost for fact in facts if (lost := _lost(fact, told))]


def _lost(fact: Fact, told: Told) -> Lost | None:
    if fact.kind == "failure":
        return None if told.failure(fact) else Lost("lost_failure", fact)
    if fact.kind == "decision" and not fact.status:
        return None if told.says(fact.content) else Lost("lost_decision", fact)
    if is_open_item(fact):
        return None if told.says(fact.content) else Lost("lost_open_item", fact)
    exact = [*paths_in(fact.content), *urls_in(fact.content)]
    if fact.kind in ("file_state", "side_effect") and exact:
        return None if all(each in told.text for each in exact) else Lost("lost_path", fact)
    return None


class Told:
    """Lines in which a fact is looked for."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.text = "\n".join(lines)
        self._flat = " ".join(self.text.split()).lower()
        self._lines = [words_of(line) for line in lines]

    def says(self, content: str, share: float = _TOLD) -> bool:
        """Whether the beginning of a text stands here, or a line has enough of its words."""
        start = " ".join(content.split()).lower()[:_START]
        wanted = words_of(content)
        return start in self._flat or any(len(wanted & line) >= share * len(wanted) for line in self._lines if wanted)

    def failure(self, fact: Fact) -> bool:
        """Whether one line tells what was tried and with which error it failed, or both stand here as they were."""
        stands = stands_in(fact.content.lower(), fact.detail.lower(), self._flat)
        return stands or self.both(fact.content, fact.detail)

    def both(self, one: str, other: str) -> bool:
        """Whether one line has enough of the words of both texts, and all names that have a number in them."""
        first, second = words_of(one), words_of(other)
        exact = {word for word in first if any(map(str.isdigit, word)) and any(map(str.isalpha, word))}
        return any(
            exact <= line
            and len(first & line) >= _FAILURE_TOLD * len(first)
            and len(second & line) >= _FAILURE_TOLD * len(second)
            for line in self._lines
            if line
        )


def unfinished(claim: str, facts: Sequence[Fact]) -> Fact | None:
    """The unfinished point of the to-do list that a line calls done."""
    said = words_of(claim)
    items = [(fact, words_of(fact.content)) for fact in facts if fact.kind == "todo"]
    done = [words for fact, words in items if fact.status == "done"]
    for fact, words in items:
        is_open = fact.status in _OPEN and len(words) > 1
        if is_open and words <= said and not any(words <= other <= said for other in done):
            return fact
    return None
