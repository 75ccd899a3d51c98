"""The first milliseconds of a hook: read the call, count it, and exit when that is all; only the standard library."""

from __future__ import annotations

import json
import os
import sys
import time

from context_compactor.agents.hook_log import log_hook, utc_now_text
from context_compactor.agents.hook_state import open_hook_state
from context_compactor.agents.paths import AGENT_TOOLS, HOME, project_root, session_key, settings_fingerprint
from context_compactor.agents.transcript_tail import last_window_tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from context_compactor.agents.hook_state import AgentSessionRow

EVENTS = (
    "session-start",
    "user-prompt-submit",
    "post-tool-use",
    "pre-compact",
    "post-compact",
    "subagent-start",
    "subagent-stop",
    "stop",
    "session-end",
    "loaded",
    "compact",
    "failed",
    "shorten",
    "undo",
    "plan",
)
PLAIN = "plain"
"""The key of an answer that is printed as it is, not as JSON."""
_EVENT_SPELLINGS = {event.replace("-", ""): event for event in EVENTS}
_LONGEST_INPUT = 256_000_000
# What a sub-agent answers is shortened earlier than any other output.
_LONG_SUBAGENT_ANSWER = 1_000
# Counting is not worth a longer wait.
_WAIT_SECONDS = 3.0


def main(arguments: list[str]) -> int:
    """Answer one call. Always 0: any other code could stop the agent."""
    event = root = ""
    try:
        event = _event(arguments)
        call = _read(event)
        root = project_root(_text(call, "cwd"), os.environ)
        answer = _answer(event, call, root, _option(arguments, "--agent"))
        if answer and sys.stdout is not None:
            sys.stdout.write(answer[PLAIN] if PLAIN in answer else json.dumps(answer))
            sys.stdout.flush()
    except KeyboardInterrupt:
        _report_failure(root, event, "interrupted")
    except BrokenPipeError:
        _report_failure(root, event, "the agent closed standard output")
    except Exception as error:  # noqa: BLE001  an agent is never broken by us; the hook log says what happened
        _report_failure(root, event, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    return 0


def _event(arguments: list[str]) -> str:
    name = next((each for each in arguments if not each.startswith("-")), "")
    event = _EVENT_SPELLINGS.get(name.replace("-", "").replace("_", "").lower(), "")
    if not event:
        raise ValueError(f"there is no event {name[:60]!r}. Try:  {', '.join(EVENTS)}")
    return event


def _option(arguments: list[str], name: str) -> str:
    at = arguments.index(name) + 1 if name in arguments else len(arguments)
    return arguments[at] if at < len(arguments) else ""


def _read(event: str) -> dict[str, Any]:
    if sys.stdin is None or sys.stdin.isatty():
        raise ValueError(
            f"this is called by a coding agent with JSON on standard input. Try: echo '{{}}' | compactor hook {event}"
        )
    text = sys.stdin.buffer.read(_LONGEST_INPUT)
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"standard input is not JSON ({error}): {text[:200]!r}") from None
    if not isinstance(call, dict):
        raise ValueError(f"standard input is not a JSON object: {text[:200]!r}")
    if not _text(call, "session_id"):
        raise ValueError(f"the JSON on standard input has no session_id, only {', '.join(map(str, call))[:200]}")
    return call


def _answer(event: str, call: dict[str, Any], root: str, agent: str) -> dict[str, Any] | None:
    key = session_key(_text(call, "session_id"), _text(call, "agent_id"))
    row = None
    if event in ("post-tool-use", "user-prompt-submit"):
        row = _count(event, key, root)
        if row is not None and not _needs_work(event, row, call, root):
            return None
    from context_compactor.agents.hooks.dispatch import run_hook

    return run_hook(event, call, root, agent, row)


def _count(event: str, key: str, root: str) -> AgentSessionRow | None:
    state = None
    try:
        state = open_hook_state(os.path.join(root, HOME), wait=_WAIT_SECONDS)
        if state is None:
            return None
        if event == "post-tool-use":
            return state.count(key, time.time())
        row = state.find(key)
        if row is not None:
            state.note_event(key, event, utc_now_text())
        return row
    except Exception:  # noqa: BLE001  whoever has the time puts it aside and begins anew
        return None
    finally:
        if state is not None:
            state.close()


def _needs_work(event: str, row: AgentSessionRow, call: dict[str, Any], root: str) -> bool:
    if row.owed or row.settings != settings_fingerprint(root, os.environ):
        return True
    if event == "user-prompt-submit":
        return bool(row.expected)
    if row.calls >= row.wake_calls > 0:
        return True
    least = min(row.wake_bytes, _LONG_SUBAGENT_ANSWER) if call.get("tool_name") in AGENT_TOOLS else row.wake_bytes
    if 0 < least < _size(call.get("tool_response")):
        return True
    return 0 < row.wake_tokens <= last_window_tokens(_text(call, "transcript_path"))


def _size(value: object) -> int:
    """About how many characters an output has; an image is no text."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_size(each) for name, each in value.items() if name not in ("data", "base64"))
    return sum(map(_size, value)) if isinstance(value, list) else 0


def _text(call: dict[str, Any], name: str) -> str:
    value = call.get(name)
    return value if isinstance(value, str) else ""


def _report_failure(root: str, event: str, problem: str) -> None:
    try:
        log_hook(root or project_root("", os.environ), event, "failed", problem=problem)
    except OSError as error:  # the working folder is gone
        problem = f"{problem}; and this could not be logged: {error}"
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"compactor hook: {problem}\n"[:2_000])
    except (OSError, ValueError):
        return  # nobody reads it
