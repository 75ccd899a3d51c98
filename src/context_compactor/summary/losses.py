"""What prose must not lose: failures, decisions and unfinished points. What it lost is added from the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, structs

from context_compactor.classify.resolutions import RESOLVED
from context_compactor.classify.telling import stands_in
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import fact_line
from context_compactor.summary.exact import paths_in, urls_in
from context_compactor.summary.shape import DECISIONS, ERRORS, FILES, STATE, Prose, state_of

_WORD = re.compile(r"\w{2,}")
_OPEN = ("active", "blocked", "open")
_START = 40
_TOLD = 0.6
_FAILURE_TOLD = 0.5
HOME = {"failure": ERRORS, "decision": DECISIONS, "file_state": FILES, "todo": STATE, "blocker": STATE}
"""Under which heading of prose a fact stands."""


class Lost(Struct, frozen=True):
    """A fact that nobody tells any more, and what is lost with it."""

    code: str
    fact: Fact


def is_open_item(fact: Fact) -> bool:
    """Whether a fact says that something is not finished."""
    return fact.kind == "blocker" or (fact.kind == "todo" and fact.status in _OPEN)


def find_losses(prose: Prose, facts: Iterable[Fact], standing: str, reachable: frozenset[str]) -> list[Lost]:
    """The facts that stand neither in the prose nor in `standing`; a path may also be reachable by its reference."""
    told = Told([*prose.lines(), *standing.split("\n")])
    return [lost for fact in facts if (lost := _lost(fact, told, reachable))]


def _lost(fact: Fact, told: Told, reachable: frozenset[str]) -> Lost | None:
    if fact.kind == "failure":
        return None if fact.status == RESOLVED or told.failure(fact) else Lost("lost_failure", fact)
    if fact.kind == "decision" and not fact.status:
        return None if told.says(fact.content) else Lost("lost_decision", fact)
    if is_open_item(fact):
        return None if told.says(fact.content) else Lost("lost_open_item", fact)
    exact = [*paths_in(fact.content), *urls_in(fact.content)]
    if fact.kind in ("file_state", "side_effect") and exact and fact.ref not in reachable:
        return None if all(each in told.text for each in exact) else Lost("lost_path", fact)
    return None


class Told:
    """Lines in which a fact is looked for, in its own words or in enough of them."""

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
        tried, error = words_of(fact.content), words_of(fact.detail)
        return stands_in(fact.content.lower(), fact.detail.lower(), self._flat) or any(
            len(tried & line) >= _FAILURE_TOLD * len(tried) and len(error & line) >= _FAILURE_TOLD * len(error)
            for line in self._lines
            if line
        )


def words_of(text: str) -> set[str]:
    """The words of a text, each once, in small letters."""
    return set(_WORD.findall(text.lower()))


def false_claims(prose: Prose, facts: Sequence[Fact]) -> list[Fact]:
    """Unfinished points of the to-do list that the prose calls done."""
    claims = [words_of(line) for line in prose.sections.get(STATE, ()) if state_of(line) == "done"]
    items = [(fact, words_of(fact.content)) for fact in facts if fact.kind == "todo"]
    done = [words for fact, words in items if fact.status == "done"]
    return [
        fact
        for fact, words in items
        if fact.status in _OPEN
        and len(words) > 1
        and any(words <= claim and not any(words <= other <= claim for other in done) for claim in claims)
    ]


def repair(prose: Prose, losses: Sequence[Lost], room: int, count: Callable[[str], int]) -> tuple[Prose, list[Lost]]:
    """The prose with the ledger's line for each loss while there is room, and what is lost all the same."""
    sections = {heading: list(lines) for heading, lines in prose.sections.items()}
    left: list[Lost] = []
    for lost in losses:
        line = fact_line(lost.fact)
        cost = count(line)
        if cost > room:
            left.append(lost)
            continue
        room -= cost
        sections.setdefault(HOME.get(lost.fact.kind, STATE), []).append(line)
    return structs.replace(prose, sections={heading: tuple(lines) for heading, lines in sections.items()}), left
