"""What a test run says in the end."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from context_compactor.apply.digests.text import counted

_COUNT = re.compile(
    r"(\d[\d,]*) (?:tests? |examples? )?(pass|fail|error|skip|ignored|pending|todo|total|tests?\b|examples?\b)"
    r"|\b(pass|fail|error|skip|tests? run|tests|total|out of|ran)[a-z]*\)?[:=]? *(\d+)\b"
    r"(?! (?:pass|fail|skip|todo|total|pending|error))",
    re.IGNORECASE,
)
_MEANS = {"pass": "passed", "fail": "failed", "erro": "errors", "skip": "skipped", "igno": "skipped", "pend": "skipped"}
_MEANS |= {"todo": "skipped"}
# Counts of files and of single classes, which the totals count again.
_PARTIAL = ("Test Suites:", "Test Files", "Time elapsed", "Time:")


class Verdict(Struct, frozen=True):
    """Counts in the runner's own words, and the failing tests with what they said.

    `totals` has how many passed, failed, ended in errors or were skipped, as far as the output tells; `tests` is how
    many there were.
    """

    runner: str
    counts: str
    failures: list[tuple[str, str]]
    totals: dict[str, int] = {}

    @property
    def summary(self) -> str:
        """The totals in words that are the same for every runner, or the runner's own words."""
        totals = dict(self.totals)
        bad = totals.get("failed", 0) + totals.get("errors", 0)
        if "passed" not in totals and "tests" in totals:
            totals["passed"] = max(totals["tests"] - bad - totals.get("skipped", 0), 0)
        if not bad and self.failures:
            totals["failed"] = len(self.failures)
        told = [f"{totals[word]:,} {word}" for word in ("passed", "failed") if totals.get(word)]
        told += [counted(totals["errors"], "error")] if totals.get("errors") else []
        told += [f"{totals['skipped']:,} skipped"] if totals.get("skipped") else []
        if totals.get("packages", 0) > bool(told):
            told.append(f"{counted(totals['packages'], 'package')} ok")
        return ", ".join(told) or self.counts


def total_counts(lines: Iterable[str]) -> dict[str, int]:
    """The sum of the counts in the lines that sum up a run."""
    found: dict[str, int] = {}
    for line in lines:
        if any(word in line for word in _PARTIAL):
            continue
        here: dict[str, int] = {}
        for match in _COUNT.finditer(line):
            number, word = (match[1], match[2]) if match[1] else (match[4], match[3])
            here.setdefault(_MEANS.get(word.lower()[:4], "tests"), int(number.replace(",", "")))
        for word, count in here.items():
            found[word] = found.get(word, 0) + count
    return found
