"""Around an agent's own compaction: everything is archived before it, and afterwards compared with what is left."""

from __future__ import annotations

from context_compactor.agents.diary import stamp, write_line
from context_compactor.agents.keeping_up import keep_up, remember
from context_compactor.agents.losses import Losses, find_lost
from context_compactor.agents.sidelogs import compacted_log
from context_compactor.agents.window_use import tokens_at_end
from context_compactor.hooks.call import Answer, Call
from context_compactor.hooks.waking import set_alarms
from context_compactor.messages.printing import one_line
from context_compactor.session import checkpoints
from context_compactor.session.memory import all_facts
from context_compactor.session.values import read_state

_MOST_TOLD = 3
_LONGEST = 120


def pre_compact(call: Call) -> Answer | None:
    """Archive everything that is new, keep the facts, write a checkpoint, and log the event.

    It says nothing: what Claude Code reads here becomes part of what it asks for, and some of it would stop it.
    """
    if not call.has_log:
        write_line(call.root, call.event, "nothing to archive", key=call.log.key, path=call.log.path)
        return None
    trigger = call.text("trigger") or "unknown"
    with keep_up(call.log, call.settings) as kept:
        core = kept.core
        checkpoints.write_if_possible(core, checkpoints.make(core))
        state = read_state(core.row().state)
        tokens = tokens_at_end(call.log.path) or state.gauge.tokens
        core.emit(
            "compaction.expected",
            reason=trigger,
            tokens_before=tokens,
            tool_calls=state.tool_calls,
            agent=call.agent.name,
        )
    told = kept.followed
    remember(call.log, expected=stamp(), summary="")
    write_line(
        call.root, call.event, "archived", key=call.log.key, trigger=trigger, new=told.archived, messages=told.appended
    )
    return None


def post_compact(call: Call) -> Answer | None:
    """Say what the agent's own summary lost of what was known. All of it can be recalled."""
    set_alarms(call, expected="", summary="")
    if not call.has_log or compacted_log(call.log) != call.log:
        return None
    with keep_up(call.log, call.settings) as kept:
        losses = kept.followed.losses
        summary = call.text("compact_summary")
        if losses is None and summary:
            losses = find_lost(summary, all_facts(kept.core))
    if losses is None:
        return None
    text = tell_losses(call, losses)
    # Claude Code was told before, and what is printed here would become part of the conversation.
    return None if call.agent.tells_summary else {"systemMessage": text}


def tell_losses(call: Call, losses: Losses) -> str:
    """What was lost, in two lines for the user; the diary has all of it."""
    counts = ", ".join(f"{count:,} {_plural(kind, count)}" for kind, count in losses.by_kind().items())
    kept = losses.checked - len(losses.lost)
    write_line(
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
        return f"compactor: the summary tells all {losses.checked:,} facts that were known."
    shown = "; ".join(one_line(line, _LONGEST) for line in losses.lines()[:_MOST_TOLD])
    return (
        f"compactor: the summary tells {kept:,} of {losses.checked:,} known facts. Not in it: {counts}, such as "
        f"{shown}. The model is given them again, and every original can be recalled."
    )


_NAMES = {
    "failure": "failed approach",
    "decision": "decision",
    "constraint": "rule",
    "todo": "open point",
    "blocker": "blocker",
    "file_state": "changed file",
    "side_effect": "thing done outside",
}


def _plural(kind: str, count: int) -> str:
    name = _NAMES.get(kind, kind)
    if count == 1:
        return name
    if name.startswith("thing"):
        return "things done outside"
    return name + ("es" if name.endswith("ch") else "s")
