"""What the agent did to the project: changes of files by definition, packages, and how its last checks ended."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from posixpath import basename
from typing import Any

from msgspec import Struct, structs

from context_compactor.dialects.turns import ToolUse, reference_id
from context_compactor.facts.calls import CallInTurn, parse_call
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import call_text
from context_compactor.facts.file_history import FileHistory, FileRead, FileRecord
from context_compactor.facts.kinds import Kind, kind_of, reference_of
from context_compactor.facts.outcomes import check_of
from context_compactor.facts.shell import ShellStep, heredoc_in
from context_compactor.facts.side_effects import runs_in_background
from context_compactor.text import clip

ADDED, CHANGED, REMOVED = "+", "~", "\u2212"
_MODIFIERS = (
    r"(?:(?:export|default|public|private|protected|internal|static|async|abstract|final|override|inline|unsafe"
    r"|declare|virtual|sealed|suspend|pub(?:\([^)\n]{1,40}\))?)[ \t]+){0,6}"
)
_DEFINES = (
    rf"{_MODIFIERS}(?:"
    r"(?:(def|class|function\*?|func|fn|interface|struct|enum|trait|impl|protocol|record|module|namespace|type)[ \t]+"
    r"(?:\([^)\n]{1,80}\)[ \t]*)?([A-Za-z_$](?:[\w$.]|::)*[?!]?)"
    r"(?=[ \t]*[<({:=\[;\n]|[ \t]+(?:struct|interface|extends|for)\b|$)"
    r"[ \t]*(\([^\n]{0,60}?\))?)"
    r"|(?:const|let|var)[ \t]+([A-Za-z_$][\w$]*)(?:[ \t]*:[^=\n]{1,80})?[ \t]*=[ \t]*(?:async[ \t]*)?"
    r"(?:\([^\n]{0,200}?\)|[\w$]+)(?:[ \t]*:[^=\n]{1,80})?[ \t]*=>"
    r"|(?:it|test|describe)(?:\.\w{1,12})?\([ \t]*['\"`]([^'\"`\n]{3,60})"
    r"|([A-Z][A-Z0-9_]{2,40})(?:[ \t]*:[^=\n]{1,60})?[ \t]*=(?!=)"
    r"|(?:CREATE|ALTER)[ \t]+TABLE[ \t]+(?:IF NOT EXISTS[ \t]+)?([\w.\"]+)"
    r")"
)
_CODE = re.compile(rf"^([ \t]*){_DEFINES}", re.MULTILINE)
_MARGIN = re.compile(rf"^(){_DEFINES}", re.MULTILINE)
_HEADING = re.compile(r"^()#{1,4} +([^\n]{2,60}?)[ \t]*#*$|^()([^\n]{2,60})\n[=~-]{4,}$", re.MULTILINE)
_TABLE = re.compile(r"^()\[+([^\[\]\n]{1,60})\]+[ \t]*$", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*\d{1,6}(?:→|\t|[:|-][ \t]?)")
_PROSE = (".md", ".mdx", ".rst", ".txt", ".adoc")
_KEYED = (".toml", ".ini", ".cfg", ".conf", ".json", ".yaml", ".yml", ".lock", ".html", ".css", ".svg", ".xml", ".csv")
_MOST_LINES = 100
_MOST_ANCHORS = 20
_SHORTEST_ANCHOR = 6


class DefinedParts:
    """A text cut at its definitions: `head` is what stands before the first of them."""

    def __init__(self, text: str, path: str, is_whole: bool = False) -> None:
        self.parts: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        pattern = _pattern(path)
        if is_whole and pattern is _CODE:  # of a whole file what stands at its margin is enough, without the constants
            found = [match for match in _MARGIN.finditer(text) if not match[7]]
        else:
            found = list(pattern.finditer(text))
        self.head = text[: found[0].start()] if found else text
        for at, match in enumerate(found):
            end = found[at + 1].start() if at + 1 < len(found) else len(text)
            name, label = _named(match)
            self.parts[name] = self.parts.get(name, "") + text[match.start() : end]
            self.labels.setdefault(name, label)


def compare_definitions(old: str, new: str, path: str, around: str = "", shown: Sequence[str] = ()) -> dict[str, str]:
    """What is added, changed and removed, each by the name to show for it.

    `around` is the definition in which the text stands that begins with none; if it is not known, it is looked for in
    what was `shown` of the file.
    """
    before, after = DefinedParts(old, path), DefinedParts(new, path, not old)
    found: dict[str, str] = {}
    for name, part in after.parts.items():
        if name not in before.parts:
            found[after.labels[name]] = ADDED
        elif part.rstrip() != before.parts[name].rstrip():
            found[name] = CHANGED
    found.update((name, REMOVED) for name in before.parts if name not in after.parts)
    if old and before.head.strip() != after.head.strip():
        # To look for it takes time, and matters where there is no other name.
        around = around or (_around(shown, before.head or old, path) if shown and not found else "")
        found = {around: CHANGED, **found} if around else found
    return found


def _around(shown: Sequence[str], part: str, path: str) -> str:
    """The definition in which a part of a shown file stands; empty when it cannot be told."""
    lines = [line for line in part.split("\n")[:_MOST_ANCHORS] if len(line.strip()) >= _SHORTEST_ANCHOR]
    for anchor in dict.fromkeys((*lines[:1], *lines[-1:])):
        for text in shown:
            at = text.find(anchor)
            name = _defined_above(text, at, len(anchor) - len(anchor.lstrip()), path) if at >= 0 else ""
            if name:
                return name
    return ""


def _defined_above(text: str, at: int, inner: int, path: str) -> str:
    """The last definition before a place that begins further left than `inner` characters."""
    pattern = _pattern(path)
    end = text.rfind("\n", 0, at)
    for _ in range(_MOST_LINES):
        if end < 0:
            break
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end]
        end = start - 1
        if line[:8].lstrip()[:1].isdigit():
            line = _NUMBERED.sub("", line, count=1)
        if pattern is not _CODE or len(line) - len(line.lstrip()) < max(1, inner):
            match = pattern.match(line)
            if match:
                return _named(match)[0]
    return ""


def definition_in(line: str, path: str) -> str:
    """The name that a line defines; empty for any other line."""
    match = _pattern(path).match(line.strip())
    return _named(match)[0] if match else ""


def _pattern(path: str) -> re.Pattern[str]:
    end = posixpath.splitext(path)[1].lower()
    return _HEADING if end in _PROSE else _TABLE if end in _KEYED else _CODE


def _named(match: re.Match[str]) -> tuple[str, str]:
    """A definition's name, and how it is shown where it is new."""
    groups = match.groups()
    if match.re is not _CODE and match.re is not _MARGIN:
        name = next(filter(None, groups), "").strip()
        return name, name
    _, kind, name, arguments, arrow, test, constant, table = groups
    if test:
        return f'"{test}"', f'test "{test}"'
    if name:
        return name, f"{kind.rstrip('*')} {name}{arguments or ''}"
    return (arrow or constant or table or "",) * 2


_OLD_KEYS = ("old_string", "old_str", "oldText", "old_text", "search")
_NEW_KEYS = ("new_string", "new_str", "newText", "new_text", "replace", "insert_text", "new_source")
_CONTENT_KEYS = ("content", "file_text", "contents", "text")
_PATCH_KEYS = ("input", "patch", "diff")
_SECTION = re.compile(r"^(?:\*\*\* (?:Update|Add|Delete) File: (.+)|diff --git a/\S+ b/(\S+))$", re.MULTILINE)
_HUNK = re.compile(r"^@@(?: -\d[^\n@]*@@)?[ \t]*(.*)$", re.MULTILINE)
_HUNK_ENDS = ("*** ", "diff --git", "index ", "--- ", "+++ ", "\\ No newline")
_TELLS = re.compile(r"(?!\s*(?:#|//|/\*|\*|--|<!--|\"\"\"|'''|import\b|from\b|use\b|require\b|package\b)).*\w")
_LONGEST_SUMMARY = 120
_LONGEST_LINE = 60
_MOST_EDIT_TEXT = 5_000
_MOST_PATCH = 40_000
_MOST_EDITS = 6
_MOST_READS = 2

Edit = tuple[str, str, str]
"""Old text, new text, and the definition around them as far as it is known."""


def changes_in(record: FileRecord, exchanges: Mapping[int, ToolUse]) -> str:
    """The changes of a file that stand, in at most 120 characters: `+ def rotate(old), ~ verify, − check`."""
    diff = exchanges.get(record.diff)
    if diff and diff.result and (not record.kept_writes or record.diff > record.kept_writes[-1].exchange):
        shown = _compared(_patched(diff.result.text, record.path), record.path, ())
        if shown:
            return shown
    reads = (exchanges.get(read.exchange) for read in record.reads[: -_MOST_READS - 1 : -1])
    newest = [each.result.text for each in reads if each and each.result]
    return _compared(_kept_edits(record, exchanges), record.path, newest)


def _kept_edits(record: FileRecord, exchanges: Mapping[int, ToolUse]) -> Iterator[Edit]:
    for write in record.kept_writes[-_MOST_EDITS:]:
        exchange = exchanges.get(write.exchange)
        if exchange and write.action not in ("deleted", "restored"):
            yield from _edits(exchange, record.path)


def _compared(edits: Iterator[Edit], path: str, shown: Sequence[str]) -> str:
    """The names that edits change; where there is none, the first lines that are new."""
    found: dict[str, str] = {}
    lines: dict[str, str] = {}
    for old, new, known in edits:
        _merge(found, compare_definitions(old, new, path, known, shown))
        if not found:
            lines.update(_first_line(old, new))
    return _rendered(found or lines)


def _first_line(old: str, new: str) -> dict[str, str]:
    """The first line that is new, or else the first that is gone; comments and imports tell too little."""
    before, after = old.split("\n"), new.split("\n")
    added = next((line for line in after if line not in before and _TELLS.match(line)), "")
    gone = next((line for line in before if line not in after and _TELLS.match(line)), "") if not added else ""
    line, sign = (added, ADDED) if added else (gone, REMOVED)
    return {clip(" ".join(line.split()), _LONGEST_LINE): sign} if line else {}


def _merge(found: dict[str, str], later: dict[str, str]) -> None:
    """Add later changes. What is added and then changed is added; what is added and then removed never was."""
    for name, sign in later.items():
        # What is new is shown with its signature, and known by its name afterwards.
        known = next((each for each in found if each == name or each.partition("(")[0].endswith(f" {name}")), name)
        before = found.pop(known, "")
        if before == ADDED and sign == REMOVED:
            continue
        found[known if before == ADDED else name] = ADDED if before == ADDED else CHANGED if before == REMOVED else sign


def _rendered(found: dict[str, str]) -> str:
    """The newest changes that have room, in order, and how many more there are."""
    kept: list[str] = []
    room = _LONGEST_SUMMARY
    for name, sign in reversed(found.items()):
        room -= len(name) + 4
        if room < 0 and kept:
            break
        kept.append(f"{sign} {clip(name, _LONGEST_SUMMARY)}")
    more = len(found) - len(kept)
    return ", ".join(reversed(kept)) + (f", \u2026 {more} more" if more else "")


def _edits(exchange: ToolUse, path: str) -> Iterator[Edit]:
    """The pieces of text that a call replaces in a file."""
    if exchange.call is None:
        return
    parsed = parse_call(exchange.call)
    values = parsed.arguments
    if parsed.command is not None:
        yield from _shell_edits(parsed.command, parsed.steps, path)
        return
    several = values.get("edits")
    for edit in several if isinstance(several, list) else (values,):
        if isinstance(edit, dict) and _text(edit, _NEW_KEYS + _OLD_KEYS):
            yield _text(edit, _OLD_KEYS), _text(edit, _NEW_KEYS), ""
    if _text(values, _CONTENT_KEYS):
        yield "", _text(values, _CONTENT_KEYS), ""
    patch = _text(values, _PATCH_KEYS, _MOST_PATCH) or ("" if values else exchange.call.arguments)
    if patch:
        yield from _patched(patch, path)


def _shell_edits(command: str, steps: Sequence[ShellStep], path: str) -> Iterator[Edit]:
    if "*** Begin Patch" in command:
        yield from _patched(command, path)
        return
    for step in steps:
        if step.program == "sed" and any(word.startswith("-i") for word in step.words[1:4]):
            script = next((word for word in step.words[1:] if not word.startswith("-")), "")
            yield "", f"sed {script}", ""
        elif step.writes and path.endswith(step.writes.lstrip("./")):
            yield "", heredoc_in(command, step.writes)[:_MOST_EDIT_TEXT], ""


def _patched(patch: str, path: str) -> Iterator[Edit]:
    """The pieces of a patch that are about a file: old and new lines of each hunk, and the definition it names."""
    patch = patch[:_MOST_PATCH]
    sections = list(_SECTION.finditer(patch))
    for at, section in enumerate(sections):
        named = (section[1] or section[2]).strip()
        if not path.endswith(named.lstrip("./")):
            continue
        body = patch[section.end() : sections[at + 1].start() if at + 1 < len(sections) else len(patch)]
        hunks = list(_HUNK.finditer(body))
        starts = [(0, "")] if not hunks else [(hunk.end(), hunk[1]) for hunk in hunks]
        ends = [*(hunk.start() for hunk in hunks[1:]), len(body)]
        for (start, around), end in zip(starts, ends, strict=True):
            lines = [line for line in body[start:end].split("\n") if not line.startswith(_HUNK_ENDS)]
            old = "\n".join(line[1:] for line in lines if line[:1] in (" ", "-"))
            new = "\n".join(line[1:] for line in lines if line[:1] in (" ", "+"))
            yield old, new, definition_in(around, path)


def _text(values: Mapping[str, Any], keys: Sequence[str], most: int = _MOST_EDIT_TEXT) -> str:
    return next((values[key][:most] for key in keys if isinstance(values.get(key), str) and values[key]), "")


_INSTALLS = {
    "pip": "install", "pip3": "install", "uv": "add install", "poetry": "add", "npm": "install i add",
    "pnpm": "add install i", "yarn": "add", "bun": "add install i", "deno": "add", "go": "get install",
    "cargo": "add install", "gem": "install", "bundle": "add", "composer": "require", "dotnet": "add",
    "brew": "install", "apt": "install", "apt-get": "install", "apk": "add", "dnf": "install", "yum": "install",
    "conda": "install", "mise": "use install",
}  # fmt: skip
_TAKES_VALUE = frozenset(
    "-r --requirement -c --constraint -t --target --index-url -i --registry -w --workspace".split()
)
_MOST_CHANGED = 4
# What a task runner prints before it runs a command: mise, task, just, npm, yarn, make with `set -x`.
_ECHO = re.compile(r"^(?:\[[\w:.-]{1,40}\] )?(?:\$|>|\+|task: \[[\w:.-]+\]) ((?!\S+@\d)\S[^\n]{2,200})$", re.MULTILINE)
_ECHO_SIGHT, _LONGEST_ECHO, _MOST_ECHOES = 3_000, 70, 2
_MOST_COMMANDS = 6
_MOST_RANGES = 4


def file_facts(history: FileHistory, calls: Sequence[CallInTurn]) -> list[Fact]:
    """Every file that was changed or read: what changed in it, and whether that is committed; changed ones first."""
    records = sorted(history.files.values(), key=lambda record: (record.status == "read", record.turns[1]))
    exchanges = {exchange.number: exchange for _, exchange, _ in calls}
    return [_file_fact(record, exchanges) for record in records if not record.is_gone]


def _file_fact(record: FileRecord, exchanges: Mapping[int, ToolUse]) -> Fact:
    first, last = record.turns
    latest = record.latest
    is_read = any(read.exchange == latest for read in record.reads)
    ref = reference_id("file" if is_read else "tool", latest)
    if record.status == "read":
        lines = _lines_read(record.reads)
        return Fact("file_state", record.path, first, "tool", lines, "read", len(record.reads), last, ref)
    status = "uncommitted" if record.is_uncommitted else "committed" if record.is_committed else record.status
    changes = "" if record.status == "deleted" else changes_in(record, exchanges)
    # A status of a commit says nothing of what was done; an edit need not be named where it is told.
    done = record.status if record.status != status and (record.status != "edited" or not changes) else ""
    detail = ": ".join(filter(None, (done, changes)))
    return Fact("file_state", record.path, first, "tool", detail, status, len(record.writes) or 1, last, ref)


def _lines_read(reads: Sequence[FileRead]) -> str:
    if not reads or any(read.first == 1 and read.last is None for read in reads):
        return ""
    ranges = list(dict.fromkeys(f"{read.first}-{read.last or 'end'}" for read in reads if read.ranged))
    return f"read lines {', '.join(ranges[-_MOST_RANGES:])}" if ranges else ""


def dependency_facts(calls: Sequence[CallInTurn], failed: Collection[int]) -> list[Fact]:
    """Packages that were installed, each with the command that did it last."""
    found: dict[str, Fact] = {}
    for turn, exchange, parsed in calls:
        if exchange.result is None or exchange.number in failed:
            continue
        for step in parsed.steps:
            for package in _packages(step):
                fact = Fact("dependency", package, turn, "tool", step.program, "", 1, turn, reference_of(exchange))
                found[package] = fact
    return list(found.values())


def _packages(step: ShellStep) -> list[str]:
    words = step.words
    if words[:2] and step.program.startswith("python") and words[1:3] == ("-m", "pip"):
        words = words[2:]
    if len(words) < 3 or words[1] not in _INSTALLS.get(words[0].rpartition("/")[2], "").split():
        return []
    named = [word for before, word in pairwise(words[1:]) if before not in _TAKES_VALUE]
    return [word for word in named if not word.startswith(("-", ".", "/", "$", "~")) and len(word) < 100]


DescribeOutcome = Callable[[ToolUse, Kind, None], str]
"""How a call that did not fail ended, in one line."""


def command_facts(
    calls: Sequence[CallInTurn], errors: Mapping[int, str], describe_outcome: DescribeOutcome
) -> list[Fact]:
    """How the newest test, build and lint runs ended, each command once. `errors` are those of failed exchanges.

    The count is of runs that ended as the last one did; runs that ended otherwise before are told beside it.
    """
    found: dict[str, list[_Run]] = {}
    for turn, exchange, parsed in calls:
        checked = next((step for step in parsed.steps if check_of(step)), None)
        if checked is not None and exchange.result is not None and not runs_in_background(exchange, parsed):
            key = " ".join(checked.words[:4])
            found[key] = [*found.pop(key, []), _Run(turn, exchange, errors.get(exchange.number))]
    edits = [(turn, path) for turn, exchange, parsed in calls if parsed.writes for path in parsed.paths]
    newest = list(found.values())[-_MOST_COMMANDS:]
    return [_with_edits(_command_fact(runs, describe_outcome), edits) for runs in newest]


def _with_edits(fact: Fact, edits: Sequence[tuple[int, str]]) -> Fact:
    """A passing run with the files that were changed since: it says nothing of them any more."""
    changed = dict.fromkeys(basename(path) for turn, path in edits if turn > fact.last_turn)
    if fact.status != "passed" or not changed:
        return fact
    named = ", ".join(list(changed)[-_MOST_CHANGED:])
    return structs.replace(fact, detail=f"{fact.detail} · not run since {named} changed".lstrip(" ·"))


class _Run(Struct, frozen=True):
    turn: int
    exchange: ToolUse
    error: str | None


def _command_fact(runs: Sequence[_Run], describe_outcome: DescribeOutcome) -> Fact:
    last = runs[-1]
    streak = list(takewhile(lambda run: (run.error is None) == (last.error is None), reversed(runs)))
    others = sum((run.error is None) != (last.error is None) for run in runs)
    answer = last.exchange.result.text if last.exchange.result else ""
    detail = last.error
    if detail is None:
        detail = describe_outcome(last.exchange, kind_of(last.exchange.call, answer), None)
    if others:
        ended = ("failure", "failures") if last.error is None else ("pass", "passes")
        before = f"after {others} {ended[others > 1]}"
        detail = f"{detail} ({before})" if detail else before
    ran = _echoed_commands(answer)
    detail = f"{detail} (runs {ran})".lstrip() if ran else detail
    status = "passed" if last.error is None else "failed"
    command, ref = call_text(last.exchange.call), reference_of(last.exchange)
    return Fact("command", command, runs[0].turn, "tool", detail, status, len(streak), last.turn, ref)


def _echoed_commands(text: str) -> str:
    """The commands that a task runner says it runs, as `[test] $ go test ./...` or `> jest`."""
    found = dict.fromkeys(" ".join(line.split()) for line in _ECHO.findall(text[:_ECHO_SIGHT]))
    shown = [f"`{line}`" for line in found if len(line) < _LONGEST_ECHO][:_MOST_ECHOES]
    return ", ".join(shown)
