"""What a text is, from the shape of its first and last lines alone. `head` begins with a newline."""

from __future__ import annotations

import re

# A leading newline instead of `^`: the engine then jumps from line to line.
_STACK = re.compile(r"\n(?:\t| {2,8})at [\w.$<>\[\] /@-]{1,200}\(")
_TESTS = re.compile(
    r"\n(?=[-=RTSFDot rn#<{\d])(?:=+ (?:FAILURES|ERRORS|short test summary info|test session starts) =+"
    r"|=+ [^\n]{0,200} in [\d.]+s"
    r"|Ran \d+ tests? in |Tests?:? +\d+ (?:passed|failed)|Test Suites: |\s{0,8}Test Files  "
    r"|test result: |\s{0,8}Summary \[|--- (?:FAIL|PASS|SKIP): |(?:ok|FAIL)\s{1,8}\S+\s{1,8}(?:[\d.]+s|\(cached\)|\[)"
    r"|DONE \d+ tests|running \d+ tests?\n|not ok \d+ |# pass \d+|Tests run: \d+|\s{0,4}\d+ (?:passing|pass|failing)\b"
    r"|<testsuites?[ >]|\{\"Time\":\"[^\"]{1,40}\",\"Action\":|\d+ examples?, \d+ failures?)"
)
_STAMP = (
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b)"
)
_STAMPED = re.compile(rf"\n(?: *\d+(?:→|\t))?(?:[a-z][\w.-]{{0,30}} *\| *)?\[?{_STAMP}")
_LEVEL = re.compile(r"\b(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|TRACE|debug|info|warn(?:ing)?|error)\b")
_NUMBERED = re.compile(r"\n *(\d{1,9})(?:→|\t)")
_MATCHED = re.compile(r"\n[^\s:][^:\n]{0,200}:\d+:")
_GO_EVENT = re.compile(r'"Action":"(?:start|run|output|pass|fail|skip)"')
_TAIL = 1500


def is_diff(head: str, _: str) -> bool:
    """A unified diff, with or without a commit in front of it."""
    return head.startswith(("\ndiff --git ", "\nIndex: ", "\n*** Begin Patch")) or (
        "\n@@ -" in head and ("diff --git " in head or "\n+++ " in head)
    )


def is_trace(head: str, text: str) -> bool:
    """An exception or panic with its frames, at either end of the text."""
    return any(_shows_frames(part) for part in (head, text[-_TAIL:]))


def _shows_frames(part: str) -> bool:
    if "Traceback (most recent call last)" in part or "panicked at" in part:
        return True
    if "goroutine " in part and "[running]" in part:
        return True
    return ("\tat " in part or "  at " in part) and _STACK.search(part) is not None


def is_test_run(head: str, text: str) -> bool:
    """The output of a test runner: its banner or its summary."""
    return _TESTS.search(head) is not None or _TESTS.search(text, max(0, len(text) - _TAIL)) is not None


def is_json(head: str, text: str) -> bool:
    """One JSON value, or a line of JSON per record."""
    opening = head.lstrip()[:40]
    if opening.startswith("{"):
        follow = opening[1:].lstrip()[:1]
        return follow in ('"', "}") and text[-200:].rstrip()[-1:] in ("}", "]")
    if opening.startswith("["):
        follow = opening[1:].lstrip()[:1]
        return follow in ("{", '"', "[", "]") and text[-200:].rstrip()[-1:] == "]"
    return False


def is_go_events(head: str) -> bool:
    """What `go test -json` prints."""
    return _GO_EVENT.search(head, 0, 400) is not None


def is_html(head: str, _: str) -> bool:
    """A page as a browser gets it."""
    opening = head.lstrip()[:200].lower()
    return opening.startswith(("<!doctype html", "<html", "<head")) or "<html" in opening


def is_log(head: str, _: str) -> bool:
    """Lines that mostly begin with a time or a level."""
    lines = head.count("\n")
    return lines >= 4 and len(_STAMPED.findall(head)) * 2 >= lines and _LEVEL.search(head) is not None


def is_numbered(head: str, _: str) -> bool:
    """Lines of a file with their numbers in front."""
    if "→" not in head and "\t" not in head:
        return False
    numbers = [int(number) for number in _NUMBERED.findall(head)]
    return len(numbers) >= 3 and numbers[2] == numbers[0] + 2


def is_matches(head: str, _: str) -> bool:
    """Search hits: path, line number, text."""
    lines = head.count("\n")
    return lines >= 3 and head.count(":") >= lines and len(_MATCHED.findall(head)) * 3 >= lines * 2
