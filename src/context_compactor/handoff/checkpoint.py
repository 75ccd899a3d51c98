"""The progress checkpoint: where the work stands, for whoever goes on with it in a fresh window.

`make_checkpoint` writes one from facts; `checkpoint_text.py` turns it into Markdown and back.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from context_compactor.apply.digests.text import clip
from context_compactor.facts.fact import Fact
from context_compactor.handoff.checkpoint_files import FileMark, changed_facts, modified_files
from context_compactor.handoff.checkpoint_lists import (
    Items,
    can_skip,
    completed_steps,
    current_task,
    key_decisions,
    must_read,
    open_blockers,
    remaining_steps,
    running_agents,
)
from context_compactor.handoff.git import GitState

_MOST_DIRTY = 15
_MOST_ARCHIVED = 15
_LONGEST_NOTE = 2_000
# Header, summary and recovery instructions stay within the first 2,000 characters, which is what a preview shows.
_LONGEST_NAME = 80
_LONGEST_SUMMARY = 130
_LONGEST_HINT = 160


class Span(Struct, frozen=True):
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
    span: Span = Span()
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
    span: Span | None = None,
    told: Sequence[str] = (),
) -> Checkpoint:
    """Where the work stands according to its facts. `told` are lines of prose on what happened.

    `updated` is a time in ISO 8601; `files` are `mark_files(folder, modified_files(facts))`, without which later
    changes of files cannot be told; `archive` is oldest first, and its newest lines are shown.
    """
    marks = modified_files(facts) if files is None else tuple(files)
    task = current_task(facts)
    lines = [structs.replace(line, summary=clip(line.summary)) for line in archive[-_MOST_ARCHIVED:]]
    bare = Checkpoint(
        session_id=session_id,
        updated=updated,
        phase=clip(phase, _LONGEST_NAME),
        span=span or Span(),
        note=note[:_LONGEST_NOTE],
        told=tuple(told),
        task=f"{clip(task.content, 300)} ({task.ref})" if task else "",
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
    summary = tuple(clip(line, _LONGEST_SUMMARY) for line in _summary(bare, usage, last_compaction))
    return structs.replace(bare, summary=summary, recovery=tuple(_recovery(bare)))


def _short_git(git: GitState) -> GitState:
    left = max(0, len(git.dirty) - _MOST_DIRTY)
    return structs.replace(git, dirty=git.dirty[:_MOST_DIRTY], more_dirty=git.more_dirty + left)


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
    session = shlex.quote(clip(checkpoint.session_id, _LONGEST_NAME))
    yield f"Run `compactor resume --session {session}`: it checks git, files and other sessions, and writes the brief."
    yield "Without it: read Must Read and Files Modified below. What failed is not to be tried again unchanged."
    if checkpoint.git is not None:
        yield clip(f"Compare git with: {checkpoint.git.line()}.", _LONGEST_HINT)
    if checkpoint.remaining.lines:
        yield clip(f"Go on with: {checkpoint.remaining.lines[0]}", _LONGEST_HINT)
    ref = checkpoint.archive[-1].id if checkpoint.archive else "turn_001"
    yield f'Originals: `compactor recall {ref}`, `compactor recall --search "words"`. All facts: `compactor facts`.'
