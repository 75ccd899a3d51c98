"""Short conversations, written as one line per step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from context_compactor.dialects.messages import Media, Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult
from context_compactor.dialects.turns import ToolUse, Turn, split_turns


def user(text: str) -> list[Message]:
    return [Message("user", (Text(text),))]


def agent(text: str) -> list[Message]:
    return [Message("assistant", (Text(text),))]


def system(text: str) -> list[Message]:
    return [Message("system", (Text(text),))]


def call(name: str, answer: str | None = "", is_error: bool = False, say: str = "", **arguments: Any) -> list[Message]:
    """A call with its answer; None for one that has none yet."""
    raw = json.dumps(arguments, ensure_ascii=False)
    parts: tuple[Part, ...] = (*((Text(say),) if say else ()), ToolCall("c", name, raw))
    called = Message("assistant", parts)
    return [called] if answer is None else [called, Message("user", (ToolResult("c", answer, is_error),))]


def bash(command: str, answer: str | None = "", is_error: bool = False) -> list[Message]:
    return call("Bash", answer, is_error, command=command)


def patch(text: str, answer: str = "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess.") -> list[Message]:
    return [Message("assistant", (ToolCall("c", "apply_patch", text),)), Message("tool", (ToolResult("c", answer),))]


def turns_of(*steps: Sequence[Message]) -> list[Turn]:
    return split_turns([message for step in steps for message in step])


def exchange_of(step: Sequence[Message]) -> ToolUse:
    return split_turns(list(step))[0].exchanges[0]


_WORDS = st.sampled_from(
    (
        "Never touch legacy/.", "please use pnpm instead of npm", "no, that's wrong", "yes", "Error: boom", "src/a.py",
        "Traceback (most recent call last):\n  File x\nValueError: y", "Exit code 1\nfatal: no", "不要修改", "必ず",
        "<system-reminder>Always obey</system-reminder>", "[Request interrupted by user]", "git commit", "{", "\x00",
        "\ud800", "```\nmust\n```", "The issue is that the cache is never cleared when a session ends early.", "", "?",
        "Next steps:\n- write tests\n- push", "This session is being continued from", "<command-name>/x</command-name>",
    )
)  # fmt: skip
texts = st.one_of(_WORDS, st.text(max_size=80), st.lists(_WORDS, max_size=4).map("\n".join))
_ARGUMENTS = st.one_of(
    texts,
    st.dictionaries(
        st.sampled_from(
            ("command", "cmd", "file_path", "path", "old_string", "todos", "plan", "taskId", "status", "subject",
             "prompt", "description", "session_id", "offset", "limit", "workdir", "input")
        ),
        st.one_of(texts, st.integers(-5, 500), st.none(), st.lists(st.dictionaries(st.just("content"), texts))),
        max_size=4,
    ).map(json.dumps),
)  # fmt: skip
_NAMES = st.sampled_from(
    ("Bash", "Read", "Edit", "Write", "Task", "TodoWrite", "TaskCreate", "TaskUpdate", "update_plan", "apply_patch",
     "ExitPlanMode", "EnterPlanMode", "AskUserQuestion", "mcp__x__create_issue", "exec_command", "write_stdin", "",
     "Skill", "Grep")
)  # fmt: skip
_IDS = st.sampled_from(("a", "b", "c"))
parts = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts),
    st.builds(ToolCall, _IDS, _NAMES, _ARGUMENTS),
    st.builds(ToolResult, _IDS, texts, st.booleans()),
    st.builds(Media, st.just("image")),
    st.builds(Opaque, st.just("odd"), texts),
)
_ROLES: st.SearchStrategy[Role] = st.sampled_from(("system", "developer", "user", "assistant", "tool"))
messages = st.builds(Message, _ROLES, st.lists(parts, max_size=4).map(tuple))
histories = st.lists(messages, max_size=14).map(split_turns)
