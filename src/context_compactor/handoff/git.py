"""Where a project stands in git. Git is only read: no lock is taken, no index refreshed, nothing is fetched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from msgspec import Struct, structs

from context_compactor.apply.digests.text import clip

_MOST_DIRTY = 100
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
        commit = f'at {self.commit} "{clip(self.subject, 80)}"' if self.commit else "without commits"
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
    told = _ask(folder, seconds, *_SUBJECT, oid) if oid else None
    return structs.replace(state, subject=told.output.removesuffix("\n"), problem=told.problem) if told else state


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
        return _Answer(problem=_complaint(run.stderr) or f"git {words[0]} ended with {run.returncode}")
    return _Answer(run.stdout.decode("utf-8", "backslashreplace"))


def _complaint(stderr: bytes) -> str:
    first = stderr.decode("utf-8", "backslashreplace").strip().split("\n")[0]
    return clip(first.removeprefix("fatal: ").removeprefix("error: "), 300)


def _has_repository(folder: Path) -> bool:
    """Whether something here or above calls itself a repository, be it damaged."""
    place = folder.absolute()
    return any(os.path.lexists(each / ".git") for each in (place, *place.parents))


def _read_status(output: str) -> tuple[GitState, str]:
    """The state without its commit's subject, and the commit's full name."""
    entries = output.split("\0")
    # A file may be called "# branch.head": only what stands in front tells of the branch.
    headers = takewhile(lambda entry: entry.startswith("# "), entries)
    told = {key: value for key, _, value in (header[2:].partition(" ") for header in headers)}
    dirty = sorted(_dirty(iter(entries)), key=lambda file: not file.is_conflict)
    head, oid = told.get("branch.head", ""), told.get("branch.oid", "")
    oid = "" if oid == "(initial)" else oid
    ahead, behind = _distances(told.get("branch.ab", ""))
    is_detached = head == "(detached)"
    state = GitState(
        branch="" if is_detached else head,
        commit=oid[:_COMMIT_LENGTH],
        dirty=tuple(dirty[:_MOST_DIRTY]),
        more_dirty=max(0, len(dirty) - _MOST_DIRTY),
        upstream=told.get("branch.upstream", ""),
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


def _distances(told: str) -> tuple[int | None, int | None]:
    """How far the branch is ahead of and behind its upstream, from `+1 -2`."""
    ahead, _, behind = told.partition(" ")
    is_known = ahead[1:].isdecimal() and behind[1:].isdecimal()
    return (int(ahead[1:]), int(behind[1:])) if is_known else (None, None)
