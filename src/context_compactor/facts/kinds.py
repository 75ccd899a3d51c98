"""What kind of content a tool result is, and which reference it gets."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from context_compactor.dialects.messages import ToolCall
from context_compactor.dialects.turns import ReferencePrefix, ToolUse, reference_id
from context_compactor.facts.calls import ParsedCall, parse_call
from context_compactor.facts.outputs import body_start
from context_compactor.facts.shell import ShellStep

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


class Kind(StrEnum):
    """The content types a digest knows how to shorten."""

    CODE = "code file"
    TEST_RUN = "test run"
    API_RESPONSE = "API response"
    SEARCH_RESULT = "search result"
    ERROR_TRACE = "error trace"
    SUBAGENT = "sub-agent output"
    LOG = "log"
    DIFF = "diff"
    LISTING = "directory listing"
    COMMAND = "command output"
    WEB_PAGE = "web page"
    TALK = "talk"


class Voice(StrEnum):
    """Who speaks in a source."""

    USER = "user"
    AGENT = "agent"
    SYSTEM = "system"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"
    FACT = "fact"


# What a token of a result is worth by its kind; see docs/why/choosing.md.
KIND_WEIGHT = {
    Kind.CODE: 6.0,
    Kind.TEST_RUN: 0.5,
    Kind.API_RESPONSE: 1.0,
    Kind.SEARCH_RESULT: 2.0,
    Kind.ERROR_TRACE: 0.8,
    Kind.SUBAGENT: 6.0,
    Kind.LOG: 0.4,
    Kind.DIFF: 5.0,
    Kind.LISTING: 0.3,
    Kind.COMMAND: 2.0,
    Kind.WEB_PAGE: 2.0,
    Kind.TALK: 3.0,
}


def _table(**names: str) -> dict[str, Kind]:
    return {name: Kind[kind] for kind, group in names.items() for name in group.split()}


_TOOLS = _table(
    SEARCH_RESULT="grep glob search searchfiles grepsearch filesearch codebasesearch searchfilecontent grepfiles "
    "websearch googlewebsearch websearchpreview findfiles find searchcode semanticsearch lsp ripgrep searchdir "
    "searchfile",
    LISTING="ls list listdir listfiles listdirectory directorytree tree",
    SUBAGENT="task agent taskoutput spawnagent waitagent wait delegate subagent runagent newtask dispatchagent "
    "agentoutput sendinput closeagent resumeagent delegatetask",
    WEB_PAGE="webfetch fetch fetchurl browse openurl visit browser navigate readurl browsernavigate visitpage",
    TEST_RUN="runtests runtest test executetests",
    DIFF="gitdiff diff gitshow getdiff",
    LOG="getlogs readlogs logs getlog tail consolelogs",
    COMMAND="updateplan todowrite taskcreate taskupdate tasklist writestdin createplan updatetodos",
    TALK="askuserquestion askuser askfollowupquestion think exitplanmode requestuserinput transfertohumanagents",
)
_PROGRAMS = _table(
    CODE="cat sed head nl bat batcat less more awk gawk view open",
    SEARCH_RESULT="rg grep egrep fgrep ag ack find fd fdfind locate search_dir search_file find_file",
    LISTING="ls tree eza exa dir",
    DIFF="diff colordiff",
    TEST_RUN="pytest py.test tox nox jest vitest mocha ava rspec phpunit ctest gotestsum unittest nosetests "
    "runtests.py nextest pest stestr",
    API_RESPONSE="curl wget http https xh jq",
    LOG="tail journalctl dmesg",
)
_RUNNERS = frozenset(
    "go cargo npm pnpm yarn bun deno make gmake just task mise mvn mvnw gradle gradlew dotnet mix swift rake bazel sbt "
    "zig flutter dart node turbo nx ant composer cmake xcodebuild hatch python python3 uv django-admin rails".split()
)
_TEST_WORD = re.compile(
    r"(?:[\w-]*[:_-])?tests?(?:[:_-][\w:-]*)?|--test|check|spec|pytest|unittest|nextest|(?:\S*/)?runtests\.py"
)
_API_NAME = re.compile(
    r"_?(?:get|fetch|list|create|update|delete|post|put|query|book|cancel|send|search|modify|add|set)[_A-Z-]|mcp__"
)
_SOURCE_FILE = re.compile(r"\.(?:py|go|[jt]sx?|rs|java|[ch](?:pp)?|cc|md|rb|php|cs|sh|ya?ml|toml|json)$")
_LOG_FILE = re.compile(r"\.(?:log|out|err)(?:\.\d+)?$", re.IGNORECASE)
_SHAPES: tuple[tuple[Kind, Callable[[str, str], bool]], ...] = (
    (Kind.DIFF, is_diff),
    (Kind.TEST_RUN, is_test_run),
    (Kind.ERROR_TRACE, is_trace),
    (Kind.WEB_PAGE, is_html),
    (Kind.CODE, is_numbered),
    (Kind.LOG, is_log),
    (Kind.SEARCH_RESULT, is_matches),
)
_HEAD = 2000


def kind_of(call: ToolCall | None, text: str) -> Kind:
    """The kind of a tool's answer. Whatever cannot be told is command output."""
    start = body_start(text)
    head = "\n" + text[start : start + _HEAD]
    if call is None:
        return _kind_by_shape(head, text) or Kind.COMMAND
    parsed = parse_call(call)
    expected = _kind_of_call(parsed, call.name)
    if expected is Kind.COMMAND or expected is Kind.API_RESPONSE:
        return _kind_by_shape(head, text) or expected
    return _corrected(expected, parsed, head, text)


def _kind_of_call(parsed: ParsedCall, name: str) -> Kind:
    if parsed.command is not None:
        return _kind_of_steps(parsed.steps)
    if parsed.reads:
        return Kind.CODE
    if parsed.writes:
        return Kind.COMMAND
    return _TOOLS.get(parsed.tool) or (Kind.API_RESPONSE if _API_NAME.match(name) else Kind.COMMAND)


def _corrected(expected: Kind, parsed: ParsedCall, head: str, text: str) -> Kind:
    """Trust the call, unless the text plainly says something else."""
    if expected is Kind.CODE:
        if is_diff(head, text):
            return Kind.DIFF
        return Kind.LOG if any(map(_LOG_FILE.search, parsed.paths)) else Kind.CODE
    if expected is Kind.TEST_RUN:
        tests = is_test_run(head, text) or not is_trace(head, text)
        return Kind.TEST_RUN if tests else Kind.ERROR_TRACE
    if expected is Kind.LOG:
        return Kind.ERROR_TRACE if is_trace(head, head) else Kind.LOG
    if expected in (Kind.SEARCH_RESULT, Kind.DIFF) and is_json(head, text):
        return Kind.API_RESPONSE
    return expected


def _kind_by_shape(head: str, text: str) -> Kind | None:
    if is_json(head, text):
        return Kind.TEST_RUN if is_go_events(head) else Kind.API_RESPONSE
    return next((kind for kind, fits in _SHAPES if fits(head, text)), None)


def _kind_of_steps(steps: tuple[ShellStep, ...]) -> Kind:
    found: Kind | None = None
    for step in steps:
        kind = _kind_of_step(step)
        if kind is Kind.TEST_RUN:
            return kind
        if kind is None or (step.writes and step.writes != "/dev/null"):
            continue
        searched = found is Kind.CODE and kind is Kind.SEARCH_RESULT
        if searched if step.piped else found is None:
            found = kind
    return found or Kind.COMMAND


def _kind_of_step(step: ShellStep) -> Kind | None:
    program, words = step.program, step.words
    if program in _RUNNERS:
        return Kind.TEST_RUN if any(map(_TEST_WORD.fullmatch, words[1:5])) else None
    if program in ("git", "gh", "docker", "kubectl"):
        return _kind_of_subcommand(words)
    kind = _PROGRAMS.get(program)
    if kind is Kind.CODE and any(word.startswith("-i") for word in words[1:3]) and program == "sed":
        return None
    if program == "tail" and len(words) > 1 and "-f" not in words:
        shows_source = any(word.startswith("+") for word in words[1:]) or _SOURCE_FILE.search(words[-1])
        return Kind.CODE if shows_source else kind
    return kind


def _kind_of_subcommand(words: tuple[str, ...]) -> Kind | None:
    first = words[1:6]
    if "logs" in first or "--log" in words or "--log-failed" in words:
        return Kind.LOG
    if words[0] == "git":
        return _kind_of_git(words)
    if words[0] == "gh":
        return Kind.DIFF if "diff" in first else Kind.API_RESPONSE if "api" in first or "--json" in words else None
    return None


def _kind_of_git(words: tuple[str, ...]) -> Kind | None:
    verb = words[3] if words[1:2] == ("-C",) and len(words) > 3 else next(iter(words[1:2]), "")
    if verb == "show" and any(":" in word for word in words[2:] if not word.startswith("-")):
        return Kind.CODE
    if verb in ("diff", "show") or (verb in ("log", "stash") and "-p" in words):
        return Kind.DIFF
    return {"grep": Kind.SEARCH_RESULT, "ls-files": Kind.LISTING, "ls-tree": Kind.LISTING, "blame": Kind.CODE}.get(verb)


_RESTORE_HINTS = {
    Kind.CODE: "read the file again",
    Kind.SEARCH_RESULT: "search again",
    Kind.LISTING: "list again",
    Kind.WEB_PAGE: "fetch the page again",
    Kind.API_RESPONSE: "ask again",
    Kind.DIFF: "show the diff again",
}


def restore_hint(kind: Kind) -> str:
    """How a result of this kind can be fetched again; empty when only the archive has it."""
    return _RESTORE_HINTS.get(kind, "")


def prefix_for(call: ToolCall | None) -> ReferencePrefix:
    """The first word of a call's reference; it depends on the call alone, so it never changes."""
    if call is None:
        return "tool"
    parsed = parse_call(call)
    if parsed.reads and parsed.paths:
        return "file"
    return "agent" if parsed.command is None and kind_of(call, "") is Kind.SUBAGENT else "tool"


def reference_of(exchange: ToolUse) -> str:
    """The id under which an exchange is recalled."""
    return reference_id(prefix_for(exchange.call), exchange.number)
