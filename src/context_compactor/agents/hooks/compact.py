"""An agent asks for a compaction in the place of its own, for what one would do, or for the messages before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from context_compactor.agents.adoption import note_offer, withdraw_offer
from context_compactor.agents.agent_record import current_record, last_steps, record_request, reminder, write_record
from context_compactor.agents.hook_log import NO_ANSWER, log_hook
from context_compactor.agents.hooks.call import HookAnswer, HookCall, set_thresholds
from context_compactor.agents.steering import steering_instructions, steering_request
from context_compactor.agents.sync import synced_session
from context_compactor.agents.transcript_tail import last_window_tokens
from context_compactor.dialects.messages import Message
from context_compactor.dialects.transcripts.claude_code import is_markup
from context_compactor.dialects.transcripts.transcript import as_blocks
from context_compactor.engine.plan import Decision, TierTotal
from context_compactor.engine.tiers import Tier
from context_compactor.sessions import views
from context_compactor.sessions.core import conversation_raws
from context_compactor.sessions.tiers import plan_compaction
from context_compactor.settings import Level
from context_compactor.text import one_line

_RECALL = (
    'Context Compactor wrote this record in the place of a summary. recall("id") and search_archive("words") are tools '
    "of the MCP server `compactor`{hint}; in a shell they are `compactor recall ID --session {session!r}` and "
    '`compactor recall --search "words" --session {session!r}`.'
)
_LONGEST = 60


def loaded(call: HookCall) -> HookAnswer:
    """The plugin inside the agent has started, so that it can compact in this session; it is told who compacts."""
    return {"compaction": set_thresholds(call).compaction}


def failed(call: HookCall) -> None:
    """The plugin inside the agent has not got an answer from us, and tells why: what was offered has not arrived."""
    if call.has_log:
        with synced_session(call.log, call.settings, archive=False) as synced:
            withdraw_offer(synced.core)
    reason, trigger = call.text("reason"), call.text("trigger")
    log_hook(call.root, "compact", NO_ANSWER, key=call.log.key, trigger=trigger, reason=reason)


def compact(call: HookCall) -> HookAnswer:
    """Our record of everything up to here, what to ask the agent's own model for, or why it shall compact by itself."""
    began = time.perf_counter()
    set_thresholds(call)
    if call.settings.agent_compaction == "beside":
        if call.agent.extension and call.has_log:  # which has no hook before a compaction
            with synced_session(call.log, call.settings):
                pass
        return _pass(call, 'agent_compaction is "beside"')
    if call.settings.agent_compaction == "steered":
        return _steered(call)
    if not call.has_log:
        return _pass(call, f"there is no log at {call.log.path or 'the path that was given'}")
    with synced_session(call.log, call.settings) as synced:
        core = synced.core
        withdraw_offer(core)  # whoever asks again has not taken the last one
        given = write_record(core, _kind(call), call.text("custom_instructions"), f"{call.agent.title} asked for it")
        if not given.record:
            return _pass(call, given.reason)
        report, record, behind = given.report, given.record, given.behind
        note_offer(core, record)
        hint = _RECALL.format(hint=call.agent.tool_hint, session=core.id)
        text = "\n\n".join((record, *last_steps(behind, _keeps(call)), reminder(core, record, behind, hint)))
    log_hook(
        call.root,
        call.event,
        "record given",
        key=call.log.key,
        trigger=call.text("trigger"),
        tokens=report.tokens_after,
        seconds=round(time.perf_counter() - began, 3),
    )
    return {
        "record": text,
        "tokens_before": last_window_tokens(call.log.path, with_children=bool(call.agent_id)) or report.tokens_before,
        "tokens_after": report.tokens_after,
    }


def _kind(call: HookCall) -> Literal["threshold", "manual"]:
    return "threshold" if call.text("trigger") == "auto" else "manual"


def _keeps(call: HookCall) -> Callable[[Message, str], bool]:
    """The agent keeps prompts that nobody has answered, and says which; of one beside a result it may not know."""
    kept, is_known = "\n".join(map(str, call.payload.get("open_prompts") or ())), "open_prompts" in call.payload
    return lambda message, words: not message.results or not is_known or words in kept


def _steered(call: HookCall) -> HookAnswer:
    """The request by which the agent's own model writes in our format."""
    tokens, custom = call.settings.agent_record_tokens, call.text("custom_instructions")
    if call.has_log:
        with synced_session(call.log, call.settings) as synced:
            text = steering_instructions(synced.core, tokens, custom=custom)
    else:
        text = steering_request((), tokens, custom=custom)
    log_hook(call.root, call.event, "request given", key=call.log.key, characters=len(text))
    return {"instructions": text}


def _pass(call: HookCall, reason: str) -> HookAnswer:
    log_hook(call.root, call.event, "passed", key=call.log.key, trigger=call.text("trigger"), reason=reason)
    return {"pass": reason}


_MOST_SHOWN, _MOST_NAMED = 6, 4
_TIER_WORDS = {
    Tier.KEEP: "stays word for word",
    Tier.SUMMARIZE: "is shortened",
    Tier.REFERENCE: "stands behind a reference",
    Tier.DROP: "is left out",
}


def plan(call: HookCall) -> HookAnswer:
    """What a compaction would do now, in a few lines for the user."""
    if not call.has_log:
        return _pass(call, "nothing is known of this conversation yet")
    with synced_session(call.log, call.settings, archive=False) as synced:
        found = plan_compaction(
            synced.core, record_request(synced.core, _kind(call), call.text("custom_instructions")), None
        )
    report = found.report
    if not report.changed:
        return {"text": f"A compaction would change nothing now: {report.reason}."}
    size = f"{report.tokens_before:,} → {report.tokens_after:,} tokens of messages"
    lines = (
        f"A compaction now: {report.messages_before:,} messages → one record, {size}. Every original can be recalled.",
        *(_total_line(total) for total in found.totals() if total.targets),
        "What saves most:",
        *_largest_savings(found.decisions),
        f"All of it: compactor plan {synced.core.id} --target {call.settings.agent_record_tokens}",
    )
    return {"text": "\n".join(lines)}


def _total_line(total: TierTotal) -> str:
    tokens = f"{total.tokens_before:,} → {total.tokens_after:,} tokens"
    return f"  {_TIER_WORDS[total.tier]}: {tokens} ({total.targets:,} {'part' if total.targets == 1 else 'parts'})"


def _largest_savings(decisions: Iterable[Decision]) -> list[str]:
    """What is saved, by its reason, with the parts that save most of it."""
    found: dict[str, list[Decision]] = {}
    for each in decisions:
        if each.tokens_after < each.tokens_before:
            found.setdefault(each.reason, []).append(each)
    lines = []
    largest = sorted(found.items(), key=lambda item: -sum(map(_saved, item[1])))[:_MOST_SHOWN]
    for reason, same in largest:
        names = list(dict.fromkeys(one_line(each.target, _LONGEST) for each in sorted(same, key=_saved, reverse=True)))
        more = f", and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
        lines.append(f"  {sum(map(_saved, same)):,} tokens, {reason}: {', '.join(names[:_MOST_NAMED])}{more}")
    return lines


def _saved(decision: Decision) -> int:
    return decision.tokens_before - decision.tokens_after


def undo(call: HookCall) -> HookAnswer:
    """The messages before the last compaction, with all that came since, for an agent that can put them back."""
    if not call.has_log:
        return _pass(call, "nothing is known of this conversation yet")
    with synced_session(call.log, call.settings) as synced:
        core = synced.core
        withdraw_offer(core)
        report = views.undo(core)
        if report is None:
            return _pass(call, "there is no compaction to undo")
        usage = views.usage(core)
        first = min(rule.threshold for rule in call.settings.levels if rule.level is Level.SOFT)
        messages = conversation_raws(core.current_context())
        problem = ""
        if usage.share >= first:
            problem = f"before it the conversation filled {usage.share:.0%} of the window and would be compacted again"
        elif any(block.get("type") in _NOT_IN_ROWS for message in messages for block in as_blocks(message["content"])):
            problem = "an image or a document stands before it, which a plugin cannot put back"
        if problem:
            views.redo(core)
            return _pass(call, f'{problem}. Try: recall("ID"), or `compactor context --session {core.id}`')
        note_offer(core, "", before=current_record(core)[0])
    log_hook(call.root, call.event, "undone", key=call.log.key, messages=len(messages), tokens=usage.tokens)
    return {"rows": [row for message in messages for row in _rows(message)], "tokens_after": usage.tokens}


_NOT_IN_ROWS = ("image", "document")


def _rows(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message in the form in which Claude Code takes rows of a conversation from a plugin.

    What the client itself had written in it would look as if the user had typed it.
    """
    blocks = as_blocks(message["content"])
    texts = [block["text"] for block in blocks if block.get("type") == "text" and not is_markup(block["text"])]
    calls = [
        {"tool_use_id": block["id"], "tool": block["name"], "input": block["input"]}
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    results = [
        {
            "tool_use_id": block["tool_use_id"],
            "text": _text(block.get("content")),
            "isError": bool(block.get("is_error")),
        }
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    answered = [{"role": "user", "text": "", "toolUses": [], "toolResults": results}] if results else []
    said = [{"role": message["role"], "text": "\n\n".join(texts), "toolUses": calls}] if texts or calls else []
    return [*answered, *said]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content or () if isinstance(block, dict))
