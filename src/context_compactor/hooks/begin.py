"""A session of an agent begins, goes on, or has just been compacted: what its model is told then."""

from __future__ import annotations

import os

from context_compactor.agents.current import ancestors
from context_compactor.agents.diary import write_line
from context_compactor.agents.keeping_up import keep_up, using_tally
from context_compactor.agents.losses import find_lost
from context_compactor.agents.sidelogs import compacted_log
from context_compactor.hooks.brief import brief, learned, marker
from context_compactor.hooks.call import Answer, Call
from context_compactor.hooks.compactions import tell_losses
from context_compactor.hooks.owed import owe
from context_compactor.hooks.waking import set_alarms
from context_compactor.session.memory import all_facts

# A window that is whole needs no more than what has changed around it.
_RESUMED_CHARS = 4_000


def session_start(call: Call) -> Answer | None:
    """The brief after a compaction, a short one when a session is resumed, and what was learned in a new one."""
    set_alarms(call, processes=" ".join(ancestors()))
    with using_tally(call.root) as tally:
        tally.trim()
    source = call.text("source")
    if source == "compact":
        return after_compaction(call)
    if source == "resume" and call.has_log:
        return _resumed(call)
    text = learned(call)
    return call.for_model(text) if text else None


def after_compaction(call: Call) -> Answer | None:
    """The brief, with a mark by which the next hook sees whether it has arrived, and what the agent's summary lost."""
    log = compacted_log(call.log) if call.has_log else call.log
    if not os.path.isfile(log.path) or not os.path.getsize(log.path):
        write_line(call.root, call.event, "no brief", reason="there is no log of it yet", key=log.key)
        return None
    with keep_up(log, call.settings) as kept:
        mark = marker(kept.core, "compact")
        text = brief(kept.core, call.agent, mark)
        summary = call.row.summary if call.row and log.key == call.log.key else ""
        losses = kept.followed.losses or (find_lost(summary, all_facts(kept.core)) if summary else None)
    if log.key == call.log.key:
        owe(call, mark)
    write_line(call.root, call.event, "brief given", key=log.key, marker=mark, characters=len(text))
    told = {} if losses is None else {"systemMessage": tell_losses(call, losses)}
    return call.for_model(text) | told


def _resumed(call: Call) -> Answer | None:
    """What has changed since, and where the rest is: the window itself is as it was."""
    with keep_up(call.log, call.settings, archive=False) as kept:
        found = kept.session.resume(400)
    reasons = [f"- {reason.what}" for reason in found.reasons if reason.severity != "note"]
    if not reasons:
        return None
    told = "Context Compactor compared this project with where this session stood when it was left:"
    return call.for_model("\n".join((told, *reasons))[:_RESUMED_CHARS])
