"""Runs the handler of one hook event, with the settings of the project and what is known of the session."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec import structs

from context_compactor.agents.hook_log import utc_now_text
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.hooks.call import HookAnswer, HookCall, detect_agent, with_log
from context_compactor.agents.project import ancestor_processes, project_settings
from context_compactor.agents.sync import hook_state_of, update_hook_state
from context_compactor.errors import CompactorError


def run_hook(
    event: str, payload: dict[str, Any], root: str, agent: str, row: AgentSessionRow | None
) -> HookAnswer | None:
    """Do what an event asks for; what the agent is answered, or None for nothing."""
    gc.disable()  # it is over before there is anything to gain by it
    os.chdir(root)  # settings and the store are those of the project
    call = HookCall(event, detect_agent(payload, agent), root, payload, project_settings(root), row)
    if not call.settings.enabled:
        return None
    call = structs.replace(call, payload=with_log(payload, call.agent, root))
    if call.agent.extension:  # no hook of it comes when a session starts
        update_hook_state(call.log, agent=call.agent.name, processes=" ".join(ancestor_processes()))
    is_noted = row is not None and event == "user-prompt-submit"
    call = _with_row(call)
    try:
        return _handler(event)(call)
    finally:
        if not is_noted:
            with hook_state_of(root) as state:
                state.note_event(call.log.key, event, utc_now_text())


def _with_row(call: HookCall) -> HookCall:
    """The call with what is known of its session. One that is new here is noted, and its call counted."""
    if call.row is not None:
        return call
    with hook_state_of(call.root) as state:
        row = state.change(call.log.key, time.time(), {})
        if call.event == "post-tool-use":
            row = state.count(call.log.key, time.time()) or row
    return structs.replace(call, row=row)


# What answers an event: a module of this package and a function in it. Only that module is imported.
_HANDLERS = {
    "session-start": ("session", "session_start"),
    "pre-compact": ("session", "pre_compact"),
    "post-compact": ("session", "post_compact"),
    "stop": ("session", "stop"),
    "session-end": ("session", "session_end"),
    "post-tool-use": ("tool_output", "post_tool_use"),
    "failed": ("compact", "failed"),
    "shorten": ("tool_output", "shorten"),
    "user-prompt-submit": ("brief", "user_prompt_submit"),
    "subagent-start": ("subagents", "subagent_start"),
    "subagent-stop": ("subagents", "subagent_stop"),
    "loaded": ("compact", "loaded"),
    "compact": ("compact", "compact"),
    "undo": ("compact", "undo"),
    "plan": ("compact", "plan"),
}


def _handler(event: str) -> Callable[[HookCall], HookAnswer | None]:
    if event not in _HANDLERS:
        raise CompactorError(f"there is no handler for the event {event!r}")
    module, name = _HANDLERS[event]
    found: Callable[[HookCall], HookAnswer | None] = getattr(import_module(f"{__package__}.{module}"), name)
    return found
