"""A test run as its counts and its failing tests: how test runners, JUnit and `go test -json` print them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec
from msgspec import Struct

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests.output import informative_lines
from context_compactor.facts.outputs import ToolOutput
from context_compactor.text import clip_line, merged, plural, to_lines

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


class TestRunResult(Struct, frozen=True):
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
        told += [plural(totals["errors"], "error")] if totals.get("errors") else []
        told += [f"{totals['skipped']:,} skipped"] if totals.get("skipped") else []
        if totals.get("packages", 0) > bool(told):
            told.append(f"{plural(totals['packages'], 'package')} ok")
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


class Runner(Struct, frozen=True):
    """One test runner's output, read line by line; the patterns are texts.

    `marks` are texts of which one must be there. `fails` names a failing test (group 1) and perhaps says why
    (group 2); `opens` begins the part about one test; `says` is a line that tells why. `opened_fails`: whatever has
    such a part has failed. `says_first`: the reason is printed above the name.
    """

    name: str
    marks: tuple[str, ...]
    sums: str
    fails: str
    says: str = "(?!)"
    opens: str = "(?!)"
    opened_fails: bool = False
    says_first: bool = False


class Patterns(Struct, frozen=True):
    """A runner's patterns, ready to match. `matters` is any of the four, so that most lines are looked at once."""

    sums: re.Pattern[str]
    fails: re.Pattern[str]
    opens: re.Pattern[str]
    says: re.Pattern[str]
    matters: re.Pattern[str]


@lru_cache(maxsize=32)
def patterns_of(runner: Runner) -> Patterns:
    """Build a runner's patterns, once and only when its marks were seen."""
    four = (runner.sums, runner.fails, runner.opens, runner.says)
    sums, fails, opens, says = (re.compile(pattern) for pattern in four)
    return Patterns(sums, fails, opens, says, re.compile("|".join(f"(?:{pattern})" for pattern in four)))


# What runners print for each test that passed or was not run, and while they are at it.
PASSING = re.compile(
    r"\s*(?:\[gw\d+\] \[ *\d+%\] )?(?:PASSED|SKIPPED|XFAIL) \S+::"
    r"|\S+::.{1,300} (?:PASSED|SKIPPED|XFAIL)(?: \(.{0,80}\))?(?:\s+\[ *\d+%\])?\s*$"
    r"|\S+\.py [.sxX]+\s*(?:\[ *\d+%\])?\s*$|[.sxX]{3,}\s*(?:\[ *\d+%\])?\s*$"
    r"|\w+ \([\w.]{1,200}\) \.\.\. (?:ok|skipped\b.*)$"
    r"|=== (?:RUN|PAUSE|CONT|NAME) |\s*--- (?:PASS|SKIP): |ok  \t|\?   \t|PASS$|test \S.* \.\.\. (?:ok|ignored)\b"
    r"|\s*[\u2713\u2714\u221a] |PASS \S|\(pass\) |\s*ok \d+ |\s*# Subtest: |\s*(?:duration_ms|type): "
)


_EXCEPTION = r"((?:[A-Za-z_][\w.]*(?:Error|Exception|Failure|Warning|Exit|Interrupt|Failed)\b)[^\n]*)"


RUNNERS = (
    Runner(
        "pytest",
        (
            *("passed in ", "failed in ", "skipped in ", " error in ", " errors in ", "warning in ", "warnings in "),
            *("short test summary", "test session starts", "= FAILURES =", "= ERRORS ="),
        ),
        sums=r"=+ (?:[^=]*\b(?:passed|failed|errors?|skipped|deselected|xfailed|no tests ran)\b[^=]*) =+"
        r"|\d+ (?:passed|failed|errors?|skipped)\b[^=\n]* in [\d.]+s",
        fails=r"(?:FAILED|ERROR) ([^\s:(][^\s]*(?:::.*?)?)(?: - (.*))?$",
        says=r"E {2,}(\S.*)|(\S+\.py:\d+): ",
        opens=r"_{3,} (?:ERROR (?:at setup of|at teardown of|collecting) )?(\S.*?) _{3,}$",
        opened_fails=True,
    ),
    Runner(
        "unittest",
        ("Ran ",),
        sums=r"Ran \d+ tests? in [\d.]+s|OK(?: \([^\n]*\))?$|FAILED \([^\n]*\)|NO TESTS RAN|Found \d+ test\(s\)",
        fails=r"(?:FAIL|ERROR): (\S.*)",
        says=r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*)?)$",
    ),
    Runner(
        "cargo test",
        ("test result: ", "tests run:"),
        sums=r"test result: .*|\s*Summary \[.*|error: could not compile .*|error\[E\d+\]: .*",
        fails=r"test (\S.*?) \.\.\. FAILED|\s{4,}(?:FAIL|TRY \d+ FAIL) \[[^\]]*\] +(\S+ \S+)",
        says=r"(thread '.*' (?:\(\d+\) )?panicked at .*|assertion .*|\s+(?:left|right): .*|Error: .*|called `.*)",
        opens=r"---- (\S.*?) stdout ----",
    ),
    Runner(
        "go test",
        ("--- FAIL", "--- PASS", "ok  \t", "FAIL\t", "[no test files]", "=== RUN"),
        sums=r"(?:FAIL\t|DONE \d+ tests|panic: |# \S+$|\S+\.go:\d+:\d+: )[^\n]*",
        fails=r"\s*--- FAIL: (\S+)|=== FAIL: \S+ (\S+)",
        says=r"\s+(\S+\.go:\d+: \S.*|Error: +\t*\S.*|(?:expected|actual|got|want) *: .*)|\s+(panic: .*)",
        opens=r"\s*(?:=== (?:RUN|CONT|NAME)\s+(\S+)|--- FAIL: (\S+))",
    ),
    Runner(
        "vitest",
        ("Test Files  ",),
        sums=r"\s*(?:Test Files|Tests)  .*",
        fails=r"\s*FAIL\s+(\S.* > .*?)(?: \d+m?s)?$|\s+[\u00d7\u2717] (\S.* > .*?)(?: \d+m?s)?$",
        says=r"\s*((?:[A-Z]\w*Error|Error|Snapshot)\b.*)|\s+(?:→ )(\S.*)|\s*\u276f (\S+:\d+:\d+)$",
    ),
    Runner(
        "jest",
        ("Tests:", "Test Suites:"),
        sums=r"(?:Tests|Test Suites):\s+\d.*",
        fails=r"\s*● (?!Console)(\S.*)",
        says=r"\s+((?:expect\(|Expected|Received|thrown:|Timeout|Error\b|[A-Z]\w*Error\b|Cannot |Unable ).*)"
        r"|\s+at .*?\(?((?!node_modules)[\w./-]+:\d+:\d+)\)?$",
    ),
    Runner(
        "bun test",
        (" pass\n", " fail\n"),
        sums=r"\s*\d+ (?:pass|fail|skip|todo)$|Ran \d+ tests? across .*",
        fails=r"\(fail\) (\S.*?)(?: \[[\d.]+m?s\])?$|\u2717 (\S.*?)(?: \[[\d.]+m?s\])?$",
        says=r"((?:error|[A-Z]\w*Error): .*|Expected: .*|Received: .*)",
        says_first=True,
    ),
    Runner(
        "mocha",
        (" passing",),
        sums=r"\s*\d+ (?:passing|failing|pending)\b.*",
        fails=r"\s{2,4}\d+\) (\S.*)",
        says=r"\s{4,}((?:[A-Z]\w*Error|Error)\b.*|\S.*:)$",
    ),
    Runner(
        "node test",
        ("# pass ", "\N{INFORMATION SOURCE} pass "),
        sums=r"[#\u2139] (?:tests|pass|fail|skipped|todo) \d+",
        fails=r"\s*not ok \d+ (?:- )?(\S.*)|\s*\u2716 (\S.*?)(?: \([\d.]+m?s\))?$",
        says=r"\s+(?:error: (\S.*)|([A-Z]\w*Error\b.*))",
    ),
    Runner(
        "rspec",
        (" examples, ", " example, "),
        sums=r"\d+ examples?, \d+ failures?.*",
        fails=r"rspec (\S+ # .*)",
        says=r"\s+(Failure/Error: .*|expected.*|\s+got.*)",
    ),
    Runner(
        "test runner",
        ("Tests run:", "Assertions:", "Failed:", "tests,", "Failures:", "tests completed", "tests passed"),
        sums=r"(?:\[\w+\]\s+)?Tests run: \d+.*|Tests: \d+, .*|OK \(\d+ tests?.*|(?:Failed|Passed)!\s+- .*"
        r"|\d+ tests?, \d+ failures?.*"
        r"|\d+ tests completed.*|\d+% tests passed.*|\s*(?:Total tests|Passed|Failed): *\d+.*|BUILD (?:SUCCESS|FAIL).*",
        fails=r"\[ERROR\]\s+(\S+\.\S+:\d+.*|\S+\(\S+\).*FAILURE!.*)|\d+\) (\S+::\S+.*|test \S.*)|(\S+ > \S.*) FAILED$"
        r"|\s+Failed (\S+)(?: \[.*\])?$|\s*\d+ - (\S+) \(Failed\)",
        says=r"\s*(" + _EXCEPTION[1:-1] + r"|Failed asserting .*|expected.*|Assertion .*|Error Message:)",
    ),
)


class _Event(msgspec.Struct):
    Action: str
    Package: str = ""
    Test: str = ""
    Output: str = ""


def read_go_events(text: str) -> TestRunResult | None:
    """Counts by action, and what each failing test printed first about a line of its own."""
    if '"Action":"' not in text[:2000]:
        return None
    counts: dict[str, int] = {}
    failed: list[str] = []
    printed: dict[str, list[str]] = {}
    for event in _events(text):
        if event.Test and event.Action in ("pass", "fail", "skip"):
            counts[event.Action] = counts.get(event.Action, 0) + 1
            failed += [event.Test] if event.Action == "fail" else []
        elif event.Action == "output" and ".go:" in event.Output:
            printed.setdefault(event.Test or event.Package, []).append(event.Output.strip())
    if not counts:
        return None
    words = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    failures = [(name, " ".join(printed.get(name, [])[:2])) for name in dict.fromkeys(failed)]
    return TestRunResult("go test", words, failures, total_counts((words,)))


def _events(text: str) -> list[_Event]:
    decoder = msgspec.json.Decoder(_Event)
    found: list[_Event] = []
    for line in text.split("\n"):
        if line.startswith("{"):
            try:
                found.append(decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeError):
                continue
    return found


_SUITE = re.compile(r"<testsuites?\b([^>]{0,2000})>")
_JUNIT_COUNT = re.compile(r"\b(tests|failures|errors|skipped|disabled)=[\"'](\d{1,9})[\"']")
_CASE = re.compile(r"<testcase\b([^>]{0,2000})>\s{0,200}<(?:failure|error)\b([^>]{0,4000})>?([^<]{0,400})")
_ATTRIBUTE = re.compile(r"\b(classname|name|message|type)=(?:\"([^\"]*)\"|'([^']*)')")


def read_junit(text: str) -> TestRunResult | None:
    """Counts of the outermost suites, failing cases with their messages."""
    if "<testsuite" not in text[:4000]:
        return None
    totals: dict[str, int] = {}
    for match in _SUITE.finditer(text):
        for name, count in _JUNIT_COUNT.findall(match.group(1)):
            totals[name] = totals.get(name, 0) + int(count)
        if match.group().startswith("<testsuites") and totals:
            break
    if not totals:
        return None
    counts = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    return TestRunResult("JUnit", counts, _failures(text), total_counts((counts,)))


def _failures(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for match in _CASE.finditer(text):
        case, failure = _attributes(match.group(1)), _attributes(match.group(2))
        name = " ".join(part for part in (case.get("classname", ""), case.get("name", "")) if part)
        found.append((name, failure.get("message") or html.unescape(match.group(3)).strip() or failure.get("type", "")))
    return found


def _attributes(text: str) -> dict[str, str]:
    return {name: html.unescape(double or single) for name, double, single in _ATTRIBUTE.findall(text)}


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


def digest_test_run(_: ToolCall | None, output: ToolOutput) -> list[str]:
    """Counts first, then one line per failing test; the last telling lines when no runner is known."""
    verdict = read_test_run(output.body)
    if verdict is None:
        return informative_lines(output)
    shown = [clip_line(f"FAILED {name}{': ' + why if why else ''}") for name, why in verdict.failures[:_MOST_FAILURES]]
    left = len(verdict.failures) - len(shown)
    more = [f"… {plural(left, 'more failing test')}"] if left > 0 else []
    return [f"{verdict.runner}: {clip_line(verdict.counts, 160)}", *shown, *more]


def read_test_run(text: str) -> TestRunResult | None:
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
    is_dotted = "." in base and "/" not in base and " " not in base
    return re.split(r"::|\.", base)[-1] + bracket + rest if "::" in base or is_dotted else name


def _verdict(runner: Runner, found: _Reading, text: str) -> TestRunResult | None:
    failing = dict(found.failing)
    if runner.opened_fails and not failing:
        failing = {name: "" for key, name in found.opened.items() if key in found.reasons}
    failing = _without_shorter_names(failing)
    is_go = runner.name == "go test"
    counts = _go_counts(text, found.sums) if is_go else ", ".join(merged(found.sums[-_MOST_SUMS:]))
    if not failing and not counts:
        return None
    failures = []
    for name, said in failing.items():
        reasons = found.reasons.get(_key(name), [])
        if is_go:  # it prints a test's log in the same form as what made it fail
            reasons = [line for line in reasons if _TELLS.search(line, 0, 300)] or reasons[-1:]
        why = " ".join(reasons[:_REASONS])
        failures.append((name, why if not said or said.rstrip(".…") in why else said))
    totals = _go_totals(text) if is_go else total_counts(found.sums)
    return TestRunResult(runner.name, counts or "no totals in the output", failures, totals)


def _without_shorter_names(failing: dict[str, str]) -> dict[str, str]:
    """Vitest names a test twice: in its tree, and again with its file in front."""
    if len(failing) > _MOST_COMPARED:
        return failing
    return {name: said for name, said in failing.items() if not any(other.endswith(f"> {name}") for other in failing)}


def _go_counts(text: str, sums: list[str]) -> str:
    """Go prints no totals, so the lines are counted as they stand."""
    totals = _go_totals(text)
    packages = totals.pop("packages")
    counts = [f"{count:,} {word}" for word, count in totals.items() if count]
    counts += [f"{plural(packages, 'package')} ok"] if packages else []
    return ", ".join([*counts, *merged(line.replace("\t", " ") for line in sums[:_MOST_SUMS])])


def _go_totals(text: str) -> dict[str, int]:
    totals = {word: text.count(f"--- {mark}: ") for mark, word in _GO_MARKS}
    return totals | {"packages": text.count("\nok  \t") + text.startswith("ok  \t")}
