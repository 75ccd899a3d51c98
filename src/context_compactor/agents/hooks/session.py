"""Hooks for the life of an agent's session: it starts, is compacted, stops and ends."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from context_compactor.agents.adoption import SummaryLosses, find_summary_losses, goes_on_with_ours
from context_compactor.agents.compaction_trace import timestamp_seconds
from context_compactor.agents.hook_log import GOES_ON_WITH_OURS, NO_ANSWER, log_hook, utc_now_text
from context_compactor.agents.hooks.brief import brief_marker, brief_text, expect_delivery, learned_text
from context_compactor.agents.hooks.call import HookAnswer, HookCall, set_thresholds
from context_compactor.agents.hooks.entry import PLAIN
from context_compactor.agents.paths import AGENT_TOOLS, has_mod, session_key, subagent_log
from context_compactor.agents.project import ancestor_processes
from context_compactor.agents.steering import effective_compaction, is_steering, steering_request
from context_compactor.agents.sync import AgentLog, hook_state_of, synced_session, update_hook_state
from context_compactor.agents.transcript_tail import last_lines, last_window_tokens
from context_compactor.dialects.client_text import TaskNotice, task_notices
from context_compactor.dialects.transcripts.transcript import Transcript, as_blocks
from context_compactor.facts.fact import Fact
from context_compactor.sessions import checkpoints
from context_compactor.sessions.facts import all_facts, promote
from context_compactor.sessions.state import read_session_state
from context_compactor.text import one_line

_TAIL = 512 * 1024
_LAUNCHED = "async_launched"
_NAMES_SUBAGENTS = (2, 1, 325)


def compacted_log(log: AgentLog) -> AgentLog:
    """Whose window was compacted: that of a session, or that of one of its sub-agents.

    Before 2.1.325 Claude Code calls the hooks of a compaction within a sub-agent as if it were the session's own. While
    a session waits for sub-agents it is one of them; while some run in the background, it is whoever is fullest.
    """
    if _client_version(log.path) >= _NAMES_SUBAGENTS:
        return log
    waiting, beside = _running(log.path)
    found = [
        _subagent_log_of(log, agent_id)
        for call_id, agent_id in _subagents_of(log.path)
        if call_id in (waiting or beside)
    ]
    if waiting:
        return max(found, key=_window_fill, default=_subagent_log_of(log, "unknown"))
    return max([log, *found], key=_window_fill)


def _subagent_log_of(log: AgentLog, agent_id: str) -> AgentLog:
    return structs.replace(log, key=session_key(log.key, agent_id), path=subagent_log(log.path, agent_id))


def _window_fill(log: AgentLog) -> int:
    return last_window_tokens(log.path, with_children=True)


def _client_version(path: str) -> tuple[int, ...]:
    """The version of Claude Code that wrote the end of a log; nothing when it does not say."""
    found = next((line["version"] for line in last_lines(path, _TAIL, (b'"version"',)) if "version" in line), "")
    return tuple(int(number) for number in re.findall(r"\d+", str(found))[:3])


def _running(path: str) -> tuple[set[str], set[str]]:
    """Calls of sub-agents that have no result, and those whose result says that they run in the background.

    One in the background is over when its end is reported, with its id or that of its call.
    """
    answered: dict[str, str] = {}
    asked: set[str] = set()
    ended: set[str] = set()
    for line in last_lines(path, _TAIL):
        ended |= {name for notice in _notices(line) for name in (notice.task, notice.call) if name}
        message = line.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_result":
                answered[str(block.get("tool_use_id"))] = json.dumps(line.get("toolUseResult"))[:2_000]
            elif block.get("type") == "tool_use" and block.get("name") in AGENT_TOOLS:
                asked.add(str(block.get("id")))
    waiting = asked - answered.keys()
    launched = {call_id for call_id in asked & answered.keys() if _LAUNCHED in answered[call_id]}
    return waiting, {each for each in launched - ended if not any(task in answered[each] for task in ended)}


def _notices(line: dict[str, Any]) -> list[TaskNotice]:
    """What a line of a log tells of tasks in the background: as a prompt, or beside the results of other calls."""
    message, attachment = line.get("message"), line.get("attachment")
    content = message.get("content") if isinstance(message, dict) and line.get("type") == "user" else None
    content = attachment.get("prompt") if isinstance(attachment, dict) else content
    blocks = [block for block in as_blocks(content) if isinstance(block, dict)]
    return [notice for block in blocks for notice in task_notices(str(block.get("text") or ""))]


def _subagents_of(path: str) -> list[tuple[str, str]]:
    folder = Path(subagent_log(path, "")).parent
    found = []
    for meta in sorted(folder.glob("agent-*.meta.json")):
        try:
            values = json.loads(meta.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(values, dict):
            found.append((str(values.get("toolUseId")), meta.name.removeprefix("agent-").removesuffix(".meta.json")))
    return found


_MOST_SHOWN = 3
_LONGEST = 120


# A plugin that has asked us so long before has asked for the same compaction.
_ASKED_SECONDS = 60.0


def pre_compact(call: HookCall) -> HookAnswer | None:
    """Archive everything that is new, keep the facts, write a checkpoint, and log the event.

    What Claude Code reads here becomes part of what it asks its model for, so nothing is said but our request, and that
    only where the settings want it.
    """
    _note_unanswered(call)
    if not call.has_log:
        log_hook(call.root, call.event, "nothing to archive", key=call.log.key, path=call.log.path)
        return _steering(call, ())
    trigger = call.text("trigger") or "unknown"
    with synced_session(call.log, call.settings) as synced:
        core = synced.core
        checkpoints.write_if_possible(core, checkpoints.current_checkpoint(core))
        state = read_session_state(core.row().state)
        tokens = last_window_tokens(call.log.path) or state.gauge.tokens
        core.emit(
            "compaction.expected",
            reason=trigger,
            tokens_before=tokens,
            tool_calls=state.tool_calls,
            agent=call.agent.name,
        )
        # Claude Code before 2.1.325 does not say when it is a sub-agent that compacts, of which these facts are not.
        answer = _steering(call, all_facts(core) if compacted_log(call.log) == call.log else ())
    new = synced.followed
    update_hook_state(call.log, expected=utc_now_text(), summary="")
    log_hook(
        call.root, call.event, "archived", key=call.log.key, trigger=trigger, new=new.archived, messages=new.appended
    )
    return answer


def _note_unanswered(call: HookCall) -> None:
    """Say in the log of hooks that our plugin should have answered: this hook is called only where it has not."""
    is_loaded = call.row is not None and call.row.has_plugin
    if call.settings.agent_compaction != "ours" or not (is_loaded or has_mod(call.root, os.environ)):
        return
    asked = [timestamp_seconds(call.row.last_event(event)) for event in ("compact", "failed")] if call.row else []
    if time.time() - max(asked, default=0.0) > _ASKED_SECONDS:
        why = "it failed, or its command is gone or slow" if is_loaded else "it was not loaded, or its command is gone"
        reason = f"our plugin did not answer: {why}"
        log_hook(call.root, "compact", NO_ANSWER, key=call.log.key, trigger=call.text("trigger"), reason=reason)


def _steering(call: HookCall, facts: Sequence[Fact]) -> HookAnswer | None:
    """The request for a summary in our format, unless this agent takes it in another way, or has got it already."""
    asked = call.text("custom_instructions")
    if not call.agent.max_request_chars or effective_compaction(call.agent, call.settings).way != "steered":
        return None
    if is_steering(asked):
        log_hook(call.root, call.event, "request given before", key=call.log.key)
        return None
    # What the user wrote behind /compact is put before it by the agent itself.
    text = steering_request(facts, call.settings.agent_record_tokens, longest=call.agent.max_request_chars)
    log_hook(call.root, call.event, "request given", key=call.log.key, characters=len(text))
    return {PLAIN: text}


def post_compact(call: HookCall) -> HookAnswer | None:
    """Say what the agent's own summary lost of what was known. All of it can be recalled."""
    set_thresholds(call, expected="", summary="")
    if not call.has_log or compacted_log(call.log) != call.log:
        return None
    with synced_session(call.log, call.settings, trigger=call.text("trigger")) as synced:
        losses = synced.followed.losses
        summary = call.text("compact_summary")
        if losses is None and summary:
            losses = find_summary_losses(summary, all_facts(synced.core))
    if losses is None:
        return None
    text = losses_message(call, losses)
    # Claude Code was told before, and what is printed here would become part of the conversation.
    return None if call.agent.passes_summary else {"systemMessage": text}


def losses_message(call: HookCall, losses: SummaryLosses) -> str:
    """What was lost, in two lines for the user; the hook log has all of it."""
    if not losses.readable:
        log_hook(call.root, call.event, "not compared", key=call.log.key, reason="the summary is empty or encrypted")
        return (
            "compactor: the summary is empty or encrypted and cannot be compared with what was known. The model is "
            f"given {losses.checked:,} known {'fact' if losses.checked == 1 else 'facts'} again, and every original "
            "can be recalled."
        )
    counts = ", ".join(f"{count:,} {_plural(kind, count)}" for kind, count in losses.by_kind().items())
    kept = losses.checked - len(losses.lost)
    log_hook(
        call.root,
        call.event,
        "compared",
        key=call.log.key,
        checked=losses.checked,
        kept=kept,
        lost=losses.by_kind(),
        lines=losses.lines()[:50],
    )
    if not losses.lost:
        return f"compactor: the summary has all {losses.checked:,} facts that were known."
    shown = "; ".join(one_line(line, _LONGEST) for line in losses.lines()[:_MOST_SHOWN])
    return (
        f"compactor: the summary has {kept:,} of {losses.checked:,} known facts. Not in it: {counts}, such as "
        f"{shown}. The model is given them again, and every original can be recalled."
    )


_KIND_NAMES = {
    "failure": "failed approach",
    "decision": "decision",
    "constraint": "rule",
    "todo": "open point",
    "blocker": "blocker",
    "file_state": "changed file",
    "side_effect": "thing done outside",
}


def _plural(kind: str, count: int) -> str:
    name = _KIND_NAMES.get(kind, kind)
    if count == 1:
        return name
    if name.startswith("thing"):
        return "things done outside"
    return name + ("es" if name.endswith("ch") else "s")


# A window that is whole needs no more than what has changed around it.
_RESUMED_CHARS = 4_000


def session_start(call: HookCall) -> HookAnswer | None:
    """The brief after a compaction, a short one when a session is resumed, and what was learned in a new one."""
    set_thresholds(call, processes=" ".join(ancestor_processes()))
    with hook_state_of(call.root) as state:
        state.trim()
    source = call.text("source")
    if source == "compact":
        return brief_after_compaction(call)
    if source == "resume" and call.has_log:
        return _resume_message(call)
    text = learned_text(call)
    return call.for_model(text) if text else None


def brief_after_compaction(call: HookCall) -> HookAnswer | None:
    """The brief, with a mark by which the next hook sees whether it has arrived, and what the agent's summary lost."""
    log = compacted_log(call.log) if call.has_log else call.log
    if not os.path.isfile(log.path) or not os.path.getsize(log.path):
        log_hook(call.root, call.event, "no brief", reason="there is no log of it yet", key=log.key)
        return None
    with synced_session(log, call.settings) as synced:
        if goes_on_with_ours(synced.core):
            log_hook(call.root, call.event, "no brief", reason=GOES_ON_WITH_OURS, key=log.key)
            return None
        mark = brief_marker(synced.core, "compact")
        summary = (call.row.summary if call.row and log.key == call.log.key else "") or _new_summary(synced.transcript)
        text = brief_text(synced.core, call.agent, mark, summary)
        losses = synced.followed.losses or (find_summary_losses(summary, all_facts(synced.core)) if summary else None)
    if log.key == call.log.key:
        expect_delivery(call, mark)
    log_hook(call.root, call.event, "brief given", key=log.key, marker=mark, characters=len(text))
    message = {} if losses is None else {"systemMessage": losses_message(call, losses)}
    return call.for_model(text) | message


def _new_summary(transcript: Transcript) -> str:
    """The summary that a log ends with; one that the model has answered to since is that of an earlier compaction."""
    last = transcript.compactions[-1] if transcript.compactions else None
    if last is None or any(message.get("role") == "assistant" for message in transcript.messages[last.at :]):
        return ""
    return last.summary


def _resume_message(call: HookCall) -> HookAnswer | None:
    """What has changed since, and where the rest is: the window itself is as it was."""
    with synced_session(call.log, call.settings, archive=False) as synced:
        found = synced.session.resume(400)
    reasons = [f"- {reason.what}" for reason in found.reasons if reason.severity != "note"]
    if not reasons:
        return None
    head = "Context Compactor compared this project with where this session stood when it was left:"
    return call.for_model("\n".join((head, *reasons))[:_RESUMED_CHARS])


def stop(call: HookCall) -> HookAnswer | None:
    """Follow the log. It never says anything: an answer could keep an agent from stopping when it must."""
    if call.has_log and not call.agent_id:
        with synced_session(call.log, call.settings, archive=False):
            pass
    return None


def session_end(call: HookCall) -> HookAnswer | None:
    """Archive all of it, keep the facts, and carry what is worth knowing over to the next session."""
    if call.has_log:
        with synced_session(call.log, call.settings, is_closed=True) as synced:
            promote(synced.core)
    return None
