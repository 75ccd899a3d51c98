"""What client programs put into messages in the user's name: reminders, command echoes, hook output, summaries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

CLIENT_COMMANDS = frozenset(
    "add-dir agents bug clear compact config context cost doctor effort exit export fast feedback help hooks ide init "
    "keybindings login logout mcp memory model output-style permissions plan plugin privacy-settings quit reload "
    "release-notes rename resume rewind sandbox session-start settings skills stats status statusline tasks "
    "terminal-setup theme todos upgrade usage vim".split()
)
"""Slash commands that speak to the client alone, and ask for no work."""

_TAGS = re.compile(
    r"<(system-reminder|local-command-caveat|command-name|command-message|local-command-stdout|local-command-stderr"
    r"|bash-input|bash-stdout|bash-stderr|environment_context|environment_details|user_instructions|INSTRUCTIONS"
    r"|turn_aborted|skill|task-notification|subagent_notification|collaboration_mode|ide_selection|ide_opened_file"
    r"|user-prompt-submit-hook|session-start-hook|persisted-output|function_results|user_shell_command)>"
)
_OPENINGS = (
    "# AGENTS.md instructions",
    "[Context record.",
    "[Learned in earlier sessions.",
    "[Original of ",
    "[The summary that ",
    "[Conversation Summary]",
    "Base directory for this skill:",
    "This session is being continued from",
    "Caveat: The messages below",
    "Another language model started to solve this problem",
    "Stop hook feedback:",
    "Your task is to create a detailed summary",
    "Operation stopped by hook",
    "No response requested",
    "Continue from where you left off",
    "Continue if you have next steps, or stop and ask for clarification",
    "Please continue the conversation from where we left it off",
    "OBSERVATION:",
    "Observation:",
    "EXECUTION RESULT of [",
    "<returncode>",
    "<tool_response>",
    "<tool_result",
    "<tool_use_error>",
    "<observation>",
    "[ERROR] You did not use a tool",
    "[The user's message was ",
    "Your last output was not formatted",
    "Your last response did not",
    "No tool calls found in the response",
    "Please always provide EXACTLY ONE action",
    "Please continue working on the task",
    "Please proceed to the next step using your best judgement",
    "Tool call error",
    "Error: Tool ",
)
# What a client writes behind the user's words: a pointer to the transcript, the mark by which a simulated user ends.
_ENDINGS = re.compile(
    r"\s*(?:If you need specific details from before exiting plan mode\b[^\n]*|#{3}[A-Z_]{3,20}#{3})\s*\Z"
)
# A skill or command that was expanded ends with what the user typed after its name.
_EXPANDED = re.compile(r"\n\s*ARGUMENTS:[ \t]*([^\n]*(?:\n(?!\n)[^\n]+){0,5})\s*\Z")
_LONGEST_INDENT = 60


def is_client_text(text: str) -> bool:
    """Whether a whole text begins as only what a client writes does."""
    return text.lstrip()[:_LONGEST_INDENT].startswith(_OPENINGS)


def without_client_ending(text: str) -> str:
    """A text without what a client writes behind it; of an expanded command only what the user typed."""
    if "ARGUMENTS:" in text[-2_000:]:
        expanded = _EXPANDED.search(text)
        text = expanded[1] if expanded and expanded[1].strip() else text
    return _ENDINGS.sub("", text) if "###" in text[-60:] or "exiting plan mode" in text[-2_000:] else text


def without_client_blocks(text: str) -> str:
    """A text without the tagged blocks that a client added; each leaves a line break."""
    kept: list[str] = []
    at = 0
    unclosed: set[str] = set()
    for opening in _TAGS.finditer(text):
        tag = opening[1]
        if opening.start() < at or tag in unclosed:
            continue
        end = text.find(f"</{tag}>", opening.end())
        if end < 0:
            unclosed.add(tag)
            continue
        kept.append(text[at : opening.start()])
        at = end + len(tag) + 3
    return "\n".join((*kept, text[at:])) if kept else text


def is_client_block(text: str) -> bool:
    """Whether a text is nothing but tagged blocks of a client; what stands in one may name its own tag."""
    bare = text.strip()
    opening = _TAGS.match(bare)
    is_wrapped = opening is not None and bare.endswith(f"</{opening[1]}>")
    return is_wrapped or end_of_client_blocks(text) == len(text)


def end_of_client_blocks(text: str) -> int:
    """Where the tagged blocks that a text begins with end, and something else begins."""
    at = 0
    while True:
        start = len(text) - len(text[at:].lstrip())
        opening = _TAGS.match(text, start)
        end = text.find(f"</{opening[1]}>", opening.end()) if opening else -1
        if opening is None or end < 0:
            return start
        at = end + len(opening[1]) + 3


NOTICE_TAG = "<task-notification>"


class TaskNotice(Struct, frozen=True):
    """What a client tells of a task in the background: `about` is all but its `report`."""

    about: str
    report: str = ""

    @property
    def task(self) -> str:
        """The id of the task; empty when it has none."""
        found = _TASK_ID.search(self.about)
        return found[1] if found else ""

    @property
    def call(self) -> str:
        """The id of the call that started the task; empty when it has none."""
        found = _CALL_ID.search(self.about)
        return found[1] if found else ""

    @property
    def title(self) -> str:
        """Its summary in one line."""
        found = _SUMMARY.search(self.about)
        return " ".join(found[1].split()) if found else "background task"


_NOTICE = re.compile(r"<task-notification>(.*?)(?:</task-notification>|\Z)", re.DOTALL)
_REPORT = re.compile(r"<(result|output)>(.*?)(?:</\1>\s*(?=<usage>|\Z)|\Z)", re.DOTALL)
_TASK_ID = re.compile(r"<task-id>\s*([^<\s]{1,80})\s*</task-id>")
_CALL_ID = re.compile(r"<tool-use-id>\s*([^<\s]{1,120})\s*</tool-use-id>")
_SUMMARY = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)


def task_notices(text: str) -> Iterator[TaskNotice]:
    """The notices in a text, in order."""
    for notice in _NOTICE.finditer(text) if NOTICE_TAG in text else ():
        report = _REPORT.search(notice[1])
        if report is None:
            yield TaskNotice(notice[1])
        else:
            yield TaskNotice(notice[1][: report.start()] + notice[1][report.end() :], report[2].strip())
