"""Which rows of a Claude Code log belong to the compaction they follow, and were said by nobody.

Behind its boundary stands what the compaction left: a summary by the client or a digest by a plugin, which comes as a
plain row of the user, and rows that were kept, which may be logged again under new ids.
"""

from __future__ import annotations

from typing import Any

from context_compactor.messages.client_text import end_of_client_blocks
from context_compactor.messages.jsontext import json_text
from context_compactor.messages.logs.branch import Line, is_typed, reply_id
from context_compactor.messages.logs.steps import as_blocks, is_blank

_COMMAND_TAGS = ("<command-", "<local-command-", "<bash-")
_INTERRUPTED = "[Request interrupted"
_COMPACT_COMMAND = "<command-name>/compact</command-name>"


class AfterCompaction:
    """Follows the rows of one branch. What belongs to a compaction ends where somebody says something new."""

    def __init__(self) -> None:
        self.is_open = False
        self.has_summary = False
        self._marks_prompts = False
        self._boundary: Line = {}
        self._fresh: list[Line] = []
        self._prompts: dict[str, set[str]] = {}
        self._blocks: set[str] = set()
        self._calls: set[str] = set()
        self._replies: set[str] = set()
        self._usages: set[str] = set()

    def begin(self, boundary: Line) -> None:
        """A compaction: what was said before it can now be repeated."""
        for line in self._fresh:
            self._remember(line)
        self._fresh = []
        self._boundary = boundary
        self.is_open, self.has_summary = True, False

    def add(self, line: Line) -> None:
        """A row that somebody said."""
        self._fresh.append(line)
        self._marks_prompts = self._marks_prompts or is_typed(line)
        self.is_open = self.is_open and not self._ends_with(line)

    def _ends_with(self, line: Line) -> bool:
        text = _text_of(line)
        if line.get("type") != "assistant" and not is_typed(line):
            is_other_command = text.lstrip().startswith("<command-") and _COMPACT_COMMAND not in text
            return is_other_command or bool(text and not _is_markup(text))
        return True

    def is_digest(self, line: Line) -> bool:
        """Whether a row in the user's name was written by whoever compacted.

        Where prompts are not marked as such, only the client's own summary tells that what follows it was typed.
        """
        text = _text_of(line)
        is_told = bool(text.strip()) and not _is_markup(text) and not is_typed(line)
        return self.is_open and is_told and (self._marks_prompts or not self.has_summary)

    def is_repeated(self, line: Line) -> bool:
        """Whether a row was there before the compaction, under another id."""
        if line.get("type") == "assistant":
            return self.is_open and self._is_repeated_reply(line)
        known = self._prompts.get(_key(line)) if self._prompts and _text_of(line).strip() else None
        prompt = line.get("promptId")
        if known and isinstance(prompt, str):
            return prompt in known
        return self.is_open and known is not None and not self._is_later(line)

    def _is_repeated_reply(self, line: Line) -> bool:
        blocks = _blocks_of(line)
        calls = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
        if calls and calls <= self._calls:
            return True
        if not blocks or not all(json_text(block) in self._blocks for block in blocks):
            return False
        usage = line["message"].get("usage")
        is_known = reply_id(line) in self._replies or not usage or json_text(usage) in self._usages
        return is_known and not (reply_id(line) not in self._replies and self._is_later(line))

    def _is_later(self, line: Line) -> bool:
        """Whether a row that says the same was said anew: the client logs nothing again behind its own summary."""
        at, boundary = line.get("timestamp"), self._boundary.get("timestamp")
        return self.has_summary and isinstance(at, str) and isinstance(boundary, str) and at > boundary

    def _remember(self, line: Line) -> None:
        if line.get("type") != "assistant":
            prompts = self._prompts.setdefault(_key(line), set())
            prompts.update(prompt for prompt in (line.get("promptId"),) if isinstance(prompt, str))
            return
        for block in _blocks_of(line):
            self._blocks.add(json_text(block))
            if block.get("type") == "tool_use":
                self._calls.add(str(block.get("id")))
        if line["message"].get("usage"):
            self._usages.add(json_text(line["message"]["usage"]))
        self._replies.add(reply_id(line) or "")


def _is_markup(text: str) -> bool:
    """Whether a text is what a client writes about its own commands and events; it is known as such wherever it is."""
    is_command = text.lstrip().startswith((*_COMMAND_TAGS, _INTERRUPTED))
    return is_command or end_of_client_blocks(text) == len(text)


def _content_of(line: Line) -> object:
    holder = line.get("attachment") if line.get("type") == "attachment" else line.get("message")
    field = "prompt" if line.get("type") == "attachment" else "content"
    return holder.get(field) if isinstance(holder, dict) else None


def _blocks_of(line: Line) -> list[dict[str, Any]]:
    blocks = as_blocks(_content_of(line))
    return [block for block in blocks if isinstance(block, dict) and not is_blank(block)]


def _text_of(line: Line) -> str:
    """The words of a row; none when it answers calls."""
    blocks = _blocks_of(line)
    if any(block.get("type") == "tool_result" for block in blocks):
        return ""
    return "\n".join(block["text"] for block in blocks if isinstance(block.get("text"), str))


def _key(line: Line) -> str:
    return json_text(_blocks_of(line))
