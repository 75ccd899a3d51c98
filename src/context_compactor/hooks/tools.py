"""A tool has answered: count, suggest, and replace what is too long before the model has to carry it."""

from __future__ import annotations

import os
from typing import Any

from context_compactor.agents.diary import write_line
from context_compactor.agents.keeping_up import using_tally
from context_compactor.agents.places import fingerprint
from context_compactor.agents.window_use import tokens_at_end
from context_compactor.hooks.call import Answer, Call
from context_compactor.hooks.oversized import Replaced, replacement
from context_compactor.hooks.owed import pay
from context_compactor.hooks.waking import next_alarm, set_alarms, window_of


def post_tool_use(call: Call) -> Answer | None:
    """What was found, put together: a brief that is owed, a suggestion, another output."""
    owed, hint = pay(call), _suggestion(call)
    answer: dict[str, Any] = call.for_model("\n\n".join(filter(None, (owed, hint)))) if owed or hint else {}
    if hint:
        answer["systemMessage"] = hint.strip("[]")
    replaced = replacement(call)
    if replaced is not None:
        answer = _with_output(call, answer, replaced)
    return answer or None


def _with_output(call: Call, answer: dict[str, Any], replaced: Replaced) -> dict[str, Any]:
    """The answer with another output in it, as this agent takes it."""
    if call.agent.replacing == "stopReason":  # Codex goes on with this text in the place of the output
        return {**answer, "continue": False, "stopReason": replaced.text}
    said = answer.get("hookSpecificOutput", {"hookEventName": call.name_of_event()})
    return {**answer, "hookSpecificOutput": {**said, "updatedToolOutput": replaced.response}}


def _suggestion(call: Call) -> str:
    """A hint when a number of calls is reached, or the window is as full as the settings say; each once."""
    row = call.row
    if row is None or row.settings != fingerprint(call.root, os.environ):
        row = set_alarms(call)
    tokens = tokens_at_end(call.log.path)
    is_counted = row.calls >= row.wake_calls > 0 and _claim(call, "wake_calls", row.wake_calls, next_alarm(call, row))
    is_full = 0 < row.wake_tokens <= tokens and _claim(call, "wake_tokens", row.wake_tokens, 0)
    if call.agent_id or not (is_counted or is_full):
        return ""
    share = f", and the window is {min(tokens / window_of(call), 1):.0%} full" if tokens else ""
    write_line(call.root, call.event, "suggested", key=call.log.key, calls=row.calls, tokens=tokens)
    calls = f"{row.calls:,} tool {'call' if row.calls == 1 else 'calls'}"
    return (
        f"[Context Compactor: {calls} in this session{share}. At the next natural pause, when a step is finished, tell "
        "the user that /compact would free the window now. Nothing is lost by it: originals can be recalled.]"
    )


def _claim(call: Call, name: str, known: int, value: int) -> bool:
    """Of many calls that come at once, one suggests."""
    with using_tally(call.root) as tally:
        return tally.claim(call.log.key, name, known, value)
