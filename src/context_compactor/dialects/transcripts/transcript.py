"""A conversation as a file holds it, and how a reader builds one from scattered log lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

from context_compactor.dialects.messages import ReportedUsage

RawMessage = dict[str, Any]


class PastCompaction(Struct, frozen=True):
    """A compaction the agent did itself. `at` is the index of the first message after it."""

    at: int
    trigger: str = ""
    pre_tokens: int | None = None
    summary: str = ""


class Transcript(Struct, frozen=True, kw_only=True):
    """One conversation and what its file says about it.

    `messages` is the whole conversation on its active branch, across past compactions and without their summaries.
    `usages` is by the index of the last message of the reply, `times` by the index of each message whose line has one:
    when it was written, in UTC. `errors` are what the provider answered instead of a reply, `notes` says what was left
    out. `extra` holds the fields of a recorded conversation that have no place of their own.
    """

    messages: list[RawMessage]
    dialect: str
    source: str
    session_id: str = ""
    model: str = ""
    window: int | None = None
    system: Any = None
    tools: list[Any] | None = None
    cwd: str = ""
    usages: dict[int, ReportedUsage] = field(default_factory=dict)
    times: dict[int, str] = field(default_factory=dict)
    compactions: list[PastCompaction] = field(default_factory=list)
    side_chains: dict[str, list[RawMessage]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


# Seconds up to the year 5138; what is more are milliseconds.
_MOST_SECONDS = 1e11


def utc_time(value: object) -> str:
    """A time as it is stored; empty when it is none. Numbers are seconds or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            at = datetime.fromtimestamp(value if value < _MOST_SECONDS else value / 1000, UTC)
        else:
            return ""
        return at.astimezone(UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""


def count_note(count: int, one: str, many: str, rest: str) -> list[str]:
    """`3 side chains kept apart`, or nothing when there were none."""
    return [f"{count:,} {one if count == 1 else many} {rest}"] if count else []


Block = dict[str, Any]
Content = str | list[Any]


class LoggedReply:
    """One reply of the model, and the results of its calls."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.results: list[Block] = []
        self.usage: ReportedUsage | None = None
        self.at = ""
        self.answered_at = ""


class LoggedUserMessage(Struct, frozen=True):
    """What a user message holds, and when it was written."""

    content: Content
    at: str = ""


class CompactionBoundary:
    """A compaction the agent did here."""

    def __init__(self, trigger: str = "", pre_tokens: int | None = None) -> None:
        self.trigger = trigger
        self.pre_tokens = pre_tokens
        self.summary = ""


LoggedStep = LoggedReply | CompactionBoundary | LoggedUserMessage


class TranscriptBuilder:
    """Collects lines in the order of a log; `join()` gives the conversation in Anthropic's form.

    `at` is the time of the line that is being read; empty when it has none.
    """

    def __init__(self) -> None:
        self.at = ""
        self._steps: list[LoggedStep] = []
        self._replies: dict[str, LoggedReply] = {}
        self._callers: dict[str, LoggedReply] = {}
        self._answered: set[str] = set()
        self.repeated = 0

    def add_reply(self, key: str, blocks: Sequence[Any], usage: ReportedUsage | None) -> None:
        """Blocks of the reply `key`; the usage logged last is the one that counts all of it."""
        reply = self._replies.get(key)
        if reply is None:
            reply = self._replies[key] = LoggedReply()
            reply.at = self.at
            self._steps.append(reply)
        reply.blocks.extend(block for block in blocks if not is_blank_block(block))
        reply.usage = usage or reply.usage
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self._callers[str(block.get("id"))] = reply

    def add_user(self, content: Content) -> None:
        """What a user message holds. Results go behind their calls, wherever in the log they stand."""
        if isinstance(content, list):
            content = [block for block in content if not self._take_result(block) and not is_blank_block(block)]
        if content and not (isinstance(content, str) and not content.strip()):
            self._steps.append(LoggedUserMessage(content, self.at))

    def add_boundary(self, boundary: CompactionBoundary) -> CompactionBoundary:
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

    def join(self) -> BuiltMessages:
        """The conversation these steps are."""
        joined = BuiltMessages()
        joined.add(self._steps)
        return joined


class BuiltMessages:
    """Messages, the usage and the time by message index, and the compactions."""

    def __init__(self) -> None:
        self.messages: list[RawMessage] = []
        self.usages: dict[int, ReportedUsage] = {}
        self.times: dict[int, str] = {}
        self.compactions: list[PastCompaction] = []
        self._waiting: list[LoggedUserMessage] = []

    def add(self, steps: Sequence[LoggedStep]) -> None:
        """All steps of a conversation, in order."""
        for step in steps:
            if isinstance(step, LoggedReply):
                self._reply(step)
            elif isinstance(step, CompactionBoundary):
                self._say()
                past = PastCompaction(len(self.messages), step.trigger, step.pre_tokens, step.summary)
                self.compactions.append(past)
            else:
                self._waiting.append(step)
        self._say()

    def _reply(self, reply: LoggedReply) -> None:
        if reply.blocks:
            self._say()
            if reply.usage:
                self.usages[len(self.messages)] = reply.usage
            if reply.at:
                self.times[len(self.messages)] = reply.at
            self.messages.append({"role": "assistant", "content": reply.blocks})
        if reply.results:
            self._waiting.append(LoggedUserMessage(reply.results, reply.answered_at))

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


def is_blank_block(block: object) -> bool:
    """A text of nothing but white space, which providers refuse."""
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    text = block.get("text")
    return isinstance(text, str) and not text.strip()
