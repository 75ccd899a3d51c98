"""Resume: may work go on from a checkpoint? Git, files, other sessions and what was left open are looked at."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct, field, structs

from context_compactor.errors import BadCheckpoint
from context_compactor.handoff.checkpoint import Checkpoint, CheckpointSpan, FileMark, GitState
from context_compactor.text import clip_line

_MOST_NAMES = 5

Severity = Literal["note", "attention", "blocking"]


class Reason(Struct, frozen=True):
    """Something to know before going on: what it is in one line, how grave, and what to try (`try` in JSON)."""

    what: str
    severity: Severity
    try_: str = field(name="try", default="")


class OpenSession(Struct, frozen=True):
    """A session that another process has open now. `who` says which: a process and its machine, as far as known."""

    session_id: str
    who: str = ""


def git_reasons(then: GitState | None, now: GitState | None) -> Iterator[Reason]:
    """What is different in git since the checkpoint."""
    if then is None:
        return
    if now is None:
        what = f"the checkpoint was made in a git repository ({then.line()}), and there is none here now"
        yield Reason(what, "blocking", "go to the project's folder, or install git")
    elif now.problem:
        yield Reason(f"git could not be read: {now.problem}", "attention", "run `git status` and see what it says")
    elif then.problem:
        what = f"git could not be read when the checkpoint was made ({then.problem}), so there is nothing to compare"
        yield Reason(what, "note", "run `git log` and `git status`")
    else:
        yield from _moved(then, now)


def _moved(then: GitState, now: GitState) -> Iterator[Reason]:
    if now.conflicts:
        what = f"a merge left conflicts in {_named(now.conflicts)}"
        yield Reason(what, "attention", "settle them, or leave the merge with `git merge --abort`")
    if (then.branch, then.is_detached) != (now.branch, now.is_detached):
        back = shlex.quote(then.branch) if then.branch else f"--detach {then.commit}"
        what = f"the checkpoint was made on {_branch(then)}, and {_branch(now)} is checked out"
        yield Reason(what, "attention", f"go back with `git switch {back}`, or go on here knowingly")
    if then.commit != now.commit:
        what = f"HEAD has moved from {_commit(then)} to {_commit(now)}"
        known = f"`git log {then.commit}..`" if then.commit else "`git log`"
        yield Reason(what, "attention", f"see what came in with {known}")
    elif then.dirty_count != now.dirty_count:
        what = f"{then.dirty_count:,} files were not committed at the checkpoint, and {now.dirty_count:,} are not now"
        yield Reason(what, "note", "see which with `git status`")


def _branch(git: GitState) -> str:
    return "a detached HEAD" if git.is_detached else f"branch {git.branch!r}"


def _commit(git: GitState) -> str:
    return f'{git.commit} "{git.subject}"' if git.commit else "no commit"


def file_reasons(then: Sequence[FileMark], now: Sequence[FileMark]) -> Iterator[Reason]:
    """Which of the files that the session changed are not as it left them."""
    present = {file.path: file for file in now}
    pairs = [(before, present[before.path]) for before in then if before.path in present]
    gone = [a.path for a, b in pairs if (a.on_disk, b.on_disk) == ("file", "missing")]
    back = [a.path for a, b in pairs if (a.on_disk, b.on_disk) == ("missing", "file")]
    changed = [a.path for a, b in pairs if a.on_disk == b.on_disk == "file" and _differ(a, b)]
    closed = [a.path for a, b in pairs if a.on_disk != "unread" and b.on_disk == "unread"]
    if gone:
        yield Reason(
            f"missing since the checkpoint: {_named(gone)}", "attention", "look in git, or recall the original"
        )
    if changed:
        yield Reason(f"changed since the checkpoint: {_named(changed)}", "attention", "read again before any edit")
    if back:
        yield Reason(f"deleted by the session and there again: {_named(back)}", "attention", "ask who needs them")
    if closed:
        yield Reason(f"could not be read now: {_named(closed)}", "attention", "see who owns them and what they are")


def _differ(before: FileMark, after: FileMark) -> bool:
    """Whether contents differ; of files too large to be read the size must do."""
    return before.size != after.size or bool(before.sha256 and after.sha256 and before.sha256 != after.sha256)


def session_reasons(
    checkpoint: Checkpoint, others: Sequence[OpenSession], span: CheckpointSpan | None
) -> Iterator[Reason]:
    """Who else is at work: in this session, in another one of the project, or here since the checkpoint."""
    same = [other.who or "another process" for other in others if other.session_id == checkpoint.session_id]
    rest = [other.session_id for other in others if other.session_id != checkpoint.session_id]
    if same:
        what = f"session {checkpoint.session_id!r} is open in {_named(same)}"
        yield Reason(what, "blocking", "end it there first; two agents in one session undo each other's work")
    if rest:
        what = f"open in this project, too: {_named(rest)}"
        yield Reason(what, "attention", "see that they do not edit the same files")
    if span is not None and span.messages > checkpoint.span.messages:
        what = f"{span.messages - checkpoint.span.messages:,} messages were appended after the checkpoint"
        yield Reason(what, "attention", "write a new one with `compactor checkpoint`; the facts here are newer than it")


def open_reasons(checkpoint: Checkpoint) -> Iterator[Reason]:
    """What the session itself left open: blockers, and sub-agents whose answers are not there."""
    if checkpoint.blockers.count:
        what = f"blocked by: {_named(checkpoint.blockers.lines, checkpoint.blockers.more)}"
        yield Reason(what, "attention", "settle it, or ask")
    if checkpoint.running.count:
        what = f"sub-agents without an answer: {_named(checkpoint.running.lines, checkpoint.running.more)}"
        yield Reason(what, "attention", "ask for their answers, or start them again")


def _named(names: Sequence[str], more: int = 0) -> str:
    left = len(names) - _MOST_NAMES + more if len(names) > _MOST_NAMES else more
    return "; ".join(clip_line(name) for name in names[:_MOST_NAMES]) + (f"; and {left:,} more" if left else "")


_LONGEST = 500

ReadyStatus = Literal["ready", "needs_attention", "blocked"]
_STATUS_OF: dict[Severity, ReadyStatus] = {"blocking": "blocked", "attention": "needs_attention", "note": "ready"}


class ResumeCheck(Struct, frozen=True):
    """Whether work can go on: `ready`, `needs_attention` or `blocked`, with the reasons, gravest first, and the brief.

    Reasons that are mere notes leave the status at `ready`.
    """

    status: ReadyStatus
    reasons: tuple[Reason, ...]
    brief: str = ""


def check_readiness(
    checkpoint: Checkpoint | None,
    *,
    session_id: str = "",
    problem: BadCheckpoint | None = None,
    is_edited: bool = False,
    git: GitState | None = None,
    files: Sequence[FileMark] = (),
    others: Sequence[OpenSession] = (),
    span: CheckpointSpan | None = None,
    brief: str = "",
) -> ResumeCheck:
    """Compare a checkpoint with how things are now.

    `problem` is why the file could not be read; `checkpoint` is then the one rebuilt from the store, or None when the
    store knows nothing either. `files` are `mark_files(folder, checkpoint.files)`; `others` are the sessions that
    other processes have open in this project; `span` is how long the history is now; `session_id` which was asked for.
    """
    if checkpoint is None:
        what = str(problem) if problem else "there is no checkpoint"
        reason = Reason(f"{what}, and the store has no session to go on with", "blocking", "start a new session")
        return ResumeCheck("blocked", (reason,), brief)
    found = [
        *_as_found(checkpoint, session_id, problem, is_edited),
        *session_reasons(checkpoint, others, span),
        *git_reasons(checkpoint.git, git),
        *file_reasons(checkpoint.files, files),
        *open_reasons(checkpoint),
    ]
    ranked = sorted(found, key=lambda reason: list(_STATUS_OF).index(reason.severity))
    reasons = tuple(structs.replace(reason, what=clip_line(reason.what, _LONGEST)) for reason in ranked)
    status = _STATUS_OF[reasons[0].severity] if reasons else "ready"
    return ResumeCheck(status, reasons, brief)


def _as_found(checkpoint: Checkpoint, wanted: str, problem: BadCheckpoint | None, is_edited: bool) -> Iterator[Reason]:
    """What is to be said of the file itself."""
    if problem is not None:
        yield Reason(f"{problem}. It was rebuilt from the store", "attention", "read the brief before going on")
    elif is_edited:
        what = "progress-checkpoint.md was edited since it was written; the edits count, until it is written anew"
        yield Reason(what, "note", "say it with `compactor checkpoint --note` to keep it")
    if wanted and wanted != checkpoint.session_id:
        what = f"the checkpoint is of session {checkpoint.session_id!r}, not of {wanted!r}"
        yield Reason(what, "blocking", f"write one for {wanted!r} with `compactor checkpoint`, or resume the other")
