"""What a hook does when there is something to do: one function for each event."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

from msgspec import structs

from context_compactor.agents.diary import stamp
from context_compactor.agents.keeping_up import using_tally
from context_compactor.agents.own_settings import own_settings
from context_compactor.agents.tally import Row
from context_compactor.errors import CompactorError
from context_compactor.hooks.call import Answer, Call, guess_agent


def answer(event: str, said: dict[str, Any], root: str, agent: str, row: Row | None) -> Answer | None:
    """Do what an event asks for; what the agent is answered, or None for nothing."""
    gc.disable()  # it is over before there is anything to gain by it
    os.chdir(root)  # settings and the store are those of the project
    call = Call(event, guess_agent(said, agent), root, said, own_settings(root), row)
    if not call.settings.enabled:
        return None
    is_noted = row is not None and event == "user-prompt-submit"
    call = _known(call)
    try:
        return _action(event)(call)
    finally:
        if not is_noted:
            _note(call)


def _known(call: Call) -> Call:
    """The call with what is known of its session. One that is new here is noted, and its call counted."""
    if call.row is not None:
        return call
    with using_tally(call.root) as tally:
        row = tally.change(call.log.key, time.time(), {})
        if call.event == "post-tool-use":
            row = tally.count(call.log.key, time.time()) or row
    return structs.replace(call, row=row)


def _note(call: Call) -> None:
    with using_tally(call.root) as tally:
        tally.note_event(call.log.key, call.event, stamp())


def _action(event: str) -> Callable[[Call], Answer | None]:
    """What answers an event; each has a file, and only that one is imported."""
    match event:
        case "session-start":
            from context_compactor.hooks.begin import session_start as found
        case "pre-compact":
            from context_compactor.hooks.compactions import pre_compact as found
        case "post-compact":
            from context_compactor.hooks.compactions import post_compact as found
        case "post-tool-use":
            from context_compactor.hooks.tools import post_tool_use as found
        case "user-prompt-submit":
            from context_compactor.hooks.owed import user_prompt_submit as found
        case "subagent-start":
            from context_compactor.hooks.children import subagent_start as found
        case "subagent-stop":
            from context_compactor.hooks.children import subagent_stop as found
        case "stop":
            from context_compactor.hooks.ending import stop as found
        case "session-end":
            from context_compactor.hooks.ending import session_end as found
        case _:
            raise CompactorError(f"nothing answers the event {event!r}")
    return found
