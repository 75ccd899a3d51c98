"""An output that is too long: its beginning and end go to the model, all of it into the archive, under its id."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from context_compactor.agents.diary import write_line
from context_compactor.agents.keeping_up import keep_up
from context_compactor.agents.places import AGENT_TOOLS
from context_compactor.apply.cut_output import MOST_TOKENS, cut_output
from context_compactor.archive.archive import Original
from context_compactor.archive.gather import result_original
from context_compactor.archive.shelve import keep_items, ready_items
from context_compactor.classify.rules import Verdict, classify
from context_compactor.handoff.summary import MOST_TOKENS as HANDOFF_TOKENS
from context_compactor.handoff.summary import clean_summary
from context_compactor.hooks.call import Call
from context_compactor.hooks.outputs import Output, find_output, first_line, whole
from context_compactor.measure.tokens import counter_for
from context_compactor.messages.detect import find_dialect
from context_compactor.messages.ends import beginning
from context_compactor.messages.turn import ToolUse, split_turns
from context_compactor.session.core import Core

# Outputs of calls that the log does not have yet are numbered from here, far behind any call of it.
_FIRST_BESIDE = 2_000_001
_READS = ("Read",)


class Replaced(Struct, frozen=True):
    """A shorter text for what a tool returned, and all that it returned with that text in it."""

    text: str
    response: Any


def replacement(call: Call) -> Replaced | None:
    """The tool's answer with a shorter text in it; None when it stays as it is."""
    tool = call.text("tool_name")
    most = HANDOFF_TOKENS if tool in AGENT_TOOLS else call.settings.max_output_tokens
    output = find_output(tool, call.said.get("tool_response")) if call.settings.replace_outputs else None
    if output is None or len(output.text) <= most or not call.has_log or _is_scripted(call):
        return None
    output = whole(output)
    tokens = counter_for(call.row.model if call.row else None).count(output.text)
    if tokens <= most:
        return None
    with keep_up(call.log, call.settings, archive=False) as kept:
        exchange, verdict = _exchange(kept.core, call, tool, output.text)
        original = kept.core.without_secrets(result_original(exchange, verdict))
        _archive(kept.core, original)
    write_line(call.root, call.event, "replaced", key=call.log.key, tool=tool, ref=original.id, tokens=tokens)
    text = _shorter(tool, output, tokens, verdict, most)
    return Replaced(text, output.with_text(text))


def _is_scripted(call: Call) -> bool:
    """A call that a script of Codex makes: what its model sees is what the script prints, and no hook changes that."""
    return call.agent.replacing == "stopReason" and call.text("tool_use_id").startswith("exec-")


def _shorter(tool: str, output: Output, tokens: int, verdict: Verdict, most: int) -> str:
    if tool in AGENT_TOOLS:
        summary = clean_summary(output.text).text
        return f'{summary}\n[{tokens:,} tokens of the sub-agent\'s answer are archived: recall("{verdict.ref}")]'
    if tool in _READS:  # the agent numbers the lines it shows, and shows them once: only a beginning can stand there
        head = beginning(output.text, int(len(output.text) * most / tokens))
        read, left = head.count("\n"), output.text.count("\n") - head.count("\n")
        more = f"Read it with offset={first_line(output.response) + read} for more"
        return f'{head}\n[… {left:,} more lines. {more}, or recall("{verdict.ref}") for all of it]'
    return cut_output(output.text, tokens, verdict, min(most, MOST_TOKENS))


def _exchange(core: Core, call: Call, tool: str, text: str) -> tuple[ToolUse, Verdict]:
    """The call with its whole result, under the number that it has in the conversation."""
    call_id = call.text("tool_use_id") or "call"
    number = _number(core, call_id) or _beside(core)
    given = call.said.get("tool_input")
    asked = {
        "type": "tool_use",
        "id": call_id,
        "name": tool or "tool",
        "input": given if isinstance(given, dict) else {},
    }
    told = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    dialect = find_dialect("anthropic", ())
    messages = dialect.parse([{"role": "assistant", "content": [asked]}, {"role": "user", "content": [told]}])
    turns = split_turns(messages, 1, number)
    return turns[0].exchanges[0], classify(turns).exchanges[number]


def _number(core: Core, call_id: str) -> int:
    """Which call of the session this is; 0 when the log does not have it yet."""
    exchanges = (exchange for turn in core.take_apart().scene.turns for exchange in turn.exchanges)
    return next((each.number for each in exchanges if each.call and each.call.id == call_id), 0)


def _beside(core: Core) -> int:
    numbers = [int(each.ref.partition("_")[2]) for each in core.store.originals(core.id)]
    return max([_FIRST_BESIDE, *(number + 1 for number in numbers if number >= _FIRST_BESIDE)])


def _archive(core: Core, original: Original) -> None:
    ready = ready_items([original], core.store)
    with core.writing():
        core.store.archive(core.id, keep_items(ready, core.store), core.now())
