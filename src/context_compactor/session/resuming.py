"""Going on in a fresh window: may work go on from the last checkpoint, and with what does it begin?"""

from __future__ import annotations

from context_compactor.errors import BadCheckpoint
from context_compactor.handoff.checkpoint import Checkpoint, mark_files
from context_compactor.handoff.checkpoint_text import parse_checkpoint, was_edited
from context_compactor.handoff.git import read_git
from context_compactor.handoff.resume import OpenSession, Readiness, check_readiness
from context_compactor.handoff.writer import material_of, resume_brief
from context_compactor.session import checkpoints
from context_compactor.session.core import Core
from context_compactor.session.holding import others
from context_compactor.session.memory import all_facts, scene_of


def resume(core: Core, holder: str, tokens: int) -> Readiness:
    """Whether work can go on from the checkpoint, why not, and what to begin with in at most so many tokens."""
    checkpoint, problem, is_edited = _checkpoint(core)
    project = core.project
    open_now = others(core.store, core.clock(), holder)
    held = [OpenSession(session, f"{name}, since {since}") for session, name, since in open_now]
    facts = all_facts(core)
    return check_readiness(
        checkpoint,
        session_id=core.id,
        problem=problem,
        is_edited=is_edited,
        git=read_git(project.root) if project else None,
        files=mark_files(project.root, checkpoint.files) if project else checkpoint.files,
        others=held,
        span=checkpoints.span(core),
        brief=resume_brief(checkpoint, facts, tokens, material_of(scene_of(core), facts)),
    )


def _checkpoint(core: Core) -> tuple[Checkpoint, BadCheckpoint | None, bool]:
    """The checkpoint in the project's file when it is this session's, else that of the store, else a new one."""
    file = core.project.checkpoint_file if core.project else None
    stored = checkpoints.stored(core)
    text = file.read_bytes().decode("utf-8", "replace") if file and file.is_file() else stored
    if text is None:
        return checkpoints.make(core), None, False
    try:
        found = parse_checkpoint(text)
    except BadCheckpoint as problem:
        rebuilt = checkpoints.make(core)
        checkpoints.write(core, rebuilt)
        return rebuilt, problem, False
    if found.session_id == core.id:
        return found, None, was_edited(text)
    # One file serves all sessions of a project; each has its own in the store.
    return parse_checkpoint(stored) if stored else checkpoints.make(core), None, False
