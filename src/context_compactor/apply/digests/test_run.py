"""A test run as its counts and its failing tests, each with what it said."""

from __future__ import annotations

import re

from msgspec import Struct

from context_compactor.apply.digests.command import telling_lines
from context_compactor.apply.digests.go_events import read_go_events
from context_compactor.apply.digests.junit import read_junit
from context_compactor.apply.digests.runners import RUNNERS, Runner, patterns_of
from context_compactor.apply.digests.text import clip, counted, merged, to_lines
from context_compactor.apply.digests.verdict import Verdict, total_counts
from context_compactor.classify.envelope import Output
from context_compactor.messages.message import ToolCall

_MOST_FAILURES = 24
_MOST_SUMS = 6
_REASONS = 4
_REASONS_READ = 40
_MOST_COMPARED = 100
_TELLS = re.compile(r"error|fail|expected|got|want|unexpected|mismatch|should|must|not |panic", re.IGNORECASE)
_BARS = " =-\t"
_GO_MARKS = (("PASS", "passed"), ("FAIL", "failed"), ("SKIP", "skipped"))


class _Reading(Struct):
    """What one pass over the lines has found so far."""

    sums: list[str] = []
    failing: dict[str, str] = {}
    opened: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}
    waiting: list[str] = []
    current: str = ""


def digest_test_run(_: ToolCall | None, output: Output) -> list[str]:
    """Counts first, then one line per failing test; the last telling lines when no runner is known."""
    verdict = read_verdict(output.body)
    if verdict is None:
        return telling_lines(output)
    shown = [clip(f"FAILED {name}{': ' + why if why else ''}") for name, why in verdict.failures[:_MOST_FAILURES]]
    left = len(verdict.failures) - len(shown)
    more = [f"… {counted(left, 'more failing test')}"] if left > 0 else []
    return [f"{verdict.runner}: {clip(verdict.counts, 160)}", *shown, *more]


def read_verdict(text: str) -> Verdict | None:
    """What a test runner says in its output, if it is one that we know."""
    special = read_junit(text) or read_go_events(text)
    if special is not None:
        return special
    lines = to_lines(text)
    seen = "\n".join(lines)
    for runner in RUNNERS:
        if any(mark in seen for mark in runner.marks):
            verdict = _verdict(runner, _read_lines(runner, lines), seen)
            if verdict is not None:
                return verdict
    return None


def _read_lines(runner: Runner, lines: list[str]) -> _Reading:
    patterns = patterns_of(runner)
    found = _Reading([], {}, {}, {}, [], "")
    for line in lines:
        if not patterns.matters.match(line):
            continue
        failed = patterns.fails.match(line)
        if failed:
            _note_failure(found, failed, runner)
        if match := patterns.opens.match(line):
            found.current = _key(_first(match))
            found.opened.setdefault(found.current, _first(match))
        elif failed:
            continue
        elif patterns.sums.match(line):
            found.sums.append(line.strip(_BARS))
        elif match := patterns.says.match(line):
            _note_reason(found, _first(match), runner)
    return found


def _note_failure(found: _Reading, match: re.Match[str], runner: Runner) -> None:
    groups = [group for group in match.groups() if group]
    name = groups[0].strip() if groups else ""
    found.current = _key(name)
    found.failing.setdefault(name, groups[1].strip() if len(groups) > 1 else "")
    if runner.says_first:
        found.reasons.setdefault(found.current, []).extend(found.waiting[-_REASONS:])
        found.waiting.clear()
        found.current = ""


def _note_reason(found: _Reading, reason: str, runner: Runner) -> None:
    if runner.says_first:
        found.waiting.append(reason.strip())
    elif found.current:
        said = found.reasons.setdefault(found.current, [])
        if len(said) < _REASONS_READ:
            said.append(reason.strip())


def _first(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group), match.group())


def _key(name: str) -> str:
    """One key for `tests/a.py::TestB::test_c[1]` and `TestB.test_c[1]`."""
    base, bracket, rest = name.partition("[")
    return re.split(r"::|\.", base)[-1] + bracket + rest if "::" in base or _is_dotted(base) else name


def _is_dotted(name: str) -> bool:
    return "." in name and "/" not in name and " " not in name


def _verdict(runner: Runner, found: _Reading, text: str) -> Verdict | None:
    failing = dict(found.failing)
    if runner.opened_fails and not failing:
        failing = {name: "" for key, name in found.opened.items() if key in found.reasons}
    failing = _without_shorter_names(failing)
    is_go = runner.name == "go test"
    counts = _go_counts(text, found.sums) if is_go else ", ".join(merged(found.sums[-_MOST_SUMS:]))
    if not failing and not counts:
        return None
    pick = _telling if is_go else _all_of
    failures = [(name, _why(said, pick(found.reasons.get(_key(name), [])))) for name, said in failing.items()]
    totals = _go_totals(text) if is_go else total_counts(found.sums)
    return Verdict(runner.name, counts or "no totals in the output", failures, totals)


def _without_shorter_names(failing: dict[str, str]) -> dict[str, str]:
    """Vitest names a test twice: in its tree, and again with its file in front."""
    if len(failing) > _MOST_COMPARED:
        return failing
    return {name: said for name, said in failing.items() if not any(other.endswith(f"> {name}") for other in failing)}


def _why(said: str, reasons: list[str]) -> str:
    told = " ".join(reasons[:_REASONS])
    return told if not said or said.rstrip(".…") in told else said


def _all_of(reasons: list[str]) -> list[str]:
    return reasons


def _telling(reasons: list[str]) -> list[str]:
    """Go prints a test's log in the same form as what made it fail."""
    return [line for line in reasons if _TELLS.search(line, 0, 300)] or reasons[-1:]


def _go_counts(text: str, sums: list[str]) -> str:
    """Go prints no totals, so the lines are counted as they stand."""
    totals = _go_totals(text)
    packages = totals.pop("packages")
    counts = [f"{count:,} {word}" for word, count in totals.items() if count]
    counts += [f"{counted(packages, 'package')} ok"] if packages else []
    return ", ".join([*counts, *merged(line.replace("\t", " ") for line in sums[:_MOST_SUMS])])


def _go_totals(text: str) -> dict[str, int]:
    totals = {word: text.count(f"--- {mark}: ") for mark, word in _GO_MARKS}
    return totals | {"packages": text.count("\nok  \t") + text.startswith("ok  \t")}
