"""What an agent's own summary lost of what must outlive the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from context_compactor.classify.resolutions import RESOLVED
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import fact_line
from context_compactor.report import Fidelity, Missing
from context_compactor.summarize.exact import paths_in
from context_compactor.summarize.losses import Told, find_losses

# What Claude thinks before it writes a summary is thrown away with it.
_THOUGHTS = re.compile(r"<analysis>.*?</analysis>", re.DOTALL)
_CHECKED = ("failure", "decision", "constraint", "todo", "blocker", "file_state", "side_effect")


class Losses(Struct, frozen=True):
    """How many facts were looked for in a summary, and those it does not tell."""

    checked: int
    lost: tuple[Fact, ...]

    def by_kind(self) -> dict[str, int]:
        """How many were lost of each kind."""
        kinds = dict.fromkeys(fact.kind for fact in self.lost)
        return {kind: sum(fact.kind == kind for fact in self.lost) for kind in kinds}

    def lines(self) -> list[str]:
        """Each lost fact in one line."""
        return [fact_line(fact) for fact in self.lost]

    def fidelity(self, reachable: set[str]) -> Fidelity:
        """The same as a report says it: what is archived can be reached though it is not told."""
        missing = [Missing(fact.kind, fact.content[:200], fact.ref) for fact in self.lost if fact.ref not in reachable]
        return Fidelity(self.checked - len(self.lost), len(self.lost) - len(missing), tuple(missing))


def find_lost(summary: str, facts: Iterable[Fact]) -> Losses:
    """Which failures, decisions, rules, unfinished points and paths a summary does not tell, in any words."""
    summary = _THOUGHTS.sub("", summary)
    checked = [fact for fact in facts if fact.kind in _CHECKED and not fact.told_by and not _is_past(fact)]
    found = find_losses(checked, summary)
    lost = {id(each.fact) for each in found if each.code != "lost_path" or not _names_file(summary, each.fact)}
    lost |= _lost_rules(summary, checked)
    return Losses(len(checked), tuple(fact for fact in checked if id(fact) in lost))


def _is_past(fact: Fact) -> bool:
    """A file that was only read can be read again, and what failed and worked later can be done."""
    return (fact.kind, fact.status) in (("file_state", "read"), ("failure", RESOLVED))


def _names_file(summary: str, fact: Fact) -> bool:
    """A summary may name a file without the way to it."""
    paths = paths_in(fact.content)
    return bool(paths) and all(path.rstrip("/").rpartition("/")[2] in summary for path in paths)


def _lost_rules(summary: str, facts: Sequence[Fact]) -> set[int]:
    told = Told(summary.split("\n"))
    return {id(fact) for fact in facts if fact.kind == "constraint" and not told.says(fact.content)}
