"""A brief that was given but never arrived is given once more, where the agent surely takes it."""

from __future__ import annotations

import os
import time

from context_compactor.agents.diary import write_line
from context_compactor.agents.keeping_up import keep_up, remember
from context_compactor.agents.places import fingerprint
from context_compactor.agents.traces import arrival, read_trace, seconds_of
from context_compactor.hooks.brief import brief, marker
from context_compactor.hooks.call import Answer, Call
from context_compactor.hooks.waking import set_alarms

# A log may be written a little later than what it tells has happened.
_BEFORE_SECONDS = 60.0


def user_prompt_submit(call: Call) -> Answer | None:
    """Nothing, unless a brief is owed. An announced compaction that never came is no longer expected."""
    if call.row is None or call.row.settings != fingerprint(call.root, os.environ):
        set_alarms(call)
    if call.row is not None and call.row.expected:
        remember(call.log, expected="")
        happened = read_trace(call.log.path).compacted_at >= seconds_of(call.row.expected) - _BEFORE_SECONDS
        write_line(call.root, call.event, "compaction came" if happened else "no compaction came", key=call.log.key)
    text = pay(call)
    return call.for_model(text) if text else None


def owe(call: Call, mark: str) -> None:
    """Note that a brief with this mark was given."""
    remember(call.log, owed=f"{mark} {time.time():.0f}")


def pay(call: Call) -> str:
    """The brief once more, when the agent has gone on without it; else nothing.

    What an agent got stands in its log. As long as the model has not answered since, nobody can tell.
    """
    mark, _, given_at = (call.row.owed if call.row else "").partition(" ")
    if not mark or call.agent_id:
        return ""
    if arrival(call.log.path, mark) == "given":
        remember(call.log, owed="")
        write_line(call.root, call.event, "brief arrived", key=call.log.key, marker=mark)
        return ""
    trace = read_trace(call.log.path)
    if not trace.has_gone_on or trace.compacted_at < float(given_at or 0) - _BEFORE_SECONDS:
        return ""
    remember(call.log, owed="")
    with keep_up(call.log, call.settings) as kept:
        again = marker(kept.core, "again")
        text = brief(kept.core, call.agent, again)
    write_line(call.root, call.event, "brief given again", key=call.log.key, marker=again, instead_of=mark)
    return text
