"""Doctor checks: which hooks really run, what they could not do, and whether the last brief reached the model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.agents.coding_agents import CLAUDE_CODE, CodingAgent
from context_compactor.agents.compaction_trace import (
    CompactionTrace,
    brief_arrival,
    read_compaction_trace,
    timestamp_seconds,
)
from context_compactor.agents.hook_log import GOES_ON_WITH_OURS, LOG_FILE, read_hook_log
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.install.commands import is_our_hook
from context_compactor.agents.install.doctor_findings import (
    DoctorContext,
    Finding,
    look,
    moment,
    ok,
    our_hooks_of,
    wrong,
)
from context_compactor.agents.paths import HOME
from context_compactor.agents.transcript_tail import json_object, last_lines

_TAIL = 32 * 1024 * 1024
_FIRST_LINE = 1024 * 1024
_NEWEST = 20
_OTHER = re.compile(r"[^A-Za-z0-9]")
_FAILED = frozenset({"hook_non_blocking_error", "hook_error_during_execution", "hook_blocking_error"})


class UnknownLog(Struct, frozen=True):
    """A log of a session that no hook has reported: when it began, and when it was written last."""

    session_id: str
    began: float
    written: float


def failed_hooks(path: str) -> list[str]:
    """What Claude Code noted of hooks of ours that failed, the last first."""
    found = (line.get("attachment") for line in last_lines(path, _TAIL, (b'"hook_',)))
    return [
        f"{each.get('hookEvent')}: {each.get('stderr') or each.get('type')}"
        for each in found
        if isinstance(each, dict) and each.get("type") in _FAILED and is_our_hook(each)
    ]


def unknown_logs(ctx: DoctorContext, agent: CodingAgent, known: Collection[str]) -> Iterator[UnknownLog]:
    """Sessions of an agent in this project that no hook knows, the newest first."""
    if agent.extension:
        return
    if agent is CLAUDE_CODE:
        paths = (ctx.user.claude_folder / "projects" / _OTHER.sub("-", str(ctx.root))).glob("*.jsonl")
    else:
        paths = (ctx.user.codex_folder / "sessions").glob("*/*/*/rollout-*.jsonl")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)[:_NEWEST]:
        first = _first_line(path)
        head = first.get("payload") if agent is not CLAUDE_CODE else {"session_id": path.stem, "cwd": str(ctx.root)}
        if not isinstance(head, dict) or head.get("cwd") != str(ctx.root) or head.get("thread_source") == "subagent":
            continue
        name, began = str(head.get("session_id") or head.get("id")), timestamp_seconds(first.get("timestamp"))
        if name not in known and began:
            yield UnknownLog(name, began, path.stat().st_mtime)


def _first_line(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        lines = map(json_object, file.read(_FIRST_LINE).split(b"\n"))
        return next((line for line in lines if "timestamp" in line), {})


# From here on a compaction that was announced is one that did not happen.
LIMIT_SECONDS = 600.0
_BEFORE_COMPACTION = ("pre-compact", "compact")
_WITH_COMPACTION = (*_BEFORE_COMPACTION, "post-compact")


def firing(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """What has come of an agent's hooks in this project."""
    since = _registered_at(ctx, agent)
    rows = ctx.rows_of(agent)
    yield from _unseen(ctx, agent, since)
    if not rows:
        if since:
            yield look(
                f"no hook of {agent.title} has run in {ctx.root} yet", "Work with the agent there, then check again"
            )
        return
    row = rows[0]
    trace = read_compaction_trace(row.transcript)
    yield _counted(agent, row)
    if any(hook.word == "session-start" for hook in agent.hooks) and "session-start" not in _events(row):
        what = f"session {row.key} was under way before its hooks were registered"
        yield look(what, f"End {agent.title} and start it again; `--resume` keeps the conversation")
    yield from _announced(ctx, row, trace)
    yield from _left_out(agent, row, trace, since)
    failed = failed_hooks(row.transcript)
    if failed:
        what = f"{agent.title} noted {len(failed)} hooks of ours as failed in session {row.key}, the last: {failed[0]}"
        yield look(what, "Run the command of that hook by hand and see what it says")


def _counted(agent: CodingAgent, row: AgentSessionRow) -> Finding:
    events = _events(row)
    counts = [
        f"{word} {count:,}× (last {moment(timestamp_seconds(last))})" for word, (count, last) in sorted(events.items())
    ]
    calls = f"{row.calls:,} tool calls counted" if row.calls else "no tool call yet"
    never = [each.word for each in agent.hooks if each.word in _WITH_COMPACTION and each.word not in events]
    later = f"; not yet: {', '.join(never)}" if never else ""
    return ok(f"{agent.title}, session {row.key}: {', '.join(counts) or 'no event'}; {calls}{later}")


def _announced(ctx: DoctorContext, row: AgentSessionRow, trace: CompactionTrace) -> Iterator[Finding]:
    expected = timestamp_seconds(row.expected)
    if not expected:
        return
    when = f"the compaction announced at {moment(expected)} in session {row.key}"
    if trace.compacted_at >= expected:
        what = f"{when} has happened, but PostCompact was not called"
        yield look(what, "Nothing is lost: everything was archived before. See “hooks” for what is registered")
    elif ctx.now - expected < LIMIT_SECONDS:
        yield ok(f"{when} is under way")
    else:
        what = f"{when} did not happen: it was refused or cancelled"
        yield look(what, "Run /compact if you still want it")


def _left_out(agent: CodingAgent, row: AgentSessionRow, trace: CompactionTrace, since: float) -> Iterator[Finding]:
    """A compaction in the log for which no hook came before it."""
    if not since or trace.compacted_at <= since:
        return
    events = _events(row)
    before = max(timestamp_seconds(events.get(word, (0, ""))[1]) for word in _BEFORE_COMPACTION)
    if before < trace.compacted_at - LIMIT_SECONDS and trace.by_plugin:
        when = f"session {row.key} at {moment(trace.compacted_at)}"
        yield ok(f"a plugin of {agent.title} compacted {when} in its place; PreCompact is not called then")
    elif before < trace.compacted_at - LIMIT_SECONDS:
        name = next(hook.event for hook in agent.hooks if hook.word in _BEFORE_COMPACTION)
        what = f"{agent.title} compacted session {row.key} at {moment(trace.compacted_at)} and did not call {name}"
        yield wrong(what, f"Restart {agent.title}; if that does not help, compactor install {agent.name}")


def _unseen(ctx: DoctorContext, agent: CodingAgent, since: float) -> Iterator[Finding]:
    """A session that was written after everything hooks know of, and that no hook has reported."""
    rows = ctx.rows_of(agent)
    newest = rows[0].updated_at if rows else 0.0
    log = next(unknown_logs(ctx, agent, {row.key for row in rows}), None)
    if log is None or not since or log.written <= newest:
        return
    when = f"session {log.session_id} of {agent.title} (last written {moment(log.written)})"
    if log.began > since:
        remedy = "See “hooks” and “trust” for the cause, then restart the agent"
        yield wrong(f"no hook has run in {when}, although it began after they were registered", remedy)
    else:
        yield look(f"{when} began before its hooks were registered", "End it and start it again with `--resume`")


def _registered_at(ctx: DoctorContext, agent: CodingAgent) -> float:
    """Since when our hooks stand in the settings at the latest; 0 when they do not."""
    files = {hook.source.path for hook in our_hooks_of(ctx, agent)}
    return max((path.stat().st_mtime for path in files), default=0.0)


def _events(row: AgentSessionRow) -> dict[str, tuple[int, str]]:
    return {
        word: (int(each[0]), str(each[1]))
        for word, each in json_object(row.events).items()
        if isinstance(each, list) and len(each) == 2 and isinstance(each[0], int)
    }


_GIVEN, _ARRIVED, _AGAIN = "brief given", "brief arrived", "brief given again"
# A brief is given just before the agent writes down that it has compacted.
_BEFORE_SECONDS = 120.0


def briefs(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """What became of the brief after the last compaction of an agent's last session."""
    rows = ctx.rows_of(agent)
    if not rows:
        return
    row = rows[0]
    lines = [line for line in read_hook_log(str(ctx.root)) if line.get("key") == row.key]
    given = next((line for line in reversed(lines) if line.get("what") == _GIVEN), None)
    trace = read_compaction_trace(row.transcript)
    if given is None and agent.extension:
        return
    if any(_is_own_record(line, trace) for line in lines):
        yield ok(f"session {row.key} goes on with our record since {moment(trace.compacted_at)}, and needs no brief")
    elif given is None or timestamp_seconds(given.get("time")) < trace.compacted_at - _BEFORE_SECONDS:
        yield from _not_given(agent, row, trace, given is not None)
    else:
        mark = str(given.get("marker"))
        outcomes = {line.get("what") for line in lines if line.get("marker") == mark}
        yield _delivery_finding(agent, row, trace, mark, outcomes, timestamp_seconds(given.get("time")))


def _is_own_record(line: dict[str, object], trace: CompactionTrace) -> bool:
    """Whether a line of the hook log says that no brief was due after the last compaction, since ours stands there."""
    is_since = timestamp_seconds(line.get("time")) >= trace.compacted_at - _BEFORE_SECONDS
    return trace.compacted_at > 0 and is_since and line.get("reason") == GOES_ON_WITH_OURS


def _not_given(agent: CodingAgent, row: AgentSessionRow, trace: CompactionTrace, is_known: bool) -> Iterator[Finding]:
    if not trace.compacted_at:
        yield ok(f"{agent.title} has not compacted session {row.key} yet, so no brief was due")
    elif not trace.has_continued:
        yield ok(f"session {row.key} was compacted at {moment(trace.compacted_at)}; its next prompt gets a brief")
    elif is_known or row.updated_at >= trace.compacted_at:
        what = f"session {row.key} was compacted at {moment(trace.compacted_at)}, and its model went on without a brief"
        yield wrong(what, "See “hooks”: SessionStart must be called with `compact`; and “hook log” for what failed")


def _delivery_finding(
    agent: CodingAgent, row: AgentSessionRow, trace: CompactionTrace, mark: str, outcomes: set[object], given_at: float
) -> Finding:
    when = f"the brief of {moment(given_at)} ({mark})"
    match brief_arrival(row.transcript, mark):
        case "given":
            return ok(f"{when} has reached the model: it stands in the log of {agent.title}")
        case "run" if _AGAIN not in outcomes:
            return wrong(
                f"{when} was printed, but {agent.title} did not give it to the model",
                "Another hook may have printed too much beside it: see “others”",
            )
        case _ if _AGAIN in outcomes:
            return look(f"{when} did not arrive at first, and was given again with a later call", "Nothing to do")
        case _ if _ARRIVED in outcomes:
            return ok(f"{when} was seen to have reached the model")
        case _ if not trace.has_continued:
            return look(f"{when} is on its way: the model has not answered since", "Send a prompt, then check again")
    return wrong(
        f"{when} is not in the log of {agent.title}, and the model has gone on without it",
        "The next prompt or tool call gives it again; if it never arrives, see “hooks” and “trust”",
    )


_DAY = 24 * 60 * 60
_MOST = 5
_REMEDIES = (
    ("BadSetting", "compactor config"),
    ("locked by another process", "Look for a process that hangs with .compactor/compactor.db open, and end it"),
    ("has been writing for", "Look for a hook that hangs (`ps -ef | grep 'compactor hook'`), and end it"),
    ("disk is full", "Free some space"),
    ("No space left", "Free some space"),
    ("PermissionError", "Give yourself the right to write in .compactor"),
    ("damaged", "compactor verify"),
    ("newer version", "Update context-compactor"),
    ("there is no event", "Register the hooks of this version: compactor install"),
    ("standard input", "Only agents call `compactor hook`; another program may have done so"),
    ("no session_id", "Only agents call `compactor hook`; another program may have done so"),
)


class _FailureGroup(Struct):
    event: str
    problem: str
    count: int
    last: float


def hook_log(ctx: DoctorContext) -> Iterator[Finding]:
    """The failures of the last day, grouped."""
    lines = [line for line in read_hook_log(str(ctx.root)) if line.get("what") == "failed"]
    groups: dict[tuple[str, str], _FailureGroup] = {}
    for line in lines:
        event, problem, at = str(line.get("event")), str(line.get("problem")), timestamp_seconds(line.get("time"))
        if at > ctx.now - _DAY:
            group = groups.setdefault((event, problem), _FailureGroup(event, problem, 0, at))
            group.count, group.last = group.count + 1, max(group.last, at)
    found = sorted(groups.values(), key=lambda group: group.last, reverse=True)
    if not found and ctx.rows:
        yield ok("no hook has failed in the last day")
    for group in found[:_MOST]:
        yield _failure_finding(ctx, group)
    if len(found) > _MOST:
        more = f"{len(found) - _MOST} more kinds of failures in the last day"
        yield look(more, f"Read {ctx.root / HOME / LOG_FILE}")


def _failure_finding(ctx: DoctorContext, group: _FailureGroup) -> Finding:
    times = f"{group.count:,}× in the last day, last at {moment(group.last)}"
    what = f"{group.event or 'a hook'} failed {times}: {group.problem}"
    remedy = next((remedy for word, remedy in _REMEDIES if word in group.problem), "")
    if _has_worked_since(ctx, group):
        return look(f"{what}. It has worked since", remedy or "Nothing to do")
    return wrong(what, remedy or f"Report it, with its line of {ctx.root / HOME / LOG_FILE}")


def _has_worked_since(ctx: DoctorContext, group: _FailureGroup) -> bool:
    """A hook notes that it came before it notes that it failed, so a later note is of one that did not fail."""
    for row in ctx.rows:
        if group.event == "post-tool-use" and row.updated_at > group.last + 1:
            return True
        if timestamp_seconds(_events(row).get(group.event, (0, ""))[1]) > group.last:
            return True
    return False
