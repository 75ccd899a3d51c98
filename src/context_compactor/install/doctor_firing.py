"""Which hooks really come: counted by the hooks themselves, and compared with what the agent wrote down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from context_compactor.agents.known import Agent
from context_compactor.agents.tally import Row
from context_compactor.agents.traces import Trace, read_trace, seconds_of
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, moment, ok, wrong
from context_compactor.install.doctor_logs import failed_hooks, unknown_logs
from context_compactor.install.doctor_sources import hooks_of, sources

AREA = "firing"
# From here on a compaction that was announced is one that did not happen.
LIMIT_SECONDS = 600.0
_WITH_COMPACTION = ("pre-compact", "post-compact")


def firing(case: Case, agent: Agent) -> Iterator[Finding]:
    """What has come of an agent's hooks in this project."""
    since = _registered_at(case, agent)
    rows = case.rows_of(agent)
    yield from _unseen(case, agent, since)
    if not rows:
        if since:
            again = "Work with the agent there, then again"
            yield look(AREA, f"no hook of {agent.title} has come in {case.root} yet", again)
        return
    row = rows[0]
    trace = read_trace(row.transcript)
    yield _counted(agent, row)
    if "session-start" not in _events(row):
        told = f"session {row.key} was under way before its hooks were registered"
        yield look(AREA, told, f"End {agent.title} and start it again; `--resume` keeps the conversation")
    yield from _announced(case, row, trace)
    yield from _left_out(agent, row, trace, since)
    failed = failed_hooks(row.transcript)
    if failed:
        told = f"{agent.title} noted {len(failed)} hooks of ours as failed in session {row.key}, the last: {failed[0]}"
        yield look(AREA, told, "Run the command of that hook by hand and see what it says")


def _counted(agent: Agent, row: Row) -> Finding:
    events = _events(row)
    told = [f"{word} {count:,}× (last {moment(seconds_of(last))})" for word, (count, last) in sorted(events.items())]
    calls = f"{row.calls:,} tool calls counted" if row.calls else "no tool call yet"
    never = [each.word for each in agent.hooks if each.word in _WITH_COMPACTION and each.word not in events]
    later = f"; not yet: {', '.join(never)}" if never else ""
    return ok(AREA, f"{agent.title}, session {row.key}: {', '.join(told) or 'no event'}; {calls}{later}")


def _announced(case: Case, row: Row, trace: Trace) -> Iterator[Finding]:
    """A compaction that was announced and not seen to be over."""
    expected = seconds_of(row.expected)
    if not expected:
        return
    when = f"the compaction announced at {moment(expected)} in session {row.key}"
    if trace.compacted_at >= expected:
        told = f"{when} has happened, but PostCompact did not come"
        yield look(AREA, told, "Nothing is lost: everything was archived before. See “hooks” for what is registered")
    elif case.now - expected < LIMIT_SECONDS:
        yield ok(AREA, f"{when} is under way")
    else:
        told = f"{when} did not happen: it was refused or cancelled. Nothing is left open by it"
        yield look(AREA, told, "/compact, if it was meant")


def _left_out(agent: Agent, row: Row, trace: Trace, since: float) -> Iterator[Finding]:
    """A compaction in the log for which no hook came before it."""
    if not since or trace.compacted_at <= since:
        return
    before = seconds_of(_events(row).get("pre-compact", (0, ""))[1])
    if before < trace.compacted_at - LIMIT_SECONDS:
        told = f"{agent.title} compacted session {row.key} at {moment(trace.compacted_at)} and did not call PreCompact"
        yield wrong(AREA, told, f"Start {agent.title} again; if it stays so, compactor install {agent.name}")


def _unseen(case: Case, agent: Agent, since: float) -> Iterator[Finding]:
    """A session that was written after everything hooks know of, and of which no hook has told."""
    rows = case.rows_of(agent)
    newest = rows[0].updated_at if rows else 0.0
    log = next(unknown_logs(case, agent, {row.key for row in rows}), None)
    if log is None or not since or log.written <= newest:
        return
    when = f"session {log.session_id} of {agent.title} (last written {moment(log.written)})"
    if log.began > since:
        remedy = "See “hooks” and “trust” for what keeps them; then start the agent again"
        yield wrong(AREA, f"no hook has come from {when}, although it began after they were registered", remedy)
    else:
        yield look(AREA, f"{when} began before its hooks were registered", "End it and start it again with `--resume`")


def _registered_at(case: Case, agent: Agent) -> float:
    """Since when our hooks stand in the settings at the latest; 0 when they do not."""
    files = {hook.source.path for hook in hooks_of(sources(case, agent)) if hook.is_ours}
    return max((path.stat().st_mtime for path in files), default=0.0)


def _events(row: Row) -> dict[str, tuple[int, str]]:
    try:
        found: Any = json.loads(row.events)
    except ValueError:
        return {}
    return {
        word: (int(each[0]), str(each[1]))
        for word, each in (found.items() if isinstance(found, dict) else ())
        if isinstance(each, list) and len(each) == 2 and isinstance(each[0], int)
    }
