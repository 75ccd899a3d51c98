"""The hook after a tool call: counts it, suggests a compaction, and replaces an output that is too long."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct, structs

from context_compactor.agents.hook_log import log_hook
from context_compactor.agents.hooks.brief import redeliver_brief
from context_compactor.agents.hooks.call import HookAnswer, HookCall, agent_window, next_suggestion, set_thresholds
from context_compactor.agents.paths import AGENT_TOOLS, settings_fingerprint
from context_compactor.agents.sync import hook_state_of, synced_session
from context_compactor.agents.transcript_tail import last_window_tokens
from context_compactor.archive.storage import prepare_items, store_items
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.turns import ToolUse, split_turns
from context_compactor.engine.classify import Verdict, classify, result_original
from context_compactor.engine.truncation import MAX_OUTPUT_TOKENS, truncate_output
from context_compactor.handoff.context_summary import MOST_TOKENS as HANDOFF_TOKENS
from context_compactor.handoff.context_summary import clean_summary
from context_compactor.sessions.core import Core
from context_compactor.text import beginning
from context_compactor.tokens.counting import counter_for

# What these return is for the agent's own eyes; its model reads one line of it.
_TOOLS_NOT_SHOWN = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit", "TodoWrite", "apply_patch"})
# Parts of an answer that repeat the question, or point elsewhere.
_NOT_TEXT_FIELDS = frozenset({"prompt", "filePath", "file_path", "data", "base64", "agentId", "description"})
# Where Claude Code has put a copy that it would show in the place of the text.
_COPY_FIELDS = ("persistedOutputPath", "persistedOutputSize")

_LARGEST = 64 * 1024 * 1024

ValuePath = tuple[str | int, ...]


class ToolResponseText(Struct, frozen=True):
    """What a tool has returned: the longest text in it, and the path of that text."""

    response: Any
    path: ValuePath
    text: str

    def with_text(self, text: str) -> Any:
        """The same with another text."""
        return _replaced(self.response, self.path, text)


def find_output(tool: str, response: Any) -> ToolResponseText | None:
    """The text that the model will read of a tool's answer; None when there is none that may be shortened."""
    if tool in _TOOLS_NOT_SHOWN:
        return None
    texts = list(_texts(response, ()))
    if not texts:
        return None
    path, text = max(texts, key=lambda each: len(each[1]))
    return ToolResponseText(response, path, text)


def with_whole_text(output: ToolResponseText) -> ToolResponseText:
    """The same with all of its text: of a very long one Claude Code sends the beginning, and where the rest is."""
    copy = output.response.get(_COPY_FIELDS[0]) if isinstance(output.response, dict) else None
    if not isinstance(copy, str) or not os.path.isfile(copy):  # a pipe would let us wait
        return output
    try:
        with open(copy, "rb") as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return output
    return structs.replace(output, text=text) if text.startswith(output.text[:1_000]) else output


def first_line_number(response: Any) -> int:
    """The number of the first line that a file was read from."""
    file = response.get("file") if isinstance(response, dict) else None
    line = file.get("startLine") if isinstance(file, dict) else None
    return line if isinstance(line, int) and line > 0 else 1


def _texts(value: Any, path: ValuePath) -> list[tuple[ValuePath, str]]:
    if isinstance(value, str):
        return [(path, value)]
    if isinstance(value, dict):
        inner: list[tuple[str | int, Any]] = [(key, each) for key, each in value.items() if key not in _NOT_TEXT_FIELDS]
    else:
        inner = list(enumerate(value)) if isinstance(value, list) else []
    return [found for key, each in inner for found in _texts(each, (*path, key))]


def _replaced(value: Any, path: ValuePath, text: str) -> Any:
    if not path:
        return text
    if isinstance(value, list):
        return [_replaced(each, path[1:], text) if at == path[0] else each for at, each in enumerate(value)]
    rest = {key: each for key, each in value.items() if key not in _COPY_FIELDS}
    return {key: _replaced(each, path[1:], text) if key == path[0] else each for key, each in rest.items()}


# Outputs of calls that the log does not have yet are numbered from here, far behind any call of it.
_FIRST_UNLOGGED = 2_000_001
_READ_TOOLS = ("Read",)


class ReplacedOutput(Struct, frozen=True):
    """A shorter text for what a tool returned, and all that it returned with that text in it."""

    text: str
    response: Any


def replace_output(call: HookCall) -> ReplacedOutput | None:
    """The tool's answer with a shorter text in it; None when it stays as it is."""
    tool = call.text("tool_name")
    most = HANDOFF_TOKENS if tool in AGENT_TOOLS else call.settings.max_output_tokens
    output = find_output(tool, call.payload.get("tool_response")) if call.settings.replace_outputs else None
    if output is None or len(output.text) <= most or not call.has_log or _is_scripted(call):
        return None
    output = with_whole_text(output)
    tokens = counter_for(call.row.model if call.row else None).count(output.text)
    if tokens <= most:
        return None
    with synced_session(call.log, call.settings, archive=False) as synced:
        exchange, verdict = _exchange(synced.core, call, tool, output.text)
        original = synced.core.without_secrets(result_original(exchange, verdict))
        ready = prepare_items([original], synced.core.store)
        with synced.core.writing():
            synced.core.store.archive(synced.core.id, store_items(ready, synced.core.store), synced.core.now())
    log_hook(call.root, call.event, "replaced", key=call.log.key, tool=tool, ref=original.id, tokens=tokens)
    text = _shorter(tool, output, tokens, verdict, most)
    return ReplacedOutput(text, output.with_text(text))


def shorten(call: HookCall) -> HookAnswer | None:
    """A shorter text in the place of a long one that an agent is about to keep; nothing when it stays as it is."""
    replaced = replace_output(call)
    return {"text": replaced.text} if replaced is not None else None


def _is_scripted(call: HookCall) -> bool:
    """A call that a script of Codex makes: what its model sees is what the script prints, and no hook changes that."""
    return call.agent.replacement_field == "stopReason" and call.text("tool_use_id").startswith("exec-")


def _shorter(tool: str, output: ToolResponseText, tokens: int, verdict: Verdict, most: int) -> str:
    if tool in AGENT_TOOLS:
        summary = clean_summary(output.text).text
        return f'{summary}\n[{tokens:,} tokens of the sub-agent\'s answer are archived: recall("{verdict.ref}")]'
    if (
        tool in _READ_TOOLS
    ):  # the agent numbers the lines it shows, and shows them once: only a beginning can stand there
        head = beginning(output.text, int(len(output.text) * most / tokens))
        read, left = head.count("\n"), output.text.count("\n") - head.count("\n")
        more = f"Read it with offset={first_line_number(output.response) + read} for more"
        return f'{head}\n[… {left:,} more lines. {more}, or recall("{verdict.ref}") for all of it]'
    return truncate_output(output.text, tokens, verdict, min(most, MAX_OUTPUT_TOKENS))


def _exchange(core: Core, call: HookCall, tool: str, text: str) -> tuple[ToolUse, Verdict]:
    call_id = call.text("tool_use_id") or "call"
    number = _number(core, call_id) or _next_unlogged(core)
    given = call.payload.get("tool_input")
    asked = {
        "type": "tool_use",
        "id": call_id,
        "name": tool or "tool",
        "input": given if isinstance(given, dict) else {},
    }
    answered = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    dialect = find_dialect("anthropic", ())
    messages = dialect.parse([{"role": "assistant", "content": [asked]}, {"role": "user", "content": [answered]}])
    turns = split_turns(messages, 1, number)
    return turns[0].exchanges[0], classify(turns).exchanges[number]


def _number(core: Core, call_id: str) -> int:
    """Which call of the session this is; 0 when the log does not have it yet."""
    exchanges = (exchange for turn in core.parse_context().content.turns for exchange in turn.exchanges)
    return next((each.number for each in exchanges if each.call and each.call.id == call_id), 0)


def _next_unlogged(core: Core) -> int:
    numbers = [int(each.ref.partition("_")[2]) for each in core.store.originals(core.id)]
    return max([_FIRST_UNLOGGED, *(number + 1 for number in numbers if number >= _FIRST_UNLOGGED)])


def post_tool_use(call: HookCall) -> HookAnswer | None:
    """What was found, put together: a brief that has not arrived, a suggestion, another output."""
    brief, hint = redeliver_brief(call), _suggestion(call)
    answer: dict[str, Any] = call.for_model("\n\n".join(filter(None, (brief, hint)))) if brief or hint else {}
    if hint:
        answer["systemMessage"] = hint.strip("[]")
    replaced = replace_output(call)
    if replaced is not None:
        answer = _with_output(call, answer, replaced)
    return answer or None


def _with_output(call: HookCall, answer: dict[str, Any], replaced: ReplacedOutput) -> dict[str, Any]:
    if call.agent.replacement_field == "stopReason":  # Codex goes on with this text in the place of the output
        return {**answer, "continue": False, "stopReason": replaced.text}
    specific = answer.get("hookSpecificOutput", {"hookEventName": call.event_name()})
    return {**answer, "hookSpecificOutput": {**specific, "updatedToolOutput": replaced.response}}


def _suggestion(call: HookCall) -> str:
    """A hint when a number of calls is reached, or the window is as full as the settings say; each once."""
    row = call.row
    if row is None or row.settings != settings_fingerprint(call.root, os.environ):
        row = set_thresholds(call)
    tokens = last_window_tokens(call.log.path)
    is_counted = row.calls >= row.wake_calls > 0 and _claim_suggestion(
        call, "wake_calls", row.wake_calls, next_suggestion(call, row)
    )
    is_full = 0 < row.wake_tokens <= tokens and _claim_suggestion(call, "wake_tokens", row.wake_tokens, 0)
    if call.agent_id or not (is_counted or is_full):
        return ""
    share = f", and the window is {min(tokens / agent_window(call), 1):.0%} full" if tokens else ""
    log_hook(call.root, call.event, "suggested", key=call.log.key, calls=row.calls, tokens=tokens)
    calls = f"{row.calls:,} tool {'call' if row.calls == 1 else 'calls'}"
    return (
        f"[Context Compactor: {calls} in this session{share}. At the next natural pause, when a step is finished, tell "
        "the user that /compact would free the window now. Nothing is lost by it: originals can be recalled.]"
    )


def _claim_suggestion(call: HookCall, name: str, known: int, value: int) -> bool:
    with hook_state_of(call.root) as state:
        return state.claim(call.log.key, name, known, value)
