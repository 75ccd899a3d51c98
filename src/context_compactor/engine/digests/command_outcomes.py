"""How a command ended, in its own words: what git changed, what a linter or a build counted, the last telling line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from context_compactor.engine.digests.output import NOISE
from context_compactor.engine.digests.text import counted, in_room
from context_compactor.facts.calls import ParsedCall
from context_compactor.facts.outcomes import is_read_only

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
        yield newest if len(commits) == 1 else f"{counted(len(commits), 'commit')}, newest {newest}"
