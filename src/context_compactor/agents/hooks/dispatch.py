"""Runs the handler of one hook event, with the settings of the project and what is known of the session."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

from msgspec import structs

from context_compactor.agents.hook_log import utc_now_text
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.hooks.call import HookAnswer, HookCall, detect_agent
from context_compactor.agents.project import project_settings
from context_compactor.agents.sync import hook_state_of
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


def _handler(event: str) -> Callable[[HookCall], HookAnswer | None]:
    """What answers an event; each has a file, and only that one is imported."""
    match event:
        case "session-start":
            from context_compactor.agents.hooks.session import session_start as found
        case "pre-compact":
            from context_compactor.agents.hooks.session import pre_compact as found
        case "post-compact":
            from context_compactor.agents.hooks.session import post_compact as found
        case "post-tool-use":
            from context_compactor.agents.hooks.tool_output import post_tool_use as found
        case "user-prompt-submit":
            from context_compactor.agents.hooks.brief import user_prompt_submit as found
        case "subagent-start":
            from context_compactor.agents.hooks.subagents import subagent_start as found
        case "subagent-stop":
            from context_compactor.agents.hooks.subagents import subagent_stop as found
        case "stop":
            from context_compactor.agents.hooks.session import stop as found
        case "compact":
            from context_compactor.agents.hooks.compact import compact as found
        case "shorten":
            from context_compactor.agents.hooks.tool_output import shorten as found
        case "undo":
            from context_compactor.agents.hooks.compact import undo as found
        case "plan":
            from context_compactor.agents.hooks.compact import plan as found
        case "session-end":
            from context_compactor.agents.hooks.session import session_end as found
        case _:
            raise CompactorError(f"there is no handler for the event {event!r}")
    return found
