"""Hooks for sub-agents: who runs is registered, what they start with is short, and what they found is kept."""

from __future__ import annotations

import os

from msgspec import structs

from context_compactor.agents.coding_agents import CODEX
from context_compactor.agents.hook_log import log_hook
from context_compactor.agents.hooks.call import HookAnswer, HookCall
from context_compactor.agents.paths import session_key
from context_compactor.agents.sync import AgentLog, hook_state_of, synced_session, update_hook_state
from context_compactor.archive.originals import Original
from context_compactor.archive.storage import prepare_and_store_items
from context_compactor.dialects.turns import FIRST_EXTRA_NUMBER, reference_id
from context_compactor.errors import BadInput
from context_compactor.facts.kinds import Kind
from context_compactor.handoff.context_summary import count_tokens
from context_compactor.handoff.protocol import Status
from context_compactor.sessions.core import Core, conversation_raws
from context_compactor.sessions.handoff import orchestrator, save_orchestrator, summary_for

_FEWEST_MESSAGES = 3


def subagent_start(call: HookCall) -> HookAnswer | None:
    """Register a sub-agent, and give it what its caller knows."""
    parent = _parent_log(call)
    if not call.agent_id or not os.path.isfile(parent.path):
        return None
    with synced_session(parent, call.settings, archive=False) as synced:
        core = synced.core
        with core.writing():
            state = orchestrator(core)
            task = call.text("agent_type") or "sub-agent"
            try:
                register = state.subagents.started(call.agent_id, task)
            except BadInput as problem:
                log_hook(call.root, call.event, "not registered", key=parent.key, problem=str(problem))
            else:
                save_orchestrator(core, structs.replace(state, subagents=register))
        raws = conversation_raws(core.current_context())
        if not call.settings.brief_subagents or len(raws) < _FEWEST_MESSAGES:
            return None
        text = summary_for(core, "research")
    log_hook(call.root, call.event, "briefed", key=parent.key, agent_id=call.agent_id)
    return call.for_model(text) if text.strip() else None


def subagent_stop(call: HookCall) -> HookAnswer | None:
    """Keep a sub-agent's own conversation apart, its answer with that of its caller, and note that it is done."""
    parent = _parent_log(call)
    if not call.text("agent_type"):  # Claude Code has a nameless one write the summary of a compaction
        update_hook_state(parent, summary=call.text("last_assistant_message"))
        return None
    path = call.text("agent_transcript_path")
    own = AgentLog(call.root, session_key(call.session_id, call.agent_id), path, call.agent.name, call.wait)
    if call.agent_id and path and os.path.isfile(path) and os.path.getsize(path):
        with synced_session(own, call.settings, is_closed=True):
            pass
    if not call.agent_id or not os.path.isfile(parent.path):
        return None
    with synced_session(parent, call.settings, archive=False) as synced:
        _note_finished(call, synced.core)
    return None


def _note_finished(call: HookCall, core: Core) -> None:
    """Note what became of a sub-agent; one that nobody saw begin is noted all the same."""
    report = core.without_secrets(call.text("last_assistant_message"))
    status: Status = "complete" if report.strip() else "failed"
    with core.writing():
        state = orchestrator(core)
        register = state.subagents
        if not any(agent.id == call.agent_id for agent in register.agents):
            register = register.started(call.agent_id, call.text("agent_type") or "sub-agent")
        number = max(state.last_ref + 1, FIRST_EXTRA_NUMBER)
        ref = reference_id("agent", number) if report else ""
        if report and any(agent.id == call.agent_id for agent in register.running):
            title = f"{call.text('agent_type') or 'sub-agent'} {call.agent_id}"
            original = Original(ref, Kind.SUBAGENT.value, title, count_tokens(report), report, f'recall("{ref}")')
            core.store.archive(core.id, prepare_and_store_items([original], core.store), core.now())
        register = register.finished(call.agent_id, status, ref)
        last = max(state.last_ref, number) if ref else state.last_ref
        save_orchestrator(core, structs.replace(state, subagents=register, last_ref=last))


def _parent_log(call: HookCall) -> AgentLog:
    """The log of whoever called the sub-agent: the one that is known, since Codex names that of the sub-agent."""
    key = session_key(call.session_id)
    with hook_state_of(call.root) as state:
        row = state.find(key)
    named = "" if call.agent is CODEX and call.event == "subagent-start" else call.text("transcript_path")
    return AgentLog(call.root, key, (row.transcript if row else "") or named, call.agent.name, call.wait)
