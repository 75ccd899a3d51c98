"""Putting messages back together that a log scattered over many lines.

A log line holds one block of a reply, or one tool result. A provider wants each reply whole, and the results of all
its calls in the one message behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from context_compactor.messages.transcript import PastCompaction, RawMessage
from context_compactor.messages.usage import ReportedUsage

Block = dict[str, Any]
Content = str | list[Any]


class Reply:
    """One reply of the model, and the results of its calls."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.results: list[Block] = []
        self.usage: ReportedUsage | None = None
        self.at = ""
        self.answered_at = ""


class Said(Struct, frozen=True):
    """What a user message holds, and when it was written."""

    content: Content
    at: str = ""


class Boundary:
    """A compaction the agent did here."""

    def __init__(self, trigger: str = "", pre_tokens: int | None = None) -> None:
        self.trigger = trigger
        self.pre_tokens = pre_tokens
        self.summary = ""


Step = Reply | Boundary | Said


class Steps:
    """Collects lines in the order of a log; `join()` gives the conversation in Anthropic's form.

    `at` is the time of the line that is being read; empty when it has none.
    """

    def __init__(self) -> None:
        self.at = ""
        self._steps: list[Step] = []
        self._replies: dict[str, Reply] = {}
        self._callers: dict[str, Reply] = {}
        self._answered: set[str] = set()
        self.repeated = 0

    def add_reply(self, key: str, blocks: Sequence[Any], usage: ReportedUsage | None) -> None:
        """Blocks of the reply `key`; the usage logged last is the one that counts all of it."""
        reply = self._replies.get(key)
        if reply is None:
            reply = self._replies[key] = Reply()
            reply.at = self.at
            self._steps.append(reply)
        reply.blocks.extend(block for block in blocks if not is_blank(block))
        reply.usage = usage or reply.usage
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self._callers[str(block.get("id"))] = reply

    def add_user(self, content: Content) -> None:
        """What a user message holds. Results go behind their calls, wherever in the log they stand."""
        if isinstance(content, list):
            content = [block for block in content if not self._take_result(block) and not is_blank(block)]
        if content and not (isinstance(content, str) and not content.strip()):
            self._steps.append(Said(content, self.at))

    def add_boundary(self, boundary: Boundary) -> Boundary:
        """A compaction at this place."""
        self._steps.append(boundary)
        return boundary

    def _take_result(self, block: object) -> bool:
        if not isinstance(block, dict) or block.get("type") != "tool_result":
            return False
        call = str(block.get("tool_use_id"))
        caller = self._callers.get(call)
        if caller is None:
            return False
        if call in self._answered:
            self.repeated += 1
        else:
            caller.results.append(block)
            caller.answered_at = self.at or caller.answered_at
            self._answered.add(call)
        return True

    def join(self) -> Joined:
        """The conversation these steps are."""
        joined = Joined()
        joined.add(self._steps)
        return joined


class Joined:
    """Messages, the usage and the time by message index, and the compactions."""

    def __init__(self) -> None:
        self.messages: list[RawMessage] = []
        self.usages: dict[int, ReportedUsage] = {}
        self.times: dict[int, str] = {}
        self.compactions: list[PastCompaction] = []
        self._waiting: list[Said] = []

    def add(self, steps: Sequence[Step]) -> None:
        """All steps of a conversation, in order."""
        for step in steps:
            if isinstance(step, Reply):
                self._reply(step)
            elif isinstance(step, Boundary):
                self._say()
                past = PastCompaction(len(self.messages), step.trigger, step.pre_tokens, step.summary)
                self.compactions.append(past)
            else:
                self._waiting.append(step)
        self._say()

    def _reply(self, reply: Reply) -> None:
        if reply.blocks:
            self._say()
            if reply.usage:
                self.usages[len(self.messages)] = reply.usage
            if reply.at:
                self.times[len(self.messages)] = reply.at
            self.messages.append({"role": "assistant", "content": reply.blocks})
        if reply.results:
            self._waiting.append(Said(reply.results, reply.answered_at))

    def _say(self) -> None:
        """User texts between two replies are one message, as the provider counts them."""
        if self._waiting:
            alone = self._waiting[0].content if len(self._waiting) == 1 else None
            content = alone or [block for said in self._waiting for block in as_blocks(said.content)]
            at = max(said.at for said in self._waiting)
            if at:
                self.times[len(self.messages)] = at
            self.messages.append({"role": "user", "content": content})
            self._waiting = []


def as_blocks(content: object) -> list[Any]:
    """A message's content as a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def is_blank(block: object) -> bool:
    """A text of nothing but white space, which providers refuse."""
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    text = block.get("text")
    return isinstance(text, str) and not text.strip()
