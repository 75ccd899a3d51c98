"""How a call ended, in one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from context_compactor.dialects.messages import ToolCall
from context_compactor.dialects.turns import ToolUse
from context_compactor.engine.digests.output import NOISE
from context_compactor.engine.digests.responses import FIRST_KEYS, STATUS_LINE
from context_compactor.engine.digests.searches import WEB_HIT, find_hits, only_file, top_hits
from context_compactor.engine.digests.subagents import read_subagent_report
from context_compactor.engine.digests.test_runs import read_test_run
from context_compactor.engine.digests.traces import read_trace
from context_compactor.facts.calls import ParsedCall, is_own_tool, parse_call
from context_compactor.facts.failures import Failure
from context_compactor.facts.kinds import Kind
from context_compactor.facts.outcomes import is_read_only, is_refusal
from context_compactor.facts.outputs import ToolOutput, unwrap
from context_compactor.text import in_room, plural, to_lines

_COMMIT = re.compile(r"\[(\S+(?: \S+){0,3}?) ([0-9a-f]{7,40})\] (.+)")
_REF = re.compile(r"[ !*+=-]{0,3}\s*(\[[^\]]{1,40}\]|[0-9a-f]{7,40}\.{2,3}[0-9a-f]{7,40})\s+(\S+)\s+-> (\S+)(.*)")
_CHANGED = re.compile(r" ?(\d+ files? changed.*)")
_GIT_SAYS = re.compile(
    r"(?:Switched to .*|Already on .*|Already up to date.*|Everything up-to-date|Successfully rebased.*|CONFLICT .*"
    r"|Merge made by .*|HEAD is now at .*|HEAD detached at .*|Updating [0-9a-f]{7,40}\.\..*|Deleted branch .*"
    r"|Saved working directory.*|Dropped refs.*|Cloning into .*|Your branch is (?:ahead|behind).*|nothing to commit.*"
    r"|Preparing worktree.*|Aborting.*|Applying: .*|Removed worktree.*|To undo.*)"
)
_STATUS = re.compile(r"([ MADRCUT?!]{2}) (\S.*)")
_LONG_STATUS = re.compile(r"\t(?:(modified|new file|deleted|renamed|both modified):\s+)?(\S.*)")
_STATES = {"?": "untracked", "M": "modified", "A": "added", "D": "deleted", "R": "renamed", "U": "unmerged"}
_LONG_STATES = {"new file": "added", "both modified": "unmerged", "": "untracked"}
_ONE_LINE_COMMIT = re.compile(r"[*|\\/ ]{0,8}([0-9a-f]{7,40}) (\S.*)")
_PULL = re.compile(r"https?://\S+?/(?:pull|merge_requests|issues)/(\d+)\b\S*")

# What linters, type checkers and builds print last; the brackets are the name that a task runner puts in front.
_TASK = r"(?:\[[^\]\n]{1,40}\] ?)?"
_SUMS = re.compile(
    _TASK + r"\W{0,3}(\d+ (?:issues?|problems?|errors?|warnings?|vulnerabilit\w+|offenses?)\b.{0,80}"
    r"|(?:no|found \d+|found no|found 0) (?:\w+ )?(?:issues?|problems?|errors?|warnings?|vulnerabilit\w+)\b.{0,60}"
    r"|success: no issues.{0,40}|all checks passed.{0,20}|checked \d+ files.{0,60}"
    r"|\d+ files? (?:left|would be|re)\w*.{0,60}"
    r"|all matched files use .{0,40}|build success\w*.{0,30}|build fail\w*.{0,30}|compiled (?:with|successfully).{0,40}"
    r"|built in .{0,20}|.{0,40}\bcompiled successfully.{0,30}|finished `?\w+`? (?:profile|target)\b.{0,60}"
    r"|error: could not compile.{0,80}|successfully (?:built|tagged|installed) .{0,80}|added \d+ packages.{0,60}"
    r"|\d+ packages? (?:installed|are looking).{0,40}|(?:installed|resolved|audited) \d+ packages?.{0,40}"
    r"|up to date.{0,40}|tasks: +\d+ successful.{0,40})$",
    re.IGNORECASE,
)
_SUM_WORDS = (
    *("issue", "problem", "rror", "arning", "ulnerab", "uccess", "hecks passed", "hecked", "file", "uild", "ompiled"),
    *("built in", "inished", "packages", "up to date", "offense", "BUILD"),
)
_COUNTS_NONE = re.compile(r"\b(?:0|no|success|all|built|compiled|finished|added|installed|up to date)\b", re.IGNORECASE)
_PLACED = re.compile(
    _TASK
    + r"\s{0,4}(?:-->\s+)?((?:[A-Za-z]:)?[\w@~./\\+-]{1,200}\.\w{1,8}(?::\d+(?::\d+)?|\(\d+,\d+\)))(?:[:\s-]+(\S.*))?$"
)
_BOILERPLATE = re.compile(
    r"\s*(?:Shell cwd was reset|WARNING: Running pip as|Updated task #\d|npm notice"
    r"|hint: |warning: in the working copy|warning: LF will|\[notice\]"
    r"|Updating files|Finished in |Done in |real\t|user\t|sys\t|Run `npm (?:audit|fund)|Update available|\$ |> \S+@"
    r"|\[[\w:.-]+\] \$ |\[[\w:.-]+\] Finished in|Total output lines|Todos have been modified|Your todo list"
    r"|Plan updated)"
)
_GOOD = ("\u2713", "\u2714", "\u2705")
_BAD = ("\u2717", "\u2718", "\u274c", "\u2716")
_HELP = frozenset(("--help", "-h", "help"))
# How many of the last lines may sum up; how many sums are told.
_LAST = 60
_SHOWN = 3


def command_outcome(reading: ParsedCall | None, lines: Sequence[str], *, is_cut: bool = False) -> str:
    """What a command that did not fail came to: "commit 3f9c2ab Rotate tokens; pushed main", "0 issues"."""
    steps = reading.steps if reading else ()
    programs = {step.program for step in steps}
    parts = [*(_git(reading, lines) if reading and "git" in programs else ()), *_pulls(programs, lines), *sums(lines)]
    if parts:
        return "; ".join(dict.fromkeys(parts))
    marked = _marks(lines)
    if marked:
        return marked
    words = {word for step in steps for word in step.words[1:]}
    if is_cut or not _HELP.isdisjoint(words):
        return ""
    return last_line(lines, is_look=bool(steps) and is_read_only(steps))


def sums(lines: Sequence[str]) -> list[str]:
    """What linters and builds counted; where that is not nothing, with the first place that they name."""
    last = lines[-_LAST:]
    tail = "\n".join(last)
    words = [word for word in _SUM_WORDS if word in tail]
    found: dict[str, None] = {}
    for line in last if words else ():
        if len(line) < 200 and any(word in line for word in words) and (match := _SUMS.match(line.strip())):
            found[match.group(1).rstrip(" .:")] = None
    told = list(found)[-_SHOWN:]
    if told and not all(map(_COUNTS_NONE.search, told)):
        place = next((match for match in map(_PLACED.match, lines) if match), None)
        if place:
            told[-1] += f": {place.group(1)} {place.group(2) or ''}".rstrip()
    return told


def placed_errors(lines: Sequence[str]) -> str:
    """What a compiler says: how many errors with a place, and the first of them."""
    found = [match for match in map(_PLACED.match, lines) if match and match.group(2)]
    if not found:
        return ""
    first = f"{found[0].group(1)} {found[0].group(2)}"
    return first if len(found) == 1 else f"{len(found)} errors: {first}"


def last_line(lines: Sequence[str], *, is_look: bool = False) -> str:
    """The only line, or the last one that is more than progress; of what was only looked at nothing but a few lines."""
    telling = [
        line for line in lines[-_LAST:] if line.strip() and not _BOILERPLATE.match(line) and not NOISE.match(line)
    ]
    if is_look and (len(telling) > 2 or len(lines) > 4):
        return ""
    if is_look:
        return "; ".join(line.strip() for line in telling)
    return next((line.strip() for line in reversed(telling) if any(map(str.isalnum, line))), "")


def _marks(lines: Sequence[str]) -> str:
    """Scripts that check something often print a mark for each case."""
    text = "\n".join(lines[-_LAST:])
    if not any(mark in text for mark in (*_GOOD, *_BAD)):
        return ""
    good = sum(line.strip().startswith(_GOOD) or line.rstrip().endswith(_GOOD) for line in lines)
    bad = [line.strip() for line in lines if line.strip().startswith(_BAD) or line.rstrip().endswith(_BAD)]
    if good + len(bad) < _SHOWN:
        return ""
    return f"{good} {_GOOD[0]}" + (f", {len(bad)} {_BAD[0]}: {bad[0].strip(''.join(_BAD) + ' ')}" if bad else "")


def _pulls(programs: set[str], lines: Sequence[str]) -> Iterator[str]:
    """The pull request or issue that `gh` has made or changed: it prints its address last, and alone."""
    last = lines[-1].strip() if lines and "gh" in programs else ""
    match = _PULL.fullmatch(last)
    if match:
        kind = "issue" if "/issues/" in last else "PR"
        yield f"{kind} #{match.group(1)} {last}"


def _git(reading: ParsedCall, lines: Sequence[str]) -> list[str]:
    verbs = {word for step in reading.steps if step.program == "git" for word in step.words[1:4]}
    found: list[str] = []
    remote = ""
    changed = ""
    for line in lines:
        if line.startswith(("To ", "From ")):
            remote = line[:2]
        elif line.startswith("[") and (match := _COMMIT.match(line)):
            found.append(f"commit {match.group(2)} {match.group(3)} (on {match.group(1).partition(' ')[0]})")
        elif "->" in line and remote == "To" and (match := _REF.match(line)):
            refused = "rejected" in match.group(1)
            found.append(
                f"push of {match.group(2)} rejected{match.group(4)}" if refused else f"pushed {match.group(3)}"
            )
        elif match := _GIT_SAYS.match(line):
            found.append(match.group().rstrip("."))
        elif match := _CHANGED.match(line):
            changed = match.group(1)
    found += [changed] if changed else []
    if "status" in verbs:
        found += _states(lines)
    if not found and not verbs.isdisjoint(("log", "show")):
        found += _commits(lines)
    return found


def _states(lines: Sequence[str]) -> Iterator[str]:
    """How many files are in which state, and their names."""
    counts: dict[str, list[str]] = {}
    for line in lines:
        short = _STATUS.match(line) if len(line) > 3 and line[2] == " " else None
        long = _LONG_STATUS.match(line) if line.startswith("\t") else None
        if short and short.group(1).strip():
            counts.setdefault(_STATES.get(short.group(1).strip()[0], "changed"), []).append(short.group(2))
        elif long:
            word = long.group(1) or ""
            counts.setdefault(_LONG_STATES.get(word, word), []).append(long.group(2))
    tracked = next((line[3:] for line in lines if line.startswith("## ")), "")
    branch, _, remote = tracked.partition("...")
    ahead = remote.partition(" [")[2]
    where = (f" on {branch}" if branch else "") + (f" [{ahead}" if ahead else "")
    if branch and not counts:
        yield f"nothing changed{where}"
    for state, paths in counts.items():
        yield f"{len(paths)} {state}{where}: {in_room(paths, 80)}"
        where = ""


def _commits(lines: Sequence[str]) -> Iterator[str]:
    commits = [match for match in map(_ONE_LINE_COMMIT.match, lines) if match]
    if commits and _ONE_LINE_COMMIT.match(lines[0]):
        newest = f"{commits[0].group(1)} {commits[0].group(2)}"
        yield newest if len(commits) == 1 else f"{plural(len(commits), 'commit')}, newest {newest}"


# Of longer outputs only the two ends are looked at.
_HEAD = 8_000
_TAIL = 24_000
_JSON_READ = 2_000_000
# Room below which a further part says nothing.
_LEAST_PART = 14
_VALUE = 60
_URL = 120
_FEW_VALUES = 4
_NOTHING = "no output"
_PATH = 44
_RUNNING = re.compile(r"Process running with session ID (\S+)")
_SEARCHES = frozenset("rg grep egrep fgrep ag ack find fd fdfind locate search_dir search_file find_file".split())
# What a client answers when asked for the output of something that runs in the background.
_BACKGROUND = re.compile(r"<retrieval_status>.{0,400}?<status>(\w+)</status>.{0,200}?<output>(.*)", re.DOTALL)
_NO_HITS = re.compile(r"\s*(?:no (?:matches|files|results)(?: were)?(?: found)?|found 0)\b", re.IGNORECASE)
_FOUND = re.compile(r"Found (\d+) (?:files?|matches)\b")
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,300})|^#{1,3} (\S[^\n]{0,300})", re.IGNORECASE | re.MULTILINE)
_LOG_ERROR = re.compile(r"\b(?:ERROR|FATAL|CRITICAL|PANIC|error|fatal|panic)\b")
# A test that passed, in the output of a run that has not come to its totals.
_PASSED = re.compile("\\(pass\\) |\\S+::.{1,300} PASSED\\b|\\s*[\u2713\u2714] |test \\S.{0,200} \\.\\.\\. ok\\b")
_NAMES_SPLIT = re.compile("::| > | \u203a ")
_KEY = re.compile(r"(?:^|_)(?:id|url|state|count|total|number|name|title|sha)$|(?:Id|Url|State|Count|Number|At)$")
_decode = msgspec.json.Decoder(float_hook=str).decode


# How a line of ours begins that says how a call ended, in front of what is kept of its result.
_MARK = "[in short: "
_MARKED = re.compile(r"(?:\[failed: [^\n]*\]\n)?\[in short: ([^\n]*)\](?:\n|$)")


def outcome_mark(outcome: str) -> str:
    """The line that heads a shortened result."""
    return f"{_MARK}{outcome}]"


class _EndedCall(msgspec.Struct, frozen=True):
    """A tool call that came to an end, taken apart for the rule of its kind."""

    call: ToolCall | None
    reading: ParsedCall | None
    body: str
    failure: Failure | None
    most: int

    @property
    def is_cut(self) -> bool:
        """Whether the lines are only the two ends."""
        return len(self.body) > _HEAD + _TAIL

    def lines(self) -> list[str]:
        """The lines of the output, or of its two ends."""
        body = f"{self.body[:_HEAD]}\n{self.body[-_TAIL:]}" if self.is_cut else self.body
        return to_lines(body.strip("\n"))


def outcome_of(use: ToolUse, kind: Kind, failure: Failure | None, most: int = 160) -> str:
    """One line of at most `most` characters that says how a tool call ended; "" when there is nothing to tell."""
    if use.result is None or use.is_lost or is_own_tool(use.call):
        return ""
    text = use.result.text
    marked = _MARKED.match(text)
    if marked:
        return clip_outcome(marked.group(1), most)
    output = unwrap(text)
    reading = parse_call(use.call) if use.call else None
    ended = _EndedCall(use.call, reading, output.body, failure, most)
    if failure and failure.denied:  # its error is what the user said, where there is anything
        outcome = "refused by the user" + ("" if is_refusal(failure.error) else f": {failure.error}")
    else:
        outcome = _outcome_text(ended, kind, output)
    running = _RUNNING.search(text, 0, 200) if text.startswith("Chunk ID") else None
    if running:
        said = f": {outcome}" if outcome and outcome != _NOTHING else ""
        outcome = f"still running (session {running.group(1)}){said}"
    return clip_outcome(outcome, most)


def clip_outcome(text: str, most: int) -> str:
    """A text as one line within `most` characters, cut at a word."""
    line = " ".join(text[: most * 4].split())
    if not line.isprintable():
        line = " ".join("".join(character if character.isprintable() else " " for character in line).split())
    if len(line) <= most:
        return line
    cut = line[: max(most - 1, 0)]
    at = cut.rfind(" ")
    return ((cut[:at] if at > most // 2 else cut).rstrip(" ,;:…") + "…")[: max(most, 0)]


def _outcome_text(ended: _EndedCall, kind: Kind, output: ToolOutput) -> str:
    if not output.body or output.body.isspace():
        return _silent(ended, kind, output)
    if ended.failure is None and ended.reading and ended.reading.writes and kind is Kind.COMMAND:
        return "" if ended.reading.command is None else command_outcome(ended.reading, ended.lines())
    return _RULES[kind](ended)


def _silent(ended: _EndedCall, kind: Kind, output: ToolOutput) -> str:
    if ended.failure:
        return ended.failure.error or f"exit code {output.exit_code}"
    if kind is Kind.SEARCH_RESULT:
        return "no hits"
    if ended.reading and any(step.words[:2] == ("git", "status") for step in ended.reading.steps):
        return "nothing changed"
    if kind is Kind.TALK or (ended.reading and (ended.reading.writes or ended.reading.reads)):
        return ""
    return f"exit code {output.exit_code}, {_NOTHING}" if output.exit_code else _NOTHING


def _joined(parts: Iterable[str], most: int) -> str:
    """The parts in their order as long as there is room for something of them."""
    told = ""
    for part in parts:
        left = most - len(told) - 2
        if part and (not told or left >= _LEAST_PART):
            told += f"{'; ' if told else ''}{clip_outcome(part, left)}"
    return told


def _tests(ended: _EndedCall) -> str:
    lines = ended.lines()
    verdict = read_test_run("\n".join(lines))
    if verdict is None:
        passed = sum(map(bool, map(_PASSED.match, lines)))
        return f"{passed} passed so far" if passed and ended.failure is None else _command(ended)
    others = [each for each in sums(lines) if each not in verdict.counts]
    at_least = "at least " if ended.is_cut and verdict.runner in ("go test", "cargo test") else ""
    head = "; ".join([*others, at_least + verdict.summary])
    if not verdict.failures:
        has_run = any(verdict.totals.values())
        return _joined([head if has_run else "", ended.failure.error], ended.most) if ended.failure else head
    names = _names([name for name, _ in verdict.failures], ended.most - len(head) - 2)
    return _joined([f"{head}: {names}", next((why for _, why in verdict.failures if why), "")], ended.most)


def _names(names: Sequence[str], room: int) -> str:
    """The names of failing tests; without the files they are in, when they do not all fit with them."""
    whole = ", ".join(dict.fromkeys(names))
    if len(whole) <= room * 2 // 3:
        return whole
    short = list(dict.fromkeys(_NAMES_SPLIT.split(name)[-1] for name in names))
    kept = 1
    while kept < len(short) and len(", ".join(short[: kept + 1])) <= room - 10:
        kept += 1
    return ", ".join(short[:kept]) + (f" … {len(short) - kept} more" if len(short) > kept else "")


def _trace(ended: _EndedCall) -> str:
    lines = ended.lines()
    raised = read_trace(lines)
    if raised is None:
        return _failed(ended) if ended.failure else last_line(lines)
    place = f"at {_short_place(raised.place)}" if raised.place else ""
    cause = f"caused by {raised.cause}" if raised.cause else ""
    room = ended.most - min(len(place) + 1, ended.most // 2)
    return f"{_joined([raised.message, cause], room)} {place}"


def _short_place(place: str) -> str:
    """A frame as its file and line, and the function when it is named."""
    where = place.partition(": ")[0]
    path, _, name = where.partition(" in ") if " in " in where else where.partition(" ")
    return f"{_short_path(path)}{f' in {name}' if name and name != '<module>' else ''}"


def _short_path(path: str) -> str:
    if len(path) <= _PATH:
        return path
    folders = path.split("/")
    last_two = "/".join(folders[-2:])
    return f"…/{last_two if len(last_two) <= _PATH else folders[-1]}"


def _failed(ended: _EndedCall) -> str:
    return ended.failure.error if ended.failure else ""


def _command(ended: _EndedCall) -> str:
    lines = ended.lines()
    if ended.failure is None:
        return command_outcome(ended.reading, lines, is_cut=ended.is_cut)
    if "Traceback (most recent" in ended.body[:_HEAD] or "Traceback (most recent" in ended.body[-_TAIL:]:
        return _trace(ended)
    counts = sums(lines)
    if counts and ":" in counts[-1]:
        return "; ".join(counts)
    return placed_errors(lines) or ended.failure.error or last_line(lines)


def _quiet(ended: _EndedCall) -> str:
    """What only shows something tells nothing, unless it is a line or two."""
    if ended.failure:
        return _failed(ended)
    if len(ended.body) > 2 * ended.most:
        return ""
    return last_line(ended.lines(), is_look=True)


def _search(ended: _EndedCall) -> str:
    if _NO_HITS.match(ended.body):
        return "no hits"
    web = WEB_HIT.findall(ended.body[:_HEAD]) if '"title"' in ended.body[:_HEAD] else []
    if web:
        return f"{plural(len(web), 'result')}: " + ", ".join(f"{title} ({url})" for title, url in web[:3])
    if ended.body.lstrip()[:1] in ("{", "["):
        return _json(ended)
    if ended.failure and not _is_search(ended):
        return _command(ended)
    lines = [line for line in ended.lines() if line.strip()]
    hits = find_hits(lines, only_file(ended.call))
    if not hits:
        return _failed(ended) if ended.failure else _found_files(lines, ended.is_cut)
    files = len({hit.path for hit in hits if hit.path})
    number = f"{'over ' if ended.is_cut else ''}{plural(len(hits), 'hit')}{f' in {files} files' if files > 1 else ''}"
    room = max((ended.most - len(number) - 2) // min(len(hits), 2), 40)
    shown = []
    for hit in top_hits(hits):
        place = ":".join(part for part in (_short_path(hit.path) if files > 1 else "", hit.line) if part)
        shown.append(clip_outcome(f"{place} {hit.text.strip().rstrip(' ,;{(')}", room))
    return f"{number}: {'; '.join(shown)}"


def _is_search(ended: _EndedCall) -> bool:
    """Whether the call searched; a compiler's complaints look like hits too."""
    steps = ended.reading.steps if ended.reading else ()
    return not steps or any(step.program in _SEARCHES or "grep" in step.words for step in steps)


def _found_files(lines: Sequence[str], is_cut: bool) -> str:
    """A list of paths; of other text, such as lines without their places, one or two."""
    told = _FOUND.match(lines[0]) if lines else None
    paths = list(lines[1:] if told else lines)
    if not all(" " not in path.strip() and len(path) < 200 for path in paths[:5]):
        return last_line(paths, is_look=True)
    number = f"{told.group(1)} files" if told else f"{'over ' if is_cut else ''}{plural(len(paths), 'file')}"
    return f"{number}: " + ", ".join(_short_path(path.strip()) for path in paths[:4])


def _agent(ended: _EndedCall) -> str:
    if ended.failure:
        return _failed(ended)
    if ended.body.lstrip()[:1] in ("{", "["):
        return _json(ended)
    background = _BACKGROUND.match(ended.body[:_HEAD])
    if background:
        inner = msgspec.structs.replace(ended, body=background.group(2).removesuffix("</output>").strip())
        return f"{background.group(1)}: {_tests(inner) if inner.body else _NOTHING}"
    report = read_subagent_report(ended.body)
    status = f"{report.status}: " if report.status else ""
    files = f"files: {', '.join(_short_path(path) for path in report.files[:4])}" if report.files else ""
    advice = f"recommends: {', '.join(point.rstrip('.') for point in report.advice[:3])}" if report.advice else ""
    summary = status + clip_outcome(report.summary, max(ended.most * 5 // 8, 20))
    return _joined([summary, advice, files, report.tests], ended.most)


def _json(ended: _EndedCall) -> str:
    body = ended.body.strip()
    status = STATUS_LINE.match(body[:200])
    if status:
        body = body.replace("\r\n", "\n").partition("\n\n")[2].strip()
    try:
        value = _decode(body) if body[:1] in ("{", "[") and len(body) < _JSON_READ else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
        value = None
    code = status.group().partition(" ")[2] if status else ""
    if isinstance(value, dict | list):
        # Values that the call itself gave say nothing.
        given = ended.reading.arguments.values() if ended.reading and not ended.reading.command else ()
        return _joined([code, *_values(value, frozenset(map(str, given)))], ended.most)
    if code:
        return _joined([code, last_line(to_lines(body[-_TAIL:]), is_look=True)], ended.most)
    return _command(ended)


def _values(value: dict[str, Any] | list[Any], asked: frozenset[str]) -> list[str]:
    """How many items, and the values by which one knows the first again; of an object those of its fields."""
    prefix = ""
    while isinstance(value, dict) and len(value) == 1:
        key, inner = next(iter(value.items()))
        if not isinstance(inner, dict | list):
            break
        prefix, value = f"{prefix}{key}: ", inner
    if isinstance(value, list):
        first = value[0] if value else None
        if not isinstance(first, dict):
            return [f"{prefix}{plural(len(value), 'item')}", _scalar(first) if value else ""]
        tallies = _tallies(value)
        told = [pair for pair in _pairs(first, asked) if pair.partition("=")[0] not in tallies]
        return [", ".join([f"{prefix}{plural(len(value), 'item')}", *tallies.values()]), f"first: {', '.join(told)}"]
    pairs = _pairs(value, asked)
    sizes = [f"{key}: {plural(len(each), 'item')}" for key, each in value.items() if isinstance(each, list)]
    return [f"{prefix}{', '.join([*pairs, *sizes])}" if value else f"{prefix}empty object"]


def _tallies(values: list[Any]) -> dict[str, str]:
    """How often each value of a field comes that says how an item stands."""
    found: dict[str, str] = {}
    for key in ("status", "state", "conclusion", "result", "severity"):
        counts = Counter(str(each[key]) for each in values if isinstance(each, dict) and isinstance(each.get(key), str))
        if len(values) > 1 and 0 < len(counts) <= _FEW_VALUES:
            found[key] = f"{key} " + ", ".join(
                f"{clip_outcome(name, 30)} {count}" for name, count in counts.most_common()
            )
    return found


def _pairs(value: dict[str, Any], asked: frozenset[str]) -> list[str]:
    plain = {key: each for key, each in value.items() if not isinstance(each, dict | list)}
    plain |= {key: each["message"] for key, each in value.items() if isinstance(each, dict) and "message" in each}
    plain = {key: each for key, each in plain.items() if each != "" and str(each) not in asked}
    first = [key for key in FIRST_KEYS if key in plain]
    telling = [key for key in plain if _KEY.search(key)]
    short = [key for key, each in plain.items() if len(str(each)) <= _VALUE]
    return [f"{key}={_scalar(plain[key])}" for key in dict.fromkeys((*first, *telling, *short)) or plain]


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    text = clip_outcome(text, _URL if text.startswith("http") else _VALUE)
    return f'"{text}"' if " " in text else text


def _page(ended: _EndedCall) -> str:
    if ended.failure:
        return _failed(ended)
    title = _TITLE.search(ended.body[:_HEAD])
    return (title.group(1) or title.group(2)) if title else _quiet(ended)


def _log(ended: _EndedCall) -> str:
    if ended.failure:
        return _failed(ended)
    errors = [line for line in ended.lines() if _LOG_ERROR.search(line[:200])]
    if not errors:
        return _quiet(ended)
    return f"{'at least ' if ended.is_cut else ''}{plural(len(errors), 'error line')}, last: {errors[-1]}"


def _diff(ended: _EndedCall) -> str:
    body = f"\n{ended.body}"
    files = re.findall(r"\ndiff --git a/(\S+)", body) if "\ndiff --git " in body else []
    if not files:
        return _command(ended) or _found_files(ended.lines(), ended.is_cut)
    added = body.count("\n+") - body.count("\n+++ ")
    removed = body.count("\n-") - body.count("\n--- ")
    return f"{plural(len(files), 'file')}, +{added} -{removed}: " + ", ".join(_short_path(path) for path in files[:4])


_RULES: dict[Kind, Callable[[_EndedCall], str]] = {
    Kind.CODE: _quiet,
    Kind.TEST_RUN: _tests,
    Kind.API_RESPONSE: _json,
    Kind.SEARCH_RESULT: _search,
    Kind.ERROR_TRACE: _trace,
    Kind.SUBAGENT: _agent,
    Kind.LOG: _log,
    Kind.DIFF: _diff,
    Kind.LISTING: _quiet,
    Kind.COMMAND: _command,
    Kind.WEB_PAGE: _page,
    Kind.TALK: lambda ended: ended.body,
}
