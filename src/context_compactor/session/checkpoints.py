"""The session's checkpoint: made from its facts, kept in the store and in the project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from context_compactor.errors import CompactorError, StoreError
from context_compactor.facts.fact import Fact
from context_compactor.files import write_atomically
from context_compactor.handoff.checkpoint import (
    ArchiveLine,
    Checkpoint,
    Span,
    make_checkpoint,
    mark_files,
    modified_files,
)
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.git import read_git
from context_compactor.handoff.writer import happened_lines, material_of
from context_compactor.session.core import Core
from context_compactor.session.memory import all_facts, scene_of
from context_compactor.session.values import read_state

CHECKPOINT = "checkpoint"
_TOLD_TOKENS = 400


def make(core: Core, note: str = "", live: Sequence[Fact] | None = None) -> Checkpoint:
    """Where the session stands now. `live` are the facts of the context, when they are known."""
    row = core.row()
    state = read_state(row.state)
    facts = all_facts(core, live=live)
    root = core.project.root if core.project else Path()
    sight = core.lens.sight(row.head)
    last = sight.last
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
        span=span(core),
        told=happened_lines(material_of(scene_of(core), facts), _TOLD_TOKENS, core.counter(core.dialect())),
    )


def span(core: Core) -> Span:
    """How long the history is. No number that was given to a turn or a call is above these."""
    row = core.row()
    state = read_state(row.state)
    scene = scene_of(core)
    past = (scene.past.turns, scene.past.calls) if scene.past else (0, 0)
    turns = max([past[0], *(turn.number for turn in scene.turns)])
    calls = max([past[1], state.tool_calls, *(each.number for turn in scene.turns for each in turn.exchanges)])
    return Span(row.messages, state.appended_tokens, turns, calls)


def write(core: Core, checkpoint: Checkpoint) -> str:
    """Keep a checkpoint in the store and in the project; its file, or "" when there is no project."""
    text = keep(core, checkpoint)
    if core.project is None:
        return ""
    write_atomically(core.project.checkpoint_file, text.encode("utf-8", "replace"), private=True)
    return str(core.project.checkpoint_file)


def write_if_possible(core: Core, checkpoint: Checkpoint) -> str:
    """The same where nothing may depend on it: the store has it, and the file can be made again."""
    try:
        return write(core, checkpoint)
    except StoreError:
        raise
    except CompactorError as error:
        core.emit("job.dropped", what="checkpoint file", reason=str(error))
        return ""


def keep(core: Core, checkpoint: Checkpoint) -> str:
    """Keep a checkpoint in the store; its text."""
    text = render_checkpoint(checkpoint)
    with core.writing():
        (name,) = core.store.put([text.encode("utf-8", "surrogatepass")])
        core.note(CHECKPOINT, name)
    return text


def stored(core: Core) -> str | None:
    """The text of the last checkpoint, as the store has it."""
    name = read_state(core.row().state).notes.get(CHECKPOINT)
    return core.store.get([name])[name].decode("utf-8", "surrogatepass") if isinstance(name, str) else None
