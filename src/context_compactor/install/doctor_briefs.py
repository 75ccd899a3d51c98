"""Whether what we say reaches the model: the mark of the last brief, looked for in what the agent wrote down."""

from __future__ import annotations

from collections.abc import Iterator

from context_compactor.agents.diary import read_lines
from context_compactor.agents.known import Agent
from context_compactor.agents.tally import Row
from context_compactor.agents.traces import Trace, arrival, read_trace, seconds_of
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, moment, ok, wrong

AREA = "brief"
_GIVEN, _ARRIVED, _AGAIN = "brief given", "brief arrived", "brief given again"
# A brief is given just before the agent writes down that it has compacted.
_BEFORE_SECONDS = 120.0


def briefs(case: Case, agent: Agent) -> Iterator[Finding]:
    """What became of the brief after the last compaction of an agent's last session."""
    rows = case.rows_of(agent)
    if not rows:
        return
    row = rows[0]
    lines = [line for line in read_lines(str(case.root)) if line.get("key") == row.key]
    given = next((line for line in reversed(lines) if line.get("what") == _GIVEN), None)
    trace = read_trace(row.transcript)
    if given is None or seconds_of(given.get("time")) < trace.compacted_at - _BEFORE_SECONDS:
        yield from _not_given(agent, row, trace, given is not None)
    else:
        mark = str(given.get("marker"))
        told = {line.get("what") for line in lines if line.get("marker") == mark}
        yield _became(agent, row, trace, mark, told, seconds_of(given.get("time")))


def _not_given(agent: Agent, row: Row, trace: Trace, is_known: bool) -> Iterator[Finding]:
    if not trace.compacted_at:
        yield ok(AREA, f"{agent.title} has not compacted session {row.key} yet, so no brief was due")
    elif not trace.has_gone_on:
        yield ok(AREA, f"session {row.key} was compacted at {moment(trace.compacted_at)}; its next prompt gets a brief")
    elif is_known or row.updated_at >= trace.compacted_at:
        told = f"session {row.key} was compacted at {moment(trace.compacted_at)}, and its model went on without a brief"
        yield wrong(AREA, told, "See “hooks”: SessionStart must be called with `compact`; and “diary” for what failed")


def _became(agent: Agent, row: Row, trace: Trace, mark: str, told: set[object], given_at: float) -> Finding:
    when = f"the brief of {moment(given_at)} ({mark})"
    match arrival(row.transcript, mark):
        case "given":
            return ok(AREA, f"{when} has reached the model: it stands in the log of {agent.title}")
        case "run" if _AGAIN not in told:
            return wrong(
                AREA,
                f"{when} was said, and {agent.title} did not give it to the model",
                "Another hook may have said too much beside it: see “others”",
            )
        case _ if _AGAIN in told:
            return look(AREA, f"{when} did not arrive at first, and was given again with a later call", "Nothing to do")
        case _ if _ARRIVED in told:
            return ok(AREA, f"{when} was seen to have reached the model")
        case _ if not trace.has_gone_on:
            return look(AREA, f"{when} is on its way: the model has not answered since", "Send a prompt, then again")
    return wrong(
        AREA,
        f"{when} is not in the log of {agent.title}, and the model has gone on without it",
        "The next prompt or tool call gives it again; if it never arrives, see “hooks” and “trust”",
    )
