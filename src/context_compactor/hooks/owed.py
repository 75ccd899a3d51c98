"""A brief that was given but never arrived is given once more, where the agent surely takes it."""

from __future__ import annotations

import os
import time

from context_compactor.agents.diary import write_line
from context_compactor.agents.keeping_up import keep_up, remember, using_tally
from context_compactor.agents.places import fingerprint
from context_compactor.agents.traces import arrival, read_trace, seconds_of
from context_compactor.hooks.brief import brief, marker
from context_compactor.hooks.call import Answer, Call
from context_compactor.hooks.waking import set_alarms

# A log may be written a little later than what it tells has happened.
_BEFORE_SECONDS = 60.0
# A log that has not got the compaction by then will not get it: it was that of a sub-agent, or it was given up.
_PATIENCE_SECONDS = 300.0


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
    debt = call.row.owed if call.row else ""
    mark, _, given_at = debt.partition(" ")
    if not mark or call.agent_id:
        return ""
    if arrival(call.log.path, mark) == "given":
        return _settle(call, debt, "brief arrived", mark)
    trace = read_trace(call.log.path)
    age = time.time() - float(given_at or 0)
    if trace.compacted_at < float(given_at or 0) - _BEFORE_SECONDS:  # no compaction stands in this log
        return _settle(call, debt, "brief not confirmed", mark) if age > _PATIENCE_SECONDS else ""
    if not trace.has_gone_on or not _claimed(call, debt):
        return ""
    with keep_up(call.log, call.settings) as kept:
        again = marker(kept.core, "again")
        text = brief(kept.core, call.agent, again)
    write_line(call.root, call.event, "brief given again", key=call.log.key, marker=again, instead_of=mark)
    return text


def _settle(call: Call, debt: str, what: str, mark: str) -> str:
    if _claimed(call, debt):
        write_line(call.root, call.event, what, key=call.log.key, marker=mark)
    return ""


def _claimed(call: Call, debt: str) -> bool:
    """Of many calls that come at once, one pays."""
    with using_tally(call.root) as tally:
        return tally.claim(call.log.key, "owed", debt, "")
