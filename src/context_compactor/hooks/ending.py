"""An agent rests, or its session ends: its log is followed, so that little is left to do when it compacts."""

from __future__ import annotations

from context_compactor.agents.keeping_up import keep_up
from context_compactor.hooks.call import Answer, Call
from context_compactor.session.memory import promote


def stop(call: Call) -> Answer | None:
    """Follow the log. It never says anything: an answer could keep an agent from stopping when it must."""
    if call.has_log and not call.agent_id:
        with keep_up(call.log, call.settings, archive=False):
            pass
    return None


def session_end(call: Call) -> Answer | None:
    """Archive all of it, keep the facts, and carry what is worth knowing over to the next session."""
    if call.has_log:
        with keep_up(call.log, call.settings, is_closed=True) as kept:
            promote(kept.core)
    return None
