"""What the agent did to the project: files, packages, and how its last test and build runs ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise, takewhile
from posixpath import basename

from msgspec import Struct, structs

from context_compactor.classify.checks import check_of
from context_compactor.classify.failures import wording_of
from context_compactor.classify.kinds import Kind, kind_of
from context_compactor.classify.lifecycle import FileLife, FileRead, FileRecord
from context_compactor.classify.references import reference_of
from context_compactor.classify.shell import Step
from context_compactor.facts.changes import changes_in
from context_compactor.facts.exchanges import Called
from context_compactor.facts.fact import Fact
from context_compactor.facts.processes import is_behind
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import ToolUse

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


def file_facts(life: FileLife, called: Sequence[Called]) -> list[Fact]:
    """Every file that was changed or read: what changed in it, and whether that is committed; changed ones first."""
    records = sorted(life.files.values(), key=lambda record: (record.status == "read", record.turns[1]))
    exchanges = {exchange.number: exchange for _, exchange, _ in called}
    return [_file_fact(record, exchanges) for record in records if not record.is_gone]


def _file_fact(record: FileRecord, exchanges: Mapping[int, ToolUse]) -> Fact:
    first, last = record.turns
    latest = record.latest
    is_read = any(read.exchange == latest for read in record.reads)
    ref = reference_id("file" if is_read else "tool", latest)
    if record.status == "read":
        return Fact(
            "file_state", record.path, first, "tool", _lines_read(record.reads), "read", len(record.reads), last, ref
        )
    status = "uncommitted" if record.is_uncommitted else "committed" if record.is_committed else record.status
    changes = "" if record.status == "deleted" else changes_in(record, exchanges)
    # A status of a commit says nothing of what was done; an edit need not be named where it is told.
    done = record.status if record.status != status and (record.status != "edited" or not changes) else ""
    count = len(record.writes) or 1
    return Fact(
        "file_state", record.path, first, "tool", ": ".join(filter(None, (done, changes))), status, count, last, ref
    )


def _lines_read(reads: Sequence[FileRead]) -> str:
    if not reads or any(read.first == 1 and read.last is None for read in reads):
        return ""
    ranges = list(dict.fromkeys(f"{read.first}-{read.last or 'end'}" for read in reads if read.ranged))
    return f"read lines {', '.join(ranges[-_MOST_RANGES:])}" if ranges else ""


def dependency_facts(called: Sequence[Called], failed: Collection[int]) -> list[Fact]:
    """Packages that were installed, each with the command that did it last."""
    found: dict[str, Fact] = {}
    for turn, exchange, reading in called:
        if exchange.result is None or exchange.number in failed:
            continue
        for step in reading.steps:
            for package in _packages(step):
                fact = Fact("dependency", package, turn, "tool", step.program, "", 1, turn, reference_of(exchange))
                found[package] = fact
    return list(found.values())


def _packages(step: Step) -> list[str]:
    words = step.words
    if words[:2] and step.program.startswith("python") and words[1:3] == ("-m", "pip"):
        words = words[2:]
    if len(words) < 3 or words[1] not in _INSTALLS.get(words[0].rpartition("/")[2], "").split():
        return []
    named = [word for before, word in pairwise(words[1:]) if before not in _TAKES_VALUE]
    return [word for word in named if not word.startswith(("-", ".", "/", "$", "~")) and len(word) < 100]


DescribeOutcome = Callable[[ToolUse, Kind, None], str]
"""How a call that did not fail ended, in one line."""


def command_facts(called: Sequence[Called], errors: Mapping[int, str], describe_outcome: DescribeOutcome) -> list[Fact]:
    """How the newest test, build and lint runs ended, each command once. `errors` are those of failed exchanges.

    The count is of runs that ended as the last one did; runs that ended otherwise before are told beside it.
    """
    found: dict[str, list[_Run]] = {}
    for turn, exchange, reading in called:
        checked = next((step for step in reading.steps if check_of(step)), None)
        if checked is not None and exchange.result is not None and not is_behind(exchange, reading):
            key = " ".join(checked.words[:4])
            found[key] = [*found.pop(key, []), _Run(turn, exchange, errors.get(exchange.number))]
    edits = [(turn, path) for turn, exchange, reading in called if reading.writes for path in reading.paths]
    return [
        _with_edits(_command_fact(runs, describe_outcome), edits) for runs in list(found.values())[-_MOST_COMMANDS:]
    ]


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
    detail = _ended(last.exchange, describe_outcome) if last.error is None else last.error
    if others:
        told = f"after {others} {'failure' if last.error is None else 'pass'}{_plural(others, last.error is None)}"
        detail = f"{detail} ({told})" if detail else told
    ran = _ran(last.exchange.result.text if last.exchange.result else "")
    detail = f"{detail} (runs {ran})".lstrip() if ran else detail
    status = "passed" if last.error is None else "failed"
    command, ref = wording_of(last.exchange.call), reference_of(last.exchange)
    return Fact("command", command, runs[0].turn, "tool", detail, status, len(streak), last.turn, ref)


def _ran(text: str) -> str:
    """The commands that a task runner says it runs, as `[test] $ go test ./...` or `> jest`."""
    found = dict.fromkeys(" ".join(line.split()) for line in _ECHO.findall(text[:_ECHO_SIGHT]))
    told = [f"`{line}`" for line in found if len(line) < _LONGEST_ECHO][:_MOST_ECHOES]
    return ", ".join(told)


def _plural(count: int, is_failure: bool) -> str:
    if count == 1:
        return ""
    return "s" if is_failure else "es"


def _ended(use: ToolUse, describe_outcome: DescribeOutcome) -> str:
    return describe_outcome(use, kind_of(use.call, use.result.text if use.result else ""), None)
