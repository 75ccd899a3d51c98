"""Resume: may work go on from a checkpoint? `resume_checks.py` has the single checks, `resume_brief.py` the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct, structs

from context_compactor.apply.digests.text import clip
from context_compactor.errors import BadCheckpoint
from context_compactor.handoff.checkpoint import Checkpoint, Span
from context_compactor.handoff.checkpoint_files import FileMark
from context_compactor.handoff.git import GitState
from context_compactor.handoff.resume_checks import (
    OpenSession,
    Reason,
    file_reasons,
    git_reasons,
    open_reasons,
    session_reasons,
)
from context_compactor.handoff.writer import resume_brief

__all__ = ["OpenSession", "Readiness", "Reason", "check_readiness", "resume_brief"]

_LONGEST = 500
_RANKS = ("blocking", "attention", "note")

ReadyStatus = Literal["ready", "needs_attention", "blocked"]


class Readiness(Struct, frozen=True):
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
    span: Span | None = None,
    brief: str = "",
) -> Readiness:
    """Compare a checkpoint with how things are now.

    `problem` is why the file could not be read; `checkpoint` is then the one rebuilt from the store, or None when the
    store knows nothing either. `files` are `mark_files(folder, checkpoint.files)`; `others` are the sessions that
    other processes have open in this project; `span` is how long the history is now; `session_id` which was asked for.
    """
    if checkpoint is None:
        what = str(problem) if problem else "there is no checkpoint"
        reason = Reason(f"{what}, and the store has no session to go on with", "blocking", "start a new session")
        return Readiness("blocked", (reason,), brief)
    found = [
        *_as_found(checkpoint, session_id, problem, is_edited),
        *session_reasons(checkpoint, others, span),
        *git_reasons(checkpoint.git, git),
        *file_reasons(checkpoint.files, files),
        *open_reasons(checkpoint),
    ]
    ranked = sorted(found, key=lambda reason: _RANKS.index(reason.severity))
    reasons = tuple(structs.replace(reason, what=clip(reason.what, _LONGEST)) for reason in ranked)
    return Readiness(_status(reasons), reasons, brief)


def _status(reasons: Sequence[Reason]) -> ReadyStatus:
    gravest = reasons[0].severity if reasons else "note"
    if gravest == "blocking":
        return "blocked"
    return "needs_attention" if gravest == "attention" else "ready"


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
