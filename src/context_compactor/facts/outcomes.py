"""Whether a tool call did what it was asked to do, and which test, lint and build runs speak for each other."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from context_compactor.dialects.messages import ToolCall, ToolResult
from context_compactor.facts.calls import ParsedCall, parse_call
from context_compactor.facts.outputs import unwrap
from context_compactor.facts.shell import ShellStep, is_one_chain, split_command

_HEAD = 2_000
_TAIL = 4_000
# A tool that fails says so in a few lines; a page that starts with the word "Error" does not end there.
_SHORT_ANSWER = 3_000


def _one_of(*phrases: str, before: str = "", flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile(f"{before}(?:{'|'.join(phrases)})", flags)


# Beside the ways that `unwrap` knows: codes that a tool prints in words or as a field.
_CODE_IN_WORDS = re.compile(
    r"(?:exit(?:ed with)?[ _]?(?:code|status)|return ?code|exited with)[^\w\n-]{1,4}(-?\d{1,9})\b", re.IGNORECASE
)
_CODE_IN_TAG = re.compile(r"<(?:returncode|exit_code)>(-?\d{1,9})</")
_CODE_AS_FIELD = re.compile(r'"(?:exit_?code|return_?code)\\?"\s{0,4}:\s{0,4}(-?\d{1,9})\b', re.IGNORECASE)

# Programs that answer "no" with code 1, and a shell's own way to ask for one; `-v` is what is left of `command -v`.
_NO_MATCH = frozenset("grep egrep fgrep rg ag diff cmp colordiff test [ [[ pgrep ps lsof which type hash -v".split())
_GIT_ANSWERS = frozenset(
    "diff diff-files diff-index diff-tree grep merge-base show-ref check-ignore ls-files config".split()
)
# Programs that look for something: that it is not there is their answer.
_SEARCH_PROGRAMS = frozenset("ls find fd test [ [[ which type stat".split())
_SHOWS_WHERE = frozenset("cd pwd echo printf true".split())
_ASKS_FOR_PROGRAM = re.compile(r"\bcommand -[vV] [\w.@/+-]+(?:\s*(?:2?>\S*|2>&1))*\s*$")
_NOT_THERE = re.compile(r"No such file or directory|no matches found|cannot access|not found$", re.MULTILINE)
_READ_ONLY_PROGRAMS = frozenset(
    "cat head tail sed grep egrep fgrep rg ag ls find fd tree wc awk gawk jq yq nl less more bat stat file du df pwd "
    "which type whereis echo printf sort uniq cut tr diff cmp env printenv date cd true column xxd od strings basename "
    "dirname realpath readlink journalctl man curl wget".split()
)
_READ_ONLY_COMMANDS = frozenset(
    "show view list log logs status capture capture-pane diff get describe search info cat ls blame history help api "
    "--help -h grep ls-files ls-tree ls-remote cat-file rev-parse reflog shortlog branch remote read checks".split()
)

# What a client says of a call that it did not run to its end, or not at all: nobody knows how it would have ended.
_NOT_RUN = _one_of(
    r"sibling tool call errored",
    r"(?:tool_use_error>)?cancel+ed: parallel tool call",
    r"(?:request|tool (?:call|use|execution)|command|execution)?\W*(?:was )?(?:interrupted|aborted|cancel+ed)"
    r"(?: by (?:the )?user| because another)",
    r"(?:tool (?:call|use|execution)|request) (?:was )?(?:interrupted|aborted|cancel+ed)\b",
    before=r"\W*(?:tool_use_error>)?",
)
_STOPPED = _one_of("sibling", "cancel", "interrupt", "abort")
_REFUSED = _one_of(
    r"the user (?:doesn't|does not|didn't) want",
    r"user (?:denied|rejected|declined|cancel+ed|aborted)",
    r"permission to use \S+ (?:has been|was) denied",
    r"(?:\w+ ){0,3}(?:was )?(?:rejected|denied|declined|cancel+ed|aborted|interrupted) by (?:the )?user",
    r"execution denied",
    r"this command requires approval",
    r"request denied",
    r"operation stopped by hook",
    before=r"\W*",
)
_OPENS_WITH_ERROR = _one_of(
    r"tool_use_error>",
    r"(?:error|failed|failure|fatal|exception)\b\s*(?:[(:\[]|- |executing|calling|running|reading|to\b|while)",
    r"[\w.]*(?:Error|Exception)\b\s*[:(]",
    r"traceback \(most recent",
    r"E(?:NOENT|ACCES|PERM|EXIST|ISDIR)\b",
    r"(?:permission|access) denied",
    r"no such file|file (?:not found|does not exist)|path does not exist|command not found",
    r"(?:unknown|invalid|unsupported) (?:tool|function|argument|parameter|command|arguments)\b",
    r"mcp error|(?:command )?timed out|timeout\b|unauthorized\b|forbidden\b|request failed|rate limit",
    before=r"\W*",
)
_EDIT_FAILED = _one_of(
    r"string to replace not found",
    r"(?:old_str|old_string|search text|oldtext|target content)\S*(?: \S+){0,8} (?:not|must)\b",
    r"no replacement was (?:performed|made)",
    r"patch (?:does not apply|failed)|hunk #?\d* ?failed|invalid (?:patch|context|hunk)",
    r"failed to (?:find (?:expected lines|context)|apply)|verification failed",
    r"has not been read yet|modified since",
    r"no match(?:es)? found|could not find|does not exist|not found in",
    r"found \d+ matches|not unique|multiple occurrences|no changes (?:to make|were made)",
)
_SAYS_ERROR = _one_of(
    r'"(?:error|errors|err|error_?message)"\s*:\s*+(?!null|""|\[\s*\]|false|\{\s*\}|0\b)',
    r'"(?:is_?error|failed)"\s*:\s*true',
    r'"(?:ok|success)"\s*:\s*false',
    r'"status"\s*:\s*"(?:error|failed|failure)"',
    r'"status(?:_?code)?"\s*:\s*"?[45]\d\d\b',
)
# One of these stands in every text that the patterns below can match: `in` is much faster than a pattern.
_SIGNS = (
    "FAIL", "fail", "Traceback", "rror", "fatal:", "panic:", "ERR", "not found", "ermission denied", "No such file",
    "***", "issue", "not ok", "Killed", "egmentation", "Aborted", "Uncaught", "nhandled", "imed out", "xception",
    "No module", "✗",
)  # fmt: skip
_FAILED_LINE = _one_of(
    r"Traceback \(most recent call last\)",
    r"(?:FAILED|FAIL|--- FAIL)\b",
    r"[ \t]{0,8}[1-9]\d* fail(?:ing)?\b",
    r"not ok \d",
    r"E {2,8}[\w.]*(?:Error|Exception)\b",
    r"npm (?:ERR!|error) ",
    r"[ \t]{0,4}(?:✗ )?(?:fatal|panic|error|Error|ERROR|FAILURE)(?:\[\w+\])?: ",
    r"BUILD FAIL|Segmentation fault|Killed\b|Aborted\b|Uncaught |Unhandled |make(?:\[\d+\])?: \*\*\*",
    r"test result: FAILED|command timed out|[1-9]\d* issues?:$",
    r"=+ [^\n]{0,120}\b[1-9]\d* (?:failed|errors?)\b",
    r"[ \t]{0,4}Tests?:?[^\n]{0,80}\b[1-9]\d* failed",
    before="^",
    flags=re.MULTILINE,
)
_COMPLAINT = _one_of(
    r": (?:command not found|[Pp]ermission denied|No such file or directory|(?:Is|Not) a directory)$",
    r": (?:command not found: |No module named )",
    r": (?:fatal )?error(?: [A-Z]{1,4}\d+)?: ",
    r"\bERROR task failed",
    r": cannot (?:open|access|stat|create|remove) ",
    r": can't (?:open|read) ",
    flags=re.MULTILINE,
)
# What a program that only shows things says of itself: its name, and what it could not do.
_OWN_ERROR = _one_of(
    r"[^\n]*: (?:command not found|[Pp]ermission denied|No such file or directory|(?:Is|Not) a directory)\b",
    r"[^\n]*\b(?:cannot|can't|could not|unable to|no matches found|unrecognized|unknown|illegal) ",
    r"[^\n]*\b(?:[Ii]nvalid|[Uu]nmatched) ",
    r"[^\n]*\b(?:parse|syntax) error\b| (?:error|fatal|failed)\b",
    flags=re.MULTILINE,
)
# How runners of tests, linters and builds sum a run up.
_SUMMARY = _one_of(
    r"[ \t=]*(?P<passed>\d+ (?:pass|passed|passing)\b[^\n]*)",
    r"(?P<ok>ok  ?\t?\S+\t|ok\s+\S+\s+(?:[\d.]+s|\(cached\))|PASS$|OK(?: \(.*\))?$|test result: ok\.|BUILD SUCCESS)",
    r"(?P<clean>All checks passed|Success: no issues found|(?:✔ )?[Nn]o (?:issues|problems|errors|warnings) found"
    r"|Found 0 (?:errors|warnings)|0 (?:issues|errors|problems)\b|\d+ files? (?:already formatted|left unchanged))",
    r"[ \t]{0,4}(?P<tests>Tests?:?[ \t][^\n]{0,80}\b\d+ passed\b[^\n]{0,80})",
    before="^",
    flags=re.MULTILINE,
)
_FAILED_COUNT = re.compile(r"\b[1-9]\d* (?:fail|failed|failing|failures?|errors?)\b")
_FAILED_SUMMARY = _one_of(
    r"[ \t=]*[1-9]\d* (?:fail|failed|failing|errors?)\b",
    r"=+ [^\n]{0,120}\b[1-9]\d* (?:failed|errors?)\b",
    r"[ \t]{0,4}Tests?:?[^\n]{0,80}\b[1-9]\d* failed",
    r"FAIL(?:$|\t| {1,4}\S)|FAILED\b|--- FAIL|test result: FAILED|BUILD FAIL|not ok \d|\(fail\) ",
    r"[1-9]\d* issues?:$|[^\n]{0,40}\bERROR task failed|error: script |npm (?:ERR!|error) |Found [1-9]\d* error",
    r"make(?:\[\d+\])?: \*\*\*|Traceback \(most recent call last\)|panic: ",
    before="^",
    flags=re.MULTILINE,
)
# What a runner says that failed, though whoever started it did not.
_RUNNER_FAILED = _one_of(
    r"FAILED \((?:errors|failures)=|--- FAIL: |test result: FAILED|[ \t=]*[1-9]\d* fail(?:ed|ing)?\b",
    r"[ \t]{0,4}Tests?:?[^\n]{0,80}\b[1-9]\d* failed",
    before="^",
    flags=re.MULTILINE,
)
_SHELL_NAMES = ("bash", "sh", "zsh", "(eval)", "-bash")
_SAID = "the user said:"
_LAST_LINE_IS_ERROR = re.compile(r"\n?[ \t]*[\w.]*(?:Error|Exception)(?::|\b[ (]|$)[^\n]*\s*\Z")


def exit_code_of(text: str) -> int | None:
    """The exit code that an agent printed around a command's output, or the tool as its first or last words."""
    output = unwrap(text)
    return _code_in(output.body) if output.exit_code is None else output.exit_code


def is_refusal(text: str) -> bool:
    """Whether a result says that the user, or a rule of the user's, did not let the call run."""
    return _REFUSED.match(text[:300]) is not None


def was_not_run(text: str) -> bool:
    """Whether a result only says that its call was interrupted, or never ran because another one failed."""
    if len(text) >= _SHORT_ANSWER or _STOPPED.search(text[:300]) is None:
        return False
    return _NOT_RUN.match(unwrap(text).body[:300]) is not None and _SAID not in text


def has_failed(call: ToolCall | None, result: ToolResult) -> bool:
    """Whether a result is that of a failed attempt."""
    text = result.text
    if was_not_run(text):
        return False
    parsed = parse_call(call) if call else None
    if result.is_error or is_refusal(text):
        return is_refusal(text) or not (parsed and parsed.command is not None and _answers_no(parsed, text))
    if parsed is None:
        return _opens_with_error(text)
    if parsed.command is not None:
        return _command_failed(parsed, text)
    if parsed.reads or any(word in parsed.tool for word in ("grep", "glob", "search", "fetch", "find", "list")):
        return len(text) < _SHORT_ANSWER // 3 and _opens_with_error(text)
    says_so = _EDIT_FAILED.search(text[:600]) is not None if parsed.writes else _says_error(text)
    return says_so or bool(exit_code_of(text)) or _opens_with_error(text)


def has_passed(text: str) -> bool:
    """Whether a run of tests, a linter or a build sums itself up as passed, whatever else it printed."""
    body = text[-_TAIL:]
    return _passing_summary(body) is not None and _FAILED_SUMMARY.search(body) is None


def _code_in(body: str) -> int | None:
    head, tail = body[:120], body[-200:]
    if "ode" not in head and "ode" not in tail and "tatus" not in tail:
        return None
    found = _CODE_IN_WORDS.match(head.lstrip("([<* ")) or _CODE_AS_FIELD.search(head) or _CODE_AS_FIELD.search(tail)
    last = tail.rstrip().rpartition("\n")[2]
    found = found or _CODE_IN_TAG.search(tail) or (_CODE_IN_WORDS.search(last) if len(last) < 80 else None)
    return int(found[1]) if found else None


def is_read_only(steps: tuple[ShellStep, ...]) -> bool:
    """Whether a command only shows what is there, so that its output is somebody else's words."""
    return all(
        not step.words or step.program in _READ_ONLY_PROGRAMS or not _READ_ONLY_COMMANDS.isdisjoint(step.words[1:4])
        for step in steps
    )


def _command_failed(parsed: ParsedCall, text: str) -> bool:
    output = unwrap(text)
    code = _code_in(output.body) if output.exit_code is None else output.exit_code
    if code and not _answers_no(parsed, text):
        return True
    if code == 0 and is_one_chain(parsed.command or ""):
        return _RUNNER_FAILED.search(output.body[-_TAIL:]) is not None and not is_read_only(parsed.steps)
    if is_read_only(parsed.steps):
        return _complains(parsed, output.body) and not _is_not_there(parsed, output.body)
    return _shows_failure(output.body) and not has_passed(output.body)


def _answers_no(parsed: ParsedCall, text: str) -> bool:
    """Whether a code other than 0 is the answer: no match, a difference, a file that is not there."""
    output = unwrap(text)
    code = _code_in(output.body) if output.exit_code is None else output.exit_code
    steps = [step for step in parsed.steps if step.words]
    if not steps or code == 0:
        return False
    if code == 1 and _ASKS_FOR_PROGRAM.search(parsed.command or ""):
        return True
    if not output.body.strip() and _is_not_there(parsed, ""):
        return True
    if not is_read_only(parsed.steps):
        return code == 1 and _says_no(steps[-1]) and not _shows_failure(output.body)
    if code in (None, 1) and _says_no(steps[-1]) and not _complains(parsed, output.body):
        return True
    return _is_not_there(parsed, output.body)


def _says_no(step: ShellStep) -> bool:
    if step.program == "git":
        return not _GIT_ANSWERS.isdisjoint(step.words[1:4])
    return step.program in _NO_MATCH


def _is_not_there(parsed: ParsedCall, body: str) -> bool:
    """Whether a command that looks for files has nothing to complain of but that some are not there."""
    steps = [step for step in parsed.steps if step.words and step.program not in _SHOWS_WHERE]
    if (
        not steps
        or steps[0].program not in _SEARCH_PROGRAMS
        or not all(step.piped or step.program in _SEARCH_PROGRAMS for step in steps)
    ):
        return False
    names = tuple(f"{name}:" for name in (*(step.program for step in steps), *_SHELL_NAMES))
    return all(_NOT_THERE.search(line) for line in body.strip().split("\n") if line.startswith(names))


def _passing_summary(text: str) -> re.Match[str] | None:
    """The last line that sums a run up as passed; one with failures in it does not."""
    found = None
    for found in _SUMMARY.finditer(text):
        if _FAILED_COUNT.search(found[0]):
            return None
    return found


def _complains(parsed: ParsedCall, body: str) -> bool:
    """A program that only shows things has its own trouble in one or two lines, not amid what it shows."""
    if len(body) > 600 or body.count("\n") > 3:
        return False
    if body.startswith(("fatal: ", "error: ", "Error: ")) or _says_error(body):
        return True
    names = (*(step.program for step in parsed.steps if step.words), *_SHELL_NAMES)
    return any(
        line.startswith(f"{name}:") and _OWN_ERROR.match(line, len(name) + 1) is not None
        for line in body.split("\n")
        for name in names
    )


def _shows_failure(text: str) -> bool:
    if len(text) > _HEAD + _TAIL:
        return _part_shows_failure(text[:_HEAD]) or _part_shows_failure(text[-_TAIL:])
    return _part_shows_failure(text)


def _part_shows_failure(text: str) -> bool:
    if not any(sign in text for sign in _SIGNS):
        return False
    end = text[-600:].rstrip()
    ends_with_error = _LAST_LINE_IS_ERROR.match(end, max(end.rfind("\n"), 0))
    return bool(_FAILED_LINE.search(text) or _COMPLAINT.search(text) or ends_with_error) or _says_error(text)


def _opens_with_error(text: str) -> bool:
    return len(text) < _SHORT_ANSWER and _OPENS_WITH_ERROR.match(text[:400]) is not None


def _says_error(text: str) -> bool:
    """A JSON answer that is itself an error says so in its first fields."""
    start = text[:400].lstrip()[:200]
    return start.startswith(("{", "[")) and _SAYS_ERROR.search(start) is not None


_KINDS = {
    "test": "test tests pytest tox nox jest vitest mocha rspec phpunit unittest verify ci e2e spec",
    "lint": "lint check typecheck vet clippy mypy pyright ruff eslint tsc golangci-lint biome staticcheck",
    "build": "build compile",
    "format": "fmt format prettier gofmt",
}
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split()}
# Their first word that is no option says what they run.
_HOSTS = frozenset(
    "go npm pnpm yarn bun deno mise make just task cargo gradle gradlew mvn dotnet poe hatch rake bazel swift".split()
)
_INSTALLS = frozenset("install add i get ci require".split())
_FILTERS = frozenset("-run --run -k -t -test.run --grep --filter --test-name-pattern --testnamepattern --test".split())
_MODES = frozenset("-tags --tags --features --project --config --settings --env --workspace --profile --target".split())
_ALL = frozenset(("", ".", "./", "...", "./...", "--"))
_ALL_MODES = (":ci", ":all", ":full", " ci", " all")
_RUNS_TESTS = re.compile(r"(?:^|/)(?:run_?)?tests?(?:\.(?:sh|py|js|ts))?$|(?:^|/)run_?tests?\b")
# The value of an option that says how to run, not what: `-timeout 30s`, `-n 4`.
_VALUE = re.compile(r"\d+(?:ms|[smh])?")
_PYTHON = re.compile(r"python[\d.]*$")


class Check(Struct, frozen=True):
    """One run: `modes` change what is there to run, `paths` and `filters` name a part of it; none means all."""

    runner: str
    kind: str
    modes: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    filters: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether it runs everything that its runner has."""
        return not self.paths and not self.filters and not self.modes


def checks_in(steps: Iterable[ShellStep]) -> list[Check]:
    """The tests, linters and builds that a command line runs."""
    return [check for step in steps if (check := check_of(step))]


def is_check(command: str) -> bool:
    """Whether a command runs tests, a linter or a build: something that is run again however it ended."""
    return bool(checks_in(split_command(command)))


def check_of(step: ShellStep) -> Check | None:
    """What a step checks, if it does."""
    if not step.words or step.piped or is_read_only((step,)):
        return None
    words = _without_python(step)
    at = _host_length(words)
    named, rest = words[:at], words[at:]
    kind = _check_kind(named)
    if not kind or any(word in _INSTALLS for word in (*named[1:2], *rest[:1])):
        return None
    modes, paths, filters = _sorted_words(rest)
    return Check(" ".join(named), kind, modes, paths, filters)


def _without_python(step: ShellStep) -> tuple[str, ...]:
    words = (step.program, *step.words[1:])
    if _PYTHON.match(step.program) and len(words) > 1:
        return words[2:] if words[1] == "-m" and len(words) > 2 else words[1:]
    return words


def _host_length(words: tuple[str, ...]) -> int:
    """How many words name the runner: `pytest`, `go test`, `npm run lint`."""
    if words[0] not in _HOSTS:
        return 1
    at = next((at for at, word in enumerate(words[1:], 1) if not word.startswith("-")), len(words) - 1)
    return at + 2 if words[at] == "run" and at + 1 < len(words) else at + 1


def _check_kind(named: tuple[str, ...]) -> str:
    for word in reversed(named):
        kind = _KIND_OF.get(word.partition(":")[0].rpartition("/")[2])
        if kind:
            return kind
    return "test" if _RUNS_TESTS.search(named[-1]) else ""


def _sorted_words(words: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    modes, paths, filters = set[str](), set[str](), set[str]()
    waiting: set[str] | None = None
    for word in words:
        option, has_value, value = word.partition("=")
        if waiting is not None:
            waiting.add(word)
            waiting = None
        elif option in _FILTERS or option in _MODES:
            group = filters if option in _FILTERS else modes
            if has_value:
                group.add(value)
            else:
                waiting = group
        elif not word.startswith("-") and word not in _ALL and not _VALUE.fullmatch(word):
            paths.add(word.removeprefix("./").removesuffix("/...").rstrip("/"))
    return frozenset(modes), frozenset(paths), frozenset(filters)


def covers_check(later: Check, earlier: Check) -> bool:
    """Whether a later run runs all that an earlier one ran."""
    is_built = (later.kind, earlier.kind) == ("test", "build")
    is_part = later.kind == earlier.kind and not earlier.is_whole
    if later.is_whole and (is_built or is_part) and _has_modes(later, earlier.modes):
        return True
    if later.runner != earlier.runner or later.modes != earlier.modes:
        return False
    if not all(any(part in whole for whole in earlier.filters) for part in later.filters):
        return False
    return not later.paths or (bool(earlier.paths) and all(_is_below(path, later.paths) for path in earlier.paths))


def _has_modes(later: Check, modes: frozenset[str]) -> bool:
    """Whether a run of everything has what modes add: `test:integration` has, and `test:ci` has all there is."""
    return later.runner.endswith(_ALL_MODES) or all(mode in later.runner for mode in modes)


def _is_below(path: str, folders: frozenset[str]) -> bool:
    return any(path == folder or path.startswith((f"{folder}/", f"{folder}::")) for folder in folders)
