"""The session's checkpoint: made from its facts, stored, and resumed from in a fresh window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from context_compactor.errors import BadCheckpoint, CompactorError, StoreError
from context_compactor.facts.fact import Fact
from context_compactor.files import write_atomically
from context_compactor.handoff.checkpoint import (
    ArchiveLine,
    Checkpoint,
    CheckpointSpan,
    make_checkpoint,
    mark_files,
    modified_files,
    read_git,
)
from context_compactor.handoff.checkpoint_text import parse_checkpoint, render_checkpoint, was_edited
from context_compactor.handoff.resume import OpenSession, ResumeCheck, check_readiness
from context_compactor.handoff.writer import happened_lines, material_of, resume_brief
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import all_facts, parsed_context
from context_compactor.sessions.holders import other_holders
from context_compactor.sessions.state import read_session_state

CHECKPOINT = "checkpoint"
_STORY_TOKENS = 400


def current_checkpoint(core: Core, note: str = "", live: Sequence[Fact] | None = None) -> Checkpoint:
    """Where the session stands now. `live` are the facts of the context, when they are known."""
    row = core.row()
    state = read_session_state(row.state)
    facts = all_facts(core, live=live)
    root = core.project.root if core.project else Path()
    last = core.context_reader.log_state(row.head).last
    return make_checkpoint(
        session_id=core.id,
        phase=state.phase,
        updated=core.now(),
        facts=facts,
        git=read_git(root) if core.project else None,
        archive=[ArchiveLine(each.ref, each.summary, each.tokens) for each in core.store.originals(core.id, newest=15)],
        last_compaction=f"{last.note.id} at {last.created_at}" if last else "",
        usage=f"{state.gauge.tokens:,} tokens in the context",
        note=core.without_secrets(note),
        files=mark_files(root, modified_files(facts)) if core.project else None,
        span=history_span(core),
        told=happened_lines(material_of(parsed_context(core), facts), _STORY_TOKENS, core.counter(core.dialect())),
    )


def history_span(core: Core) -> CheckpointSpan:
    """How long the history is. No number that was given to a turn or a call is above these."""
    row = core.row()
    state = read_session_state(row.state)
    content = parsed_context(core)
    past = (content.past.turns, content.past.calls) if content.past else (0, 0)
    turns = max([past[0], *(turn.number for turn in content.turns)])
    calls = max([past[1], state.tool_calls, *(each.number for turn in content.turns for each in turn.exchanges)])
    return CheckpointSpan(row.messages, state.appended_tokens, turns, calls)


def write_checkpoint(core: Core, checkpoint: Checkpoint) -> str:
    """Keep a checkpoint in the store and in the project; its file, or "" when there is no project."""
    text = store_checkpoint(core, checkpoint)
    if core.project is None:
        return ""
    write_atomically(core.project.checkpoint_file, text.encode("utf-8", "replace"), private=True)
    return str(core.project.checkpoint_file)


def write_if_possible(core: Core, checkpoint: Checkpoint) -> str:
    """The same where nothing may depend on it: the store has it, and the file can be made again."""
    try:
        return write_checkpoint(core, checkpoint)
    except StoreError:
        raise
    except CompactorError as error:
        core.emit("job.dropped", what="checkpoint file", reason=str(error))
        return ""


def store_checkpoint(core: Core, checkpoint: Checkpoint) -> str:
    """Keep a checkpoint in the store; its text."""
    text = render_checkpoint(checkpoint)
    with core.writing():
        (name,) = core.store.put([text.encode("utf-8", "surrogatepass")])
        core.note(CHECKPOINT, name)
    return text


def stored_checkpoint(core: Core) -> str | None:
    """The text of the last checkpoint, as the store has it."""
    name = read_session_state(core.row().state).notes.get(CHECKPOINT)
    return core.store.get([name])[name].decode("utf-8", "surrogatepass") if isinstance(name, str) else None


def resume(core: Core, holder: str, tokens: int) -> ResumeCheck:
    """Whether work can go on from the checkpoint, why not, and what to begin with in at most so many tokens."""
    checkpoint, problem, is_edited = _checkpoint(core)
    project, facts = core.project, all_facts(core)
    others = other_holders(core.store, core.clock(), holder)
    return check_readiness(
        checkpoint,
        session_id=core.id,
        problem=problem,
        is_edited=is_edited,
        git=read_git(project.root) if project else None,
        files=mark_files(project.root, checkpoint.files) if project else checkpoint.files,
        others=[OpenSession(session, f"{name}, since {since}") for session, name, since in others],
        span=history_span(core),
        brief=resume_brief(checkpoint, facts, tokens, material_of(parsed_context(core), facts)),
    )


def _checkpoint(core: Core) -> tuple[Checkpoint, BadCheckpoint | None, bool]:
    """The checkpoint in the project's file when it is this session's, else that of the store, else a new one."""
    file = core.project.checkpoint_file if core.project else None
    stored = stored_checkpoint(core)
    text = file.read_bytes().decode("utf-8", "replace") if file and file.is_file() else stored
    if text is None:
        return current_checkpoint(core), None, False
    try:
        found = parse_checkpoint(text)
    except BadCheckpoint as problem:
        rebuilt = current_checkpoint(core)
        write_checkpoint(core, rebuilt)
        return rebuilt, problem, False
    if found.session_id == core.id:
        return found, None, was_edited(text)
    # One file serves all sessions of a project; each has its own in the store.
    return parse_checkpoint(stored) if stored else current_checkpoint(core), None, False
