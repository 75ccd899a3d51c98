"""The progress checkpoint: where the work and its git repository stand, for whoever goes on in a fresh window."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from pathlib import Path
from stat import S_ISREG
from typing import Literal

from msgspec import Struct, structs

from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import RESOLVED
from context_compactor.facts.ledgers import fact_line
from context_compactor.text import clip_line

_MAX_DIRTY_READ = 100
_COMMIT_LENGTH = 12
_SECONDS = 10.0
# A hook of git itself runs with these set; the folder decides, not they.
_ELSEWHERE = frozenset(
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_COMMON_DIR GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES "
    "GIT_NAMESPACE GIT_PREFIX".split()
)
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
# A file monitor is a program of its own, and one that writes.
# A project may have come from anywhere: nothing of it is run, and a repository within its files is none.
_READING = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit")
_STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=all")
_SUBJECT = ("log", "-1", "--no-show-signature", "--encoding=UTF-8", "--format=%s")
# How many blanks stand before the path in an entry of `git status`, by the entry's first letter.
_BLANKS = {"1": 8, "2": 9, "u": 10, "?": 1}


class DirtyFile(Struct, frozen=True):
    """A file that differs from the last commit. `status` is git's two letters; `origin` its name before a rename."""

    status: str
    path: str
    origin: str = ""

    @property
    def is_conflict(self) -> bool:
        """Whether a merge left it to be settled."""
        return "U" in self.status or self.status in ("AA", "DD")


class GitState(Struct, frozen=True):
    """The branch, its last commit and what is not committed.

    `branch` is empty when HEAD is detached, `commit` when there is none yet; `ahead` and `behind` are None when they
    are not known. `problem` says why the repository could not be read, in git's words.
    """

    branch: str = ""
    commit: str = ""
    subject: str = ""
    dirty: tuple[DirtyFile, ...] = ()
    more_dirty: int = 0
    upstream: str = ""
    ahead: int | None = None
    behind: int | None = None
    is_detached: bool = False
    problem: str = ""

    @property
    def dirty_count(self) -> int:
        """How many files differ from the last commit, listed or not."""
        return len(self.dirty) + self.more_dirty

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The files that a merge left to be settled; these are listed before all others."""
        return tuple(file.path for file in self.dirty if file.is_conflict)

    def line(self) -> str:
        """The state in one line."""
        if self.problem:
            return f"could not be read: {self.problem}"
        place = "detached HEAD" if self.is_detached else f"branch {self.branch}"
        commit = f'at {self.commit} "{clip_line(self.subject, 80)}"' if self.commit else "without commits"
        changed = f"{self.dirty_count:,} uncommitted" if self.dirty_count else "nothing uncommitted"
        return f"{place} {commit}, {changed}"


class _Answer(Struct, frozen=True):
    output: str = ""
    problem: str = ""


def read_git(folder: Path, *, seconds: float = _SECONDS) -> GitState | None:
    """The state of the repository that a folder belongs to; None without a repository or without git.

    What cannot be read (a damaged repository, one of somebody else, no answer in time) is a state with a `problem`.
    At most 100 dirty files are listed, conflicts first; `more_dirty` counts the rest.
    """
    answer = _ask(folder, seconds, *_STATUS)
    if answer is None or (answer.problem and not _has_repository(folder)):
        return None
    if answer.problem:
        return GitState(problem=answer.problem)
    state, oid = _read_status(answer.output)
    subject_of = _ask(folder, seconds, *_SUBJECT, oid) if oid else None
    return (
        structs.replace(state, subject=subject_of.output.removesuffix("\n"), problem=subject_of.problem)
        if subject_of
        else state
    )


def _ask(folder: Path, seconds: float, *words: str) -> _Answer | None:
    """What git answers; None when there is no git."""
    command = ["git", *_READING, "-C", str(folder), *words]
    env = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE} | _QUIET
    try:
        run = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except (FileNotFoundError, PermissionError):
        return None
    except subprocess.TimeoutExpired:
        return _Answer(problem=f"git {words[0]} did not answer within {seconds:g} seconds")
    if run.returncode:
        first = run.stderr.decode("utf-8", "backslashreplace").strip().split("\n")[0]
        words_of_git = clip_line(first.removeprefix("fatal: ").removeprefix("error: "), 300)
        return _Answer(problem=words_of_git or f"git {words[0]} ended with {run.returncode}")
    return _Answer(run.stdout.decode("utf-8", "backslashreplace"))


def _has_repository(folder: Path) -> bool:
    """Whether something here or above calls itself a repository, be it damaged."""
    place = folder.absolute()
    return any(os.path.lexists(each / ".git") for each in (place, *place.parents))


def _read_status(output: str) -> tuple[GitState, str]:
    """The state without its commit's subject, and the commit's full name."""
    entries = output.split("\0")
    # A file may be called "# branch.head": only what stands in front tells of the branch.
    headers = takewhile(lambda entry: entry.startswith("# "), entries)
    known = {key: value for key, _, value in (header[2:].partition(" ") for header in headers)}
    dirty = sorted(_dirty(iter(entries)), key=lambda file: not file.is_conflict)
    head, oid = known.get("branch.head", ""), known.get("branch.oid", "")
    oid = "" if oid == "(initial)" else oid
    ahead, behind = _distances(known.get("branch.ab", ""))
    is_detached = head == "(detached)"
    state = GitState(
        branch="" if is_detached else head,
        commit=oid[:_COMMIT_LENGTH],
        dirty=tuple(dirty[:_MAX_DIRTY_READ]),
        more_dirty=max(0, len(dirty) - _MAX_DIRTY_READ),
        upstream=known.get("branch.upstream", ""),
        ahead=ahead,
        behind=behind,
        is_detached=is_detached,
    )
    return state, oid


def _dirty(entries: Iterator[str]) -> Iterator[DirtyFile]:
    for entry in entries:
        blanks = _BLANKS.get(entry[:1])
        if blanks is not None:
            *words, path = entry.split(" ", blanks)
            status = words[1] if len(words) > 1 else "??"
            # The name before a rename is an entry of its own.
            yield DirtyFile(status, path, next(entries, "") if entry.startswith("2 ") else "")


def _distances(text: str) -> tuple[int | None, int | None]:
    """How far the branch is ahead of and behind its upstream, from `+1 -2`."""
    ahead, _, behind = text.partition(" ")
    is_known = ahead[1:].isdecimal() and behind[1:].isdecimal()
    return (int(ahead[1:]), int(behind[1:])) if is_known else (None, None)


_LONGEST = 150
_LONGEST_DETAIL = 110
_MOST_STEPS = 12
_MOST_BLOCKERS = 6
_MOST_DECISIONS = 12
_MOST_RUNNING = 6
_MOST_SKIPPED = 8
# What must be read, with what a line is called and how many there are at most. Newest ones are kept.
_MUST_READ = (
    ("constraint", "rule", 12),
    ("mode", "mode", 1),
    ("denial", "", 4),
    ("approval", "approved", 4),
    ("failure", "", 12),
    ("side_effect", "outside", 6),
    ("error", "error", 3),
)


class Items(Struct, frozen=True):
    """Lines of a list, and how many `more` were left out of it."""

    lines: tuple[str, ...] = ()
    more: int = 0

    @property
    def count(self) -> int:
        """How many there are, shown or not."""
        return len(self.lines) + self.more


def current_task(facts: Sequence[Fact]) -> Fact | None:
    """What the user asked for last, as far as it is not done; else the last request there is."""
    tasks = _of_kinds(facts, "task")
    return next((fact for fact in reversed(tasks) if fact.status == "active"), tasks[-1] if tasks else None)


def completed_steps(facts: Sequence[Fact]) -> Items:
    """Requests and to-dos that are done; the newest are shown."""
    return _newest([fact for fact in _of_kinds(facts, "task", "todo") if fact.status == "done"], _MOST_STEPS)


def remaining_steps(facts: Sequence[Fact]) -> Items:
    """What is under way, then what comes next; the first are shown."""
    left = [fact for fact in _of_kinds(facts, "todo", "next_step") if fact.status not in ("done", "superseded")]
    left.sort(key=lambda fact: fact.status != "active")
    return _shown(left[:_MOST_STEPS], len(left))


def open_blockers(facts: Sequence[Fact]) -> Items:
    """What stands in the way of the work, or waits for an answer."""
    stuck = _of_kinds(facts, "blocker") + [fact for fact in _of_kinds(facts, "todo") if fact.status == "blocked"]
    return _newest([fact for fact in stuck if fact.status not in ("resolved", "done", "superseded")], _MOST_BLOCKERS)


def key_decisions(facts: Sequence[Fact]) -> Items:
    """What was decided and found out, but for what was overtaken; the newest are shown."""
    return _newest([fact for fact in _of_kinds(facts, "decision") if fact.status != "superseded"], _MOST_DECISIONS)


def running_agents(facts: Sequence[Fact]) -> Items:
    """Sub-agents whose answer is not there yet."""
    return _newest([fact for fact in _of_kinds(facts, "subagent") if fact.status == "running"], _MOST_RUNNING)


def must_read(facts: Sequence[Fact]) -> Items:
    """Rules, modes, refusals, failures that are not resolved and what was done outside."""
    known = [fact for fact in facts if (fact.kind, fact.status) != ("failure", RESOLVED)]
    found = [_newest(_of_kinds(known, kind), most, label) for kind, label, most in _MUST_READ]
    return Items(tuple(line for items in found for line in items.lines), sum(items.more for items in found))


def can_skip(facts: Sequence[Fact]) -> Items:
    """What can be looked up when it is needed: files only read, finished sub-agents, runs that passed, packages."""
    known = _of_kinds(facts, "file_state", "subagent", "command", "dependency")
    return _newest([fact for fact in known if _is_idle(fact)], _MOST_SKIPPED)


def _is_idle(fact: Fact) -> bool:
    if fact.kind == "file_state":
        return fact.status == "read"
    return fact.status not in ("running", "failed")


def _of_kinds(facts: Iterable[Fact], *kinds: str) -> list[Fact]:
    return [fact for fact in facts if fact.kind in kinds]


def _newest(facts: Iterable[Fact], most: int, label: str = "") -> Items:
    ordered = sorted(facts, key=lambda fact: fact.last_turn or fact.turn)
    return _shown(ordered[-most:], len(ordered), label)


def _shown(facts: Sequence[Fact], count: int, label: str = "") -> Items:
    """Facts, each in one short line. A label says what they are, so that their status is not needed."""
    lines: list[str] = []
    for fact in facts:
        short = structs.replace(
            fact, content=clip_line(fact.content, _LONGEST), detail=clip_line(fact.detail, _LONGEST_DETAIL)
        )
        lines.append(f"{label}: {fact_line(structs.replace(short, status=''))}" if label else fact_line(short))
    return Items(tuple(lines), count - len(facts))


MOST_FILES = 30
_MOST_BYTES = 2_000_000

OnDisk = Literal["file", "missing", "unread"]


class FileMark(Struct, frozen=True):
    """A changed file: what the session did to it, and what was found on disk.

    `on_disk` is `unread` for what is outside of the project, not a plain file, or not to be opened. A file of more
    than 2 MB has a size and no `sha256`.
    """

    path: str
    status: str = ""
    ref: str = ""
    on_disk: OnDisk = "unread"
    size: int = 0
    sha256: str = ""


def modified_files(facts: Sequence[Fact], most: int = MOST_FILES) -> tuple[FileMark, ...]:
    """The files that facts say were changed: what is not committed first, then the newest. None is looked at yet."""
    changed = sorted(changed_facts(facts), key=lambda fact: (fact.status != "uncommitted", -fact.last_turn))
    marks = ((fact, f"{fact.detail}, " if fact.status == "uncommitted" and fact.detail else "") for fact in changed)
    return tuple(FileMark(fact.content, f"{how}{fact.status}", fact.ref) for fact, how in islice(marks, most))


def changed_facts(facts: Sequence[Fact]) -> list[Fact]:
    """The facts of files that were changed, not only read."""
    return [fact for fact in facts if fact.kind == "file_state" and fact.status != "read"]


def mark_files(folder: Path, files: Sequence[FileMark]) -> tuple[FileMark, ...]:
    """The same files with what is on disk now. Only files of the project are opened, whatever a path says."""
    return tuple(_mark(folder, file) for file in files)


def _mark(folder: Path, file: FileMark) -> FileMark:
    unread = structs.replace(file, on_disk="unread", size=0, sha256="")
    try:
        # Links are followed first: one that leads out of the project is not read.
        place = (folder / file.path).resolve()
        if not place.is_relative_to(folder.resolve()):
            return unread
        found = place.stat()
        if not S_ISREG(found.st_mode):
            return unread
        content = place.read_bytes() if found.st_size <= _MOST_BYTES else None
    except (FileNotFoundError, NotADirectoryError):
        return structs.replace(unread, on_disk="missing")
    except (OSError, ValueError, RuntimeError):  # not allowed, no name for a file, a circle of links
        return unread
    if content is None:
        return structs.replace(unread, on_disk="file", size=found.st_size)
    return structs.replace(unread, on_disk="file", size=len(content), sha256=hashlib.sha256(content).hexdigest())


_MOST_UNCOMMITTED = 15
_MOST_ARCHIVED = 15
_LONGEST_NOTE = 2_000
# Header, summary and recovery instructions stay within the first 2,000 characters, which is what a preview shows.
_LONGEST_NAME = 80
_LONGEST_SUMMARY = 130
_LONGEST_HINT = 160


class CheckpointSpan(Struct, frozen=True):
    """How long the history was: ids that are counted from here on are new."""

    messages: int = 0
    tokens: int = 0
    turns: int = 0
    calls: int = 0


class ArchiveLine(Struct, frozen=True):
    """One original that left the context, and the id that recalls it."""

    id: str
    summary: str
    tokens: int


class Checkpoint(Struct, frozen=True):
    """Where a session stands. Lists are short; what was left out of them is counted and can be looked up."""

    session_id: str
    updated: str
    phase: str = ""
    span: CheckpointSpan = CheckpointSpan()
    summary: tuple[str, ...] = ()
    recovery: tuple[str, ...] = ()
    note: str = ""
    told: tuple[str, ...] = ()
    task: str = ""
    task_status: str = ""
    completed: Items = Items()
    remaining: Items = Items()
    blockers: Items = Items()
    files: tuple[FileMark, ...] = ()
    more_files: int = 0
    decisions: Items = Items()
    must_read: Items = Items()
    running: Items = Items()
    can_skip: Items = Items()
    git: GitState | None = None
    archive: tuple[ArchiveLine, ...] = ()
    more_archived: int = 0


def make_checkpoint(
    *,
    session_id: str,
    phase: str,
    updated: str,
    facts: Sequence[Fact],
    git: GitState | None,
    archive: Sequence[ArchiveLine],
    last_compaction: str = "",
    usage: str = "",
    note: str = "",
    files: Sequence[FileMark] | None = None,
    span: CheckpointSpan | None = None,
    told: Sequence[str] = (),
) -> Checkpoint:
    """Where the work stands according to its facts. `told` are lines of prose on what happened.

    `updated` is a time in ISO 8601; `files` are `mark_files(folder, modified_files(facts))`, without which later
    changes of files cannot be told; `archive` is oldest first, and its newest lines are shown.
    """
    marks = modified_files(facts) if files is None else tuple(files)
    task = current_task(facts)
    lines = [structs.replace(line, summary=clip_line(line.summary)) for line in archive[-_MOST_ARCHIVED:]]
    bare = Checkpoint(
        session_id=session_id,
        updated=updated,
        phase=clip_line(phase, _LONGEST_NAME),
        span=span or CheckpointSpan(),
        note=note[:_LONGEST_NOTE],
        told=tuple(told),
        task=f"{clip_line(task.content, 300)} ({task.ref})" if task else "",
        task_status=task.status if task else "",
        completed=completed_steps(facts),
        remaining=remaining_steps(facts),
        blockers=open_blockers(facts),
        files=marks,
        more_files=max(0, len(changed_facts(facts)) - len(marks)),
        decisions=key_decisions(facts),
        must_read=must_read(facts),
        running=running_agents(facts),
        can_skip=can_skip(facts),
        git=_short_git(git) if git else None,
        archive=tuple(lines),
        more_archived=len(archive) - len(lines),
    )
    summary = tuple(clip_line(line, _LONGEST_SUMMARY) for line in _summary(bare, usage, last_compaction))
    return structs.replace(bare, summary=summary, recovery=tuple(_recovery(bare)))


def _short_git(git: GitState) -> GitState:
    left = max(0, len(git.dirty) - _MOST_UNCOMMITTED)
    return structs.replace(git, dirty=git.dirty[:_MOST_UNCOMMITTED], more_dirty=git.more_dirty + left)


def _summary(checkpoint: Checkpoint, usage: str, last_compaction: str) -> Iterator[str]:
    """What a reader in a hurry must know: the task, how far it is, what stands in its way."""
    yield f"Task: {checkpoint.task}" if checkpoint.task else "Task: none was given yet"
    done, left = checkpoint.completed.count, checkpoint.remaining.count
    files = len(checkpoint.files) + checkpoint.more_files
    yield (
        f"Steps done: {done:,}, left: {left:,}; files modified: {files:,}; "
        f"blockers: {checkpoint.blockers.count:,}; sub-agents running: {checkpoint.running.count:,}"
    )
    if checkpoint.blockers.lines:
        yield f"Blocked: {checkpoint.blockers.lines[0]}"
    if usage:
        yield f"Context: {usage}"
    if last_compaction:
        yield f"Last compaction: {last_compaction}"


def _recovery(checkpoint: Checkpoint) -> Iterator[str]:
    """What to do in a fresh window, in order."""
    session = shlex.quote(clip_line(checkpoint.session_id, _LONGEST_NAME))
    yield f"Run `compactor resume --session {session}`: it checks git, files and other sessions, and writes the brief."
    yield "Without it: read Must Read and Files Modified below. What failed is not to be tried again unchanged."
    if checkpoint.git is not None:
        yield clip_line(f"Compare git with: {checkpoint.git.line()}.", _LONGEST_HINT)
    if checkpoint.remaining.lines:
        yield clip_line(f"Go on with: {checkpoint.remaining.lines[0]}", _LONGEST_HINT)
    ref = checkpoint.archive[-1].id if checkpoint.archive else "turn_001"
    yield f'Originals: `compactor recall {ref}`, `compactor recall --search "words"`. All facts: `compactor facts`.'
