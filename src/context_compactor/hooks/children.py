"""Sub-agents: who runs is registered, what they begin with is short, and what they found is kept."""

from __future__ import annotations

import os

from msgspec import structs

from context_compactor.agents.diary import write_line
from context_compactor.agents.keeping_up import Log, keep_up, remember, using_tally
from context_compactor.agents.known import CODEX
from context_compactor.agents.places import session_key
from context_compactor.archive.archive import Original
from context_compactor.archive.shelve import make_items
from context_compactor.classify.kinds import Kind
from context_compactor.errors import BadInput
from context_compactor.handoff.messages import Status
from context_compactor.handoff.summary import count_tokens
from context_compactor.hooks.call import Answer, Call
from context_compactor.messages.references import FIRST_BESIDE, reference_id
from context_compactor.session.core import Core, raws_of
from context_compactor.session.handing import orchestrator, save_orchestrator, summary_for

_FEWEST_MESSAGES = 3


def subagent_start(call: Call) -> Answer | None:
    """Register a sub-agent, and tell it what its caller knows."""
    parent = _parent(call)
    if not call.agent_id or not os.path.isfile(parent.path):
        return None
    with keep_up(parent, call.settings, archive=False) as kept:
        core = kept.core
        with core.writing():
            state = orchestrator(core)
            task = call.text("agent_type") or "sub-agent"
            try:
                register = state.subagents.started(call.agent_id, task)
            except BadInput as problem:
                write_line(call.root, call.event, "not registered", key=parent.key, problem=str(problem))
            else:
                save_orchestrator(core, structs.replace(state, subagents=register))
        raws = raws_of(core.seen())
        if not call.settings.brief_subagents or len(raws) < _FEWEST_MESSAGES:
            return None
        text = summary_for(core, "research")
    write_line(call.root, call.event, "briefed", key=parent.key, agent_id=call.agent_id)
    return call.for_model(text) if text.strip() else None


def subagent_stop(call: Call) -> Answer | None:
    """Keep a sub-agent's own conversation apart, its answer with that of its caller, and note that it is done."""
    parent = _parent(call)
    if not call.text("agent_type"):  # Claude Code has a nameless one write the summary of a compaction
        remember(parent, summary=call.text("last_assistant_message"))
        return None
    path = call.text("agent_transcript_path")
    own = Log(call.root, session_key(call.session_id, call.agent_id), path, call.agent.name, call.wait)
    if call.agent_id and path and os.path.isfile(path) and os.path.getsize(path):
        with keep_up(own, call.settings, is_closed=True):
            pass
    if not call.agent_id or not os.path.isfile(parent.path):
        return None
    with keep_up(parent, call.settings, archive=False) as kept:
        _finish(call, kept.core)
    return None


def _finish(call: Call, core: Core) -> None:
    """Note what became of a sub-agent; one that nobody saw begin is noted all the same."""
    report = core.without_secrets(call.text("last_assistant_message"))
    status: Status = "complete" if report.strip() else "failed"
    with core.writing():
        state = orchestrator(core)
        register = state.subagents
        if not any(agent.id == call.agent_id for agent in register.agents):
            register = register.started(call.agent_id, call.text("agent_type") or "sub-agent")
        number = max(state.last_ref + 1, FIRST_BESIDE)
        ref = reference_id("agent", number) if report else ""
        if report and any(agent.id == call.agent_id for agent in register.running):
            told = f"{call.text('agent_type') or 'sub-agent'} {call.agent_id}"
            original = Original(ref, Kind.SUBAGENT.value, told, count_tokens(report), report, f'recall("{ref}")')
            core.store.archive(core.id, make_items([original], core.store), core.now())
        register = register.finished(call.agent_id, status, ref)
        last = max(state.last_ref, number) if ref else state.last_ref
        save_orchestrator(core, structs.replace(state, subagents=register, last_ref=last))


def _parent(call: Call) -> Log:
    """The log of whoever called the sub-agent: the one that is known, since Codex names that of the sub-agent."""
    key = session_key(call.session_id)
    with using_tally(call.root) as tally:
        row = tally.find(key)
    told = "" if call.agent is CODEX and call.event == "subagent-start" else call.text("transcript_path")
    return Log(call.root, key, (row.transcript if row else "") or told, call.agent.name, call.wait)
