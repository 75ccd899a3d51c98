"""Failed attempts, and what came of them: open, resolved by something later, or given up."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from posixpath import basename

from msgspec import Struct, structs

from context_compactor.dialects.client_text import is_client_text, without_client_blocks
from context_compactor.dialects.messages import Text, ToolCall
from context_compactor.dialects.turns import ToolUse, Turn
from context_compactor.facts.calls import (
    CHANGE_FOLDER,
    READ_TOOLS,
    WRITE_TOOLS,
    ParsedCall,
    background_id,
    is_own_tool,
    parse_call,
    polled_id,
)
from context_compactor.facts.fact import Fact
from context_compactor.facts.kinds import reference_of
from context_compactor.facts.outcomes import (
    Check,
    checks_in,
    covers_check,
    has_failed,
    has_passed,
    is_check,
    is_read_only,
    is_refusal,
    was_not_run,
)
from context_compactor.facts.outputs import error_lines
from context_compactor.facts.shell import ShellStep, split_command
from context_compactor.text import clip

OPEN, RESOLVED, GIVEN_UP = "open", "resolved", "given up"
_NEAR = 8
_RECENT = 10
_MOST_RUNS = 60
_ALIKE = 0.6
_SHARED = 0.35
_MOST_FILES = 2
_SAID_LENGTH = 90
_SHOWN_COMMAND = 60
_CUT = "…"
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]?")
_TEST_NAME = re.compile(r"(?:--- FAIL: |FAIL: |::)(\w+)")
# An error in a program's text: whatever is run of it shows that it is gone.
_COMPILED = re.compile(r"\.\w+:\d+:\d+: |\.\w+\(\d+,\d+\): error|build failed")
_ALL: frozenset[str] = frozenset()
_TOOL_LINE = re.compile(r"([A-Za-z]\w*) ([^:{\s][^:{]*?)(?:: .*)?$", re.DOTALL)
_TOOL_JSON = re.compile(r"([A-Za-z]\w*) \{")
_INSTALLERS = frozenset(
    "pip pip3 uv poetry npm pnpm yarn bun cargo go gem bundle brew apt apt-get apk dnf yum conda mise".split()
)
_INSTALLS = frozenset("install add i get sync".split())
MISSING = re.compile(
    r"(?:command not found:? ?|No module named ['\"]?|Cannot find module ['\"]?|not installed)([\w.@/-]*)",
    re.IGNORECASE,
)
"""An error that says that something is not there to be run or imported, with its name."""
# A command that was written wrongly: it says nothing of what it was to check.
_SLIP = re.compile(
    r"unknown (?:shorthand )?(?:flag|option|command)|unrecognized (?:argument|option)|no (?:such )?task|missing script"
    r"|no such (?:command|option|file or directory)|directory not found|constraints exclude|usage:",
    re.IGNORECASE,
)
_CONFLICT = re.compile(r"CONFLICT |could not apply|Automatic merge failed|conflicts? in ")
_INTERPRETERS = frozenset("python node bash sh zsh ruby perl bun deno tsx ts-node go npx cat".split())
_CUTS = frozenset("head grep egrep rg sed awk wc cut jq".split())
_OTHER_STATE = frozenset("stash checkout switch worktree bisect".split())
# What a user says of a way that is not to be followed, and an agent of one that it leaves.
_USER_TURNS = re.compile(
    r"\b(?:instead|rather|don['\u2019]?t|do not|stop|forget (?:it|that|about)|skip|leave (?:it|that)|never ?mind"
    r"|revert|undo|no need|let['\u2019]?s not|another way|different(?:ly)?|hides?|wrong way|not that)\b",
    re.IGNORECASE,
)
_AGENT_TURNS = re.compile(
    r"\b(?:let(?:['\u2019]?s| me)|I['\u2019](?:ll|m)|I (?:will|can|need|should)|we (?:can|need|should)|actually)\b.*"
    r"\b(?:instead(?! of)|try|simpl(?:er|ify)|(?:different|another|alternative|other) (?:approach|way|method)"
    r"|fall back|skip|give up|revert|work around|without)\b"
    r"|\b(?:does|do|did|will|wo|is|are)(?:n['\u2019]?t| not) (?:work|available|installed|possible|supported)\b"
    r"|\bcan(?:['\u2019]?t|not) (?:use|run|install|import)\b",
    re.IGNORECASE,
)


class CallAttempt(Struct, frozen=True):
    """A call that was answered: in which turn, what it asked for, and whether it failed."""

    turn: int
    call: ToolCall
    parsed: ParsedCall
    checks: tuple[Check, ...]
    has_failed: bool
    answer: str


class Resolution(Struct, frozen=True):
    """What came of a failure, and in a few words how that can be seen."""

    status: str
    how: str = ""


class CallTimeline:
    """The calls of a history in order, so that a failure can be followed to what came of it."""

    def __init__(self, turns: Sequence[Turn], failed: Iterable[int]) -> None:
        gone = frozenset(failed)
        self._attempts: list[CallAttempt] = []
        self._at: dict[int, int] = {}
        self._texts: dict[int, tuple[str, str]] = {}
        started: dict[str, ToolCall] = {}
        for turn in turns:
            speaker = {"assistant": "agent", "user": "" if turn.exchanges else "user"}.get(turn.role, "")
            self._texts[turn.number] = (speaker, _text_of(turn))
            for exchange in turn.exchanges:
                call, result = exchange.call, exchange.result
                if call is None or result is None or exchange.is_lost or is_own_tool(call) or was_not_run(result.text):
                    continue
                call = started.get(polled_id(call), call)
                running = background_id(result.text)
                if running and exchange.number not in gone:
                    started[running] = call
                    continue
                parsed = parse_call(call)
                self._at[exchange.number] = len(self._attempts)
                checks = tuple(checks_in(parsed.steps))
                self._attempts.append(
                    CallAttempt(turn.number, call, parsed, checks, exchange.number in gone, result.text)
                )
        self._index()

    def _index(self) -> None:
        self._worked: dict[object, list[int]] = defaultdict(list)
        self._runs: dict[str, list[int]] = defaultdict(list)
        self._writes: list[int] = []
        for at, attempt in enumerate(self._attempts):
            for kind in {check.kind for check in attempt.checks}:
                self._runs[kind].append(at)
            if not attempt.has_failed and not (attempt.checks and not _shows_pass(attempt)):
                for key in _keys(attempt.call, attempt.parsed):
                    self._worked[key].append(at)
                if attempt.parsed.writes or _installs(attempt.parsed):
                    self._writes.append(at)

    def of(self, exchange: int, turn: int, error: str) -> Resolution:
        """What came of a failed exchange."""
        at = self._at.get(exchange)
        if at is None:
            is_left = len(self._attempts) > _RECENT and self._attempts[-_RECENT].turn > turn
            return Resolution(GIVEN_UP if is_left else OPEN)
        attempt = self._attempts[at]
        if _CONFLICT.search(error) and (merged := self._merged(at)):
            return merged
        if how := self._resolved(attempt, at, error):
            return Resolution(RESOLVED, how)
        if said := self._given_up(attempt.turn):
            return Resolution(GIVEN_UP, said)
        is_check = bool(attempt.checks) and not MISSING.search(error) and not _SLIP.search(error)
        if is_check or len(self._attempts) - at <= _RECENT:
            return Resolution(OPEN)
        return Resolution(GIVEN_UP, "not tried again")

    def later(self, tried: str, error: str) -> str:
        """How the calls of this history resolve something that failed before it, known by its line alone."""
        call = _call_of(tried)
        parsed = parse_call(call)
        attempt = CallAttempt(0, call, parsed, tuple(checks_in(parsed.steps)), True, "")
        how = self._resolved(attempt, -1, error)
        if not how and tried.endswith(_CUT) and parsed.command is not None:
            start = " ".join(tried.removesuffix(_CUT).split())
            at = next((at for at, each in enumerate(self._attempts) if _begins(each, start)), None)
            how = f"passed in turn {self._attempts[at].turn}{self._after(-1, at)}" if at is not None else ""
        return how

    def _resolved(self, attempt: CallAttempt, at: int, error: str) -> str:
        if attempt.checks and not _SLIP.search(error):
            return self._passed(attempt, at, error) or self._repeated(attempt, at, error) or self._installed(at, error)
        how = self._repeated(attempt, at, error) or self._installed(at, error) or self._passed(attempt, at, error)
        return how or (self._corrected(attempt, at) if at >= 0 else "")

    def _merged(self, at: int) -> Resolution | None:
        """How the conflicts of a merge or rebase ended."""
        for attempt in self._attempts[at + 1 :]:
            words = {word for step in attempt.parsed.steps if step.program == "git" for word in step.words[1:6]}
            if "--abort" in words:
                return Resolution(GIVEN_UP, f"aborted in turn {attempt.turn}")
            if not attempt.has_failed and words & {"commit", "--continue"}:
                return Resolution(RESOLVED, f"conflicts settled, committed in turn {attempt.turn}")
        return None

    def _installed(self, at: int, error: str) -> str:
        """The installation of what an error says is missing."""
        missing = MISSING.search(error)
        name = missing[1].partition(".")[0].rpartition("/")[2] if missing else ""
        for later in self._writes[bisect_right(self._writes, at) :] if name else ():
            attempt = self._attempts[later]
            if _installs(attempt.parsed) and name in _words(attempt):
                return f"`{_short(attempt)}` in turn {attempt.turn}"
        return ""

    def _passed(self, attempt: CallAttempt, at: int, error: str) -> str:
        """How a later run of the same tests, linter or build ended, as far as it speaks for this one."""
        wanted = [check for check in attempt.checks if check.kind != "format"] or list(attempt.checks)
        names = _TEST_NAME.findall(error)
        is_compiled = not names and _COMPILED.search(error) is not None
        for kind in dict.fromkeys(check.kind for check in wanted):
            runs = self._runs[kind] + (self._runs["test"] if kind == "build" else [])
            for later in sorted(runs)[bisect_right(sorted(runs), at) :][:_MOST_RUNS]:
                run = self._attempts[later]
                ran = [structs.replace(each, filters=_ALL) for each in run.checks] if is_compiled else run.checks
                same = [check for check in wanted if any(covers_check(each, check) for each in ran)]
                if same and _shows_pass(run):
                    wanted = [check for check in wanted if check not in same]
                    if not wanted:
                        return f"{_run_name(run, attempt)}passed in turn {run.turn}{self._after(at, later)}"
                elif names and all(_passes_by_name(run, name) for name in names):
                    return f"{names[0]} passed in turn {run.turn}{self._after(at, later)}"
                elif same and run.has_failed and _is_gone(error, run):
                    return f"no longer in the run of turn {run.turn}{self._after(at, later)}"
        return ""

    def _repeated(self, attempt: CallAttempt, at: int, error: str) -> str:
        for key in _keys(attempt.call, attempt.parsed, error):
            places = self._worked.get(key, [])
            later = places[bisect_right(places, at)] if bisect_right(places, at) < len(places) else None
            if later is None:
                continue
            found = self._attempts[later]
            if attempt.parsed.writes and attempt.parsed.command is None:
                return f"applied in turn {found.turn}{self._read_again(at, later, attempt.parsed)}"
            if isinstance(key, tuple) and key[0] == "look":
                shown = next((path for path in found.parsed.paths if basename(path) == key[1]), "")
                moved = shown and shown not in attempt.parsed.paths
                return f"found at {shown} in turn {found.turn}" if moved else f"read in turn {found.turn}"
            verb = "passed" if attempt.parsed.command is not None else "worked"
            return f"{verb} in turn {found.turn}{self._after(at, later)}"
        return ""

    def _corrected(self, attempt: CallAttempt, at: int) -> str:
        """A call soon after that is nearly the same and worked."""
        words = _words(attempt)
        for later in range(at + 1, min(at + 1 + _NEAR, len(self._attempts))):
            found = self._attempts[later]
            if found.has_failed or not _is_variant(attempt, found):
                continue
            other = _words(found)
            if len(words & other) >= max(_ALIKE * min(len(words), len(other)), _SHARED * len(words)):
                return f"worked in turn {found.turn} as `{_short(found)}`"
        return ""

    def _after(self, at: int, later: int) -> str:
        """What was changed between a failure and what made it good."""
        between = self._writes[bisect_right(self._writes, at) : bisect_right(self._writes, later - 1)]
        files = dict.fromkeys(basename(path) for each in between for path in self._attempts[each].parsed.paths)
        own = {basename(path) for path in self._attempts[later].parsed.paths}
        named = [name for name in files if name and name not in own]
        if named:
            more = f" and {len(named) - _MOST_FILES} more" if len(named) > _MOST_FILES else ""
            return f" after editing {', '.join(named[-_MOST_FILES:])}{more}"
        installs = [self._attempts[each] for each in between if _installs(self._attempts[each].parsed)]
        return f" after `{_short(installs[-1])}`" if installs else ""

    def _read_again(self, at: int, later: int, parsed: ParsedCall) -> str:
        names = {basename(path) for path in parsed.paths}
        between = self._attempts[at + 1 : later]
        is_read = any(each.parsed.reads and names & set(map(basename, each.parsed.paths)) for each in between)
        return " after reading the file again" if is_read else ""

    def _given_up(self, turn: int) -> str:
        """Who said right after a failure that another way is to be taken, with the words."""
        for number in range(turn + 1, turn + 3):
            who, text = self._texts.get(number, ("", ""))
            cue = {"user": _USER_TURNS, "agent": _AGENT_TURNS}.get(who)
            sentence = _sentence_with(cue, text) if cue else ""
            if sentence:
                return f'{who}: "{sentence}"'
            if who == "user" and text:
                return ""
        return ""


def _text_of(turn: Turn) -> str:
    texts = [part.text for message in turn.messages for part in message.parts if isinstance(part, Text)]
    return "\n".join(without_client_blocks(text)[:1_500] for text in texts if not is_client_text(text)).strip()


def _sentence_with(cue: re.Pattern[str], text: str) -> str:
    for sentence in _SENTENCE.findall(text[:1_500]):
        if cue.search(sentence):
            words = " ".join(sentence.split())
            return words if len(words) <= _SAID_LENGTH else words[:_SAID_LENGTH].rstrip() + _CUT
    return ""


def _keys(call: ToolCall, parsed: ParsedCall, error: str | None = None) -> list[object]:
    """What a call is about, in ways that another call about the same shares.

    Of several steps the last is the one that worked; it is the one that failed if the error speaks of it.
    """
    if parsed.command is not None:
        exact, last = _plain(parsed.steps), _plain(parsed.steps[-1:])
        if error is not None and not any(word.lower() in error.lower() for word in last[:2] if len(word) > 2):
            last = ()
        keys: list[object] = [("run", *words) for words in dict.fromkeys((exact, last)) if words]
    elif parsed.writes:
        return [("write", path) for path in parsed.paths] or [("tool", call.name, call.arguments)]
    else:
        keys = [] if parsed.reads else [("tool", call.name, call.arguments)]
    looks = parsed.reads and (parsed.command is None or is_read_only(parsed.steps))
    return [*keys, *(("look", basename(path)) for path in parsed.paths)] if looks else keys


def _plain(steps: Sequence[ShellStep]) -> tuple[str, ...]:
    """The words of what a command line does, without where it is done and how much of it is shown."""
    worded = [step for step in steps if step.words]
    done = [step for step in worded if not is_read_only((step,))] or worded
    words = (word for step in done for word in (step.program, *step.words[1:]) if step.program != "cd")
    return tuple("python" if word == "python3" else word for word in words)


def _installs(parsed: ParsedCall) -> bool:
    steps = (step for step in parsed.steps if step.words)
    return any(
        _INSTALLS.intersection(step.words[1:4])
        and (step.program in _INSTALLERS or step.words[1:3] in (("-m", "pip"), ("-m", "uv")))
        for step in steps
    )


def _passes_by_name(run: CallAttempt, test: str) -> bool:
    if f"--- PASS: {test}" in run.answer:
        return True
    words = [word for check in run.checks for word in (*check.filters, *check.paths)]
    wider = [word.strip("^$") for check in run.checks for word in check.filters]
    named = any(test in word for word in words) or any(len(word) > 3 and word in test for word in wider)
    return named and _shows_pass(run)


def _shows_pass(run: CallAttempt) -> bool:
    """Whether a run can be seen to have passed: it says so, or all of its end is there and nothing failed in it."""
    if run.has_failed or any(step.words and _OTHER_STATE.intersection(step.words[1:3]) for step in run.parsed.steps):
        return False
    is_cut = any(step.piped and step.program in _CUTS for step in run.parsed.steps)
    return "no tests to run" not in run.answer[-400:] and (not is_cut or has_passed(run.answer))


def _is_gone(error: str, run: CallAttempt) -> bool:
    """Whether a run that failed says nothing of an earlier error any more; one that is not shown whole may hide it."""
    if any(step.piped for step in run.parsed.steps):
        return False
    start = error.partition(" … ")[0].strip()[:40]
    return len(start) > 12 and start not in run.answer and len(run.answer) > 200


def _run_name(run: CallAttempt, attempt: CallAttempt) -> str:
    """The run that passed, where it is another one than that which failed."""
    runners = {check.runner for check in attempt.checks}
    if any(check.runner in runners for check in run.checks):
        return ""
    other = next((each for each in run.checks if any(covers_check(each, check) for check in attempt.checks)), None)
    return f"`{other.runner}` " if other else ""


def _is_variant(attempt: CallAttempt, found: CallAttempt) -> bool:
    """Whether a call is made with the same program or tool, for the same part of its work."""
    one, other = attempt.parsed, found.parsed
    if (one.command is None) != (other.command is None):
        return False
    if one.command is None:
        return attempt.call.name == found.call.name and not one.writes
    first, second = _head(one.steps), _head(other.steps)
    return bool(first) and first == second


def _head(steps: Sequence[ShellStep]) -> tuple[str, ...]:
    """The program that a command line runs, with the script or the part of it that is asked for."""
    words = _plain(steps)
    if not words or is_read_only(tuple(steps)):
        return words[:1]
    part = (word for before, word in pairwise(words) if not word.startswith("-") and before not in ("-C", "-R", "-m"))
    return words[:2] if words[0] in _INTERPRETERS else (words[0], next(part, ""))


def _words(attempt: CallAttempt) -> set[str]:
    text = attempt.parsed.command if attempt.parsed.command is not None else attempt.call.arguments
    return set(_WORD.findall(text[:2_000]))


def _short(attempt: CallAttempt) -> str:
    text = attempt.parsed.command if attempt.parsed.command is not None else attempt.call.name
    if attempt.parsed.command is None and attempt.parsed.paths:
        text = f"{text} {attempt.parsed.paths[0]}"
    line = re.sub(r"^cd \S+ (?:&&|;) ", "", " ".join(text.split()))
    return line if len(line) <= _SHOWN_COMMAND else line[:_SHOWN_COMMAND].rstrip() + _CUT


def _begins(attempt: CallAttempt, start: str) -> bool:
    command = attempt.parsed.command
    return command is not None and not attempt.has_failed and " ".join(command.split()).startswith(start)


def _call_of(tried: str) -> ToolCall:
    """A call as far as its wording tells it."""
    named = _TOOL_LINE.match(tried)
    if named and named[1].lower().replace("_", "") in READ_TOOLS | WRITE_TOOLS:
        return ToolCall("", named[1], json.dumps({"file_path": named[2].split(", ")[0]}))
    tool = _TOOL_JSON.match(tried)
    if tool:
        return ToolCall("", tool[1], tried[len(tool[1]) + 1 :])
    return ToolCall("", "Bash", json.dumps({"command": tried}))


COMMAND_LENGTH = 160
_MARK = "[failed: "
_SOUGHT_LENGTH = 70
_LINE_BREAK = re.compile(r"[ \t\r]*\n\s*")
_PLACE = re.compile(r"::\w|--- FAIL: |\(fail\) |\w:\d+")
_DURATION = re.compile(r"\b\d+(?:\.\d+)?(?:ms|s)\b")
_OLD_TEXT = ("old_string", "old_str", "old_text", "oldText", "search")


class Failure(Struct, frozen=True):
    """One failed attempt: what was tried, what it answered, and what came of it. `turn` is 0 when it is not known."""

    command: str
    error: str
    exchange: int
    turn: int = 0
    denied: bool = False
    ref: str = ""
    status: str = OPEN
    outcome: str = ""
    """What resolved it, or who gave it up, in a few words."""


def failure_of(exchange: ToolUse, turn: int = 0) -> Failure | None:
    """The failure an exchange ended in, if it did."""
    result = None if is_own_tool(exchange.call) or exchange.is_lost else exchange.result
    known = marked_error(result.text) if result else ""
    if result is None or not (known or has_failed(exchange.call, result)):
        return None
    command = call_text(exchange.call)
    error = known or error_lines(result.text)
    return Failure(command, error, exchange.number, turn, is_refusal(result.text), reference_of(exchange))


def failed_mark(error: str) -> str:
    """The line that heads a failed result which was shortened, so that it is still known as one."""
    return f"{_MARK}{error}]"


def marked_error(text: str) -> str:
    """The error that such a line tells."""
    return text[len(_MARK) : text.find("]\n")] if text.startswith(_MARK) and "]\n" in text else ""


def find_failures(turns: Sequence[Turn]) -> list[Failure]:
    """Every failed attempt of a history, in order, with what came of it.

    One in the background is told as the command it began with.
    """
    found: list[Failure] = []
    started: dict[str, str] = {}
    for turn in turns:
        for exchange in turn.exchanges:
            started.pop("", None)
            failure = failure_of(exchange, turn.number)
            if failure:
                begun = started.get(polled_id(exchange.call), "")
                found.append(structs.replace(failure, command=begun) if begun else failure)
            elif exchange.call and exchange.result and parse_call(exchange.call).command is not None:
                started[background_id(exchange.result.text)] = call_text(exchange.call)
    timeline = CallTimeline(turns, (failure.exchange for failure in found)) if found else None
    ends = [timeline.of(each.exchange, each.turn, each.error) for each in found] if timeline else []
    return [structs.replace(each, status=end.status, outcome=end.how) for each, end in zip(found, ends, strict=True)]


def resolve_facts(facts: Iterable[Fact], turns: Sequence[Turn]) -> list[Fact]:
    """The facts, with failures from before some turns resolved as far as these turns show it."""
    facts = list(facts)
    waiting = [fact for fact in facts if fact.kind == "failure" and fact.status != RESOLVED]
    if not waiting or not turns:
        return facts
    timeline, first = timeline_of(turns), min(turn.number for turn in turns)
    return [
        _resolved(fact, timeline) if fact in waiting and max(fact.turn, fact.last_turn) < first else fact
        for fact in facts
    ]


def timeline_of(turns: Sequence[Turn]) -> CallTimeline:
    """The calls of some turns, by which failures from before them can be followed."""
    failed = [each.number for turn in turns for each in turn.exchanges if failure_of(each, turn.number)]
    return CallTimeline(turns, failed)


def _resolved(fact: Fact, timeline: CallTimeline) -> Fact:
    how = timeline.later(fact.content, fact.detail)
    return structs.replace(fact, status=RESOLVED, outcome=how) if how else fact


def may_repeat(fact: Fact) -> bool:
    """Whether what failed may be done again: it worked since, or it is a test, linter or build that still fails."""
    return fact.status == RESOLVED or (fact.status in ("", OPEN) and is_check(fact.content))


def merge_failures(failures: Sequence[Failure]) -> list[Fact]:
    """One fact for each different failure, with how often and when it was seen, in the order of the first."""
    return [_failure_fact(group) for group in group_failures(failures)]


def group_failures(failures: Sequence[Failure]) -> list[list[Failure]]:
    """The failures, those together that are one: the same error of the same command, however much of it was shown.

    A test or a line that fails is the same whatever else ran; what is missing is missing for all that need it.
    """
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((_family(failure), _DURATION.sub("", failure.error)), []).append(failure)
    return list(groups.values())


def _family(failure: Failure) -> str:
    steps = [step for step in split_command(failure.command) if step.words and step.program != "cd"]
    if steps and MISSING.search(failure.error):
        return steps[-1].program.removesuffix("3")
    checks = checks_in(steps)
    if _PLACE.search(failure.error):
        return " && ".join(check.runner for check in checks) or failure.command
    return repr(checks) if checks else failure.command


def _failure_fact(group: list[Failure]) -> Fact:
    first, last = group[0], group[-1]
    is_denied = last.denied and last.status != RESOLVED
    status, outcome = ("denied", "") if is_denied else (last.status, last.outcome)
    seen = (len(group), last.turn, last.ref)
    return Fact("failure", first.command, first.turn, "tool", first.error, status, *seen, outcome=outcome)


def call_text(call: ToolCall | None) -> str:
    """A call on one line, as the agent would recognise it: the command as typed, or the tool and its arguments."""
    if call is None:
        return "(result without its call)"
    parsed = parse_call(call)
    if parsed.command is not None:
        # A change of folder in front says little: what follows it gets its own room.
        moved = CHANGE_FOLDER.match(parsed.command.lstrip()[:300])
        return _one_line(parsed.command.strip(), COMMAND_LENGTH + (moved.end() if moved else 0))
    if not parsed.paths or not parsed.arguments:
        return _one_line(f"{call.name} {call.arguments}".rstrip(), COMMAND_LENGTH)
    named = _one_line(f"{call.name} {', '.join(parsed.paths[:3])}", COMMAND_LENGTH)
    old = next((parsed.arguments[key] for key in _OLD_TEXT if isinstance(parsed.arguments.get(key), str)), "")
    sought = _one_line(old[:400].strip(), _SOUGHT_LENGTH)
    return f"{named}: {sought}" if sought else named


def _one_line(text: str, limit: int) -> str:
    return clip(_LINE_BREAK.sub(" ", text[: limit * 2]), limit, strip=False)
