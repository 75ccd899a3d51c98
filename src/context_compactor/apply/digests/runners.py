"""How test runners print: which lines sum up, which name a failing test, which say why."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct


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
