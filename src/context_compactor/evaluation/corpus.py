"""Recorded conversations, and where each is cut into a history and a future."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from context_compactor.evaluation.messages import PER_MESSAGE, RawMessage, count_message, count_text, read_message

AGENT_SOURCES = ("claude_code_entireio", "codex_agentv", "mini_swe_deepseek_chat")
DIALOGUES = "locomo_dev"


class RecordedCompaction(Struct, frozen=True):
    """A compaction that really happened before message `at`."""

    at: int
    summary: str = ""
    trigger: str = ""


class RecordedConversation(Struct, frozen=True):
    """One recorded conversation. `usages` holds what the provider billed, by message index, `times` when each was
    written, in UTC."""

    id: str
    source: str
    project: str
    provider: str
    messages: list[RawMessage]
    events: tuple[RecordedCompaction, ...] = ()
    usages: dict[int, dict[str, int]] = {}
    times: dict[int, str] = {}


def default_corpus() -> Path:
    """The corpus folder beside the repository."""
    return Path(__file__).resolve().parents[4] / "shared" / "corpus" / "dev"


SHORT_HISTORY = 4000
AGENT_TURNS = 40
SHARES = (50, 75)


class HistoryCut(Struct, frozen=True):
    """Where a conversation is cut: H from `start` to `at`, F from `at` to `end`.

    After a compaction that really happened the agent knew the summary (`memory`) and what followed: so does H.
    """

    at: int
    end: int
    label: str
    tokens: int
    summary: str = ""
    start: int = 0
    memory: str = ""

    def history(self, conversation: RecordedConversation) -> list[RawMessage]:
        """The messages the agent knew at the cut."""
        known: list[RawMessage] = [{"role": "user", "content": self.memory}] if self.memory else []
        return known + conversation.messages[self.start : self.at]

    def future(self, conversation: RecordedConversation) -> list[RawMessage]:
        """The agent's next forty turns."""
        return conversation.messages[self.at : self.end]

    @property
    def group(self) -> str:
        """`real` for a compaction that happened, `short` for a history too small to matter, else `main`."""
        if self.summary:
            return "real"
        return "short" if self.tokens < SHORT_HISTORY else "main"


def history_cuts(conversation: RecordedConversation) -> list[HistoryCut]:
    """The cuts of a conversation: at half and three quarters of it, and at each real compaction.

    Where there was a compaction, the shares are of what came before the first one.
    """
    sizes = [count_message(message) for message in conversation.messages]
    whole = list(_answered(conversation.messages))
    return [*_shares(conversation, sizes, whole), *_real(conversation, sizes, whole)]


def _shares(conversation: RecordedConversation, sizes: list[int], whole: list[int]) -> Iterator[HistoryCut]:
    first = conversation.events[0].at if conversation.events else len(conversation.messages)
    safe = [at for at in whole if 0 < at <= first and _is_reply(conversation, at)]
    total, seen = sum(sizes[:first]), set[int]()
    for share in SHARES:
        at = max((at for at in safe if sum(sizes[:at]) <= total * share // 100), default=0)
        if at and at not in seen:
            seen.add(at)
            yield HistoryCut(at, future_end(conversation.messages, at), str(share), sum(sizes[:at]))


def _is_reply(conversation: RecordedConversation, at: int) -> bool:
    return at < len(conversation.messages) and conversation.messages[at].get("role") == "assistant"


def _real(conversation: RecordedConversation, sizes: list[int], whole: list[int]) -> Iterator[HistoryCut]:
    start, memory = 0, ""
    for number, event in enumerate(conversation.events):
        at = max((cut for cut in whole if cut <= event.at), default=0)
        if at > start and event.summary.strip():
            tokens = sum(sizes[start:at]) + (summary_tokens(memory) if memory else 0)
            end = future_end(conversation.messages, at)
            yield HistoryCut(at, end, f"real{number}", tokens, event.summary, start, memory)
        start, memory = at, event.summary


def _answered(messages: list[RawMessage]) -> Iterator[int]:
    """Indexes before which no call waits for a result; a call that never gets one waits for the next message only."""
    pieces = [read_message(message) for message in messages]
    answered = {piece.call_id for group in pieces for piece in group if piece.kind == "result"}
    waiting: set[str] = set()
    for index, group in enumerate(pieces):
        if not waiting:
            yield index
        waiting = (waiting & answered) | {piece.call_id for piece in group if piece.kind == "call"}
        waiting -= {piece.call_id for piece in group if piece.kind == "result"}


def future_end(messages: list[RawMessage], at: int) -> int:
    """The index after the next forty agent turns and their results."""
    replies = [index for index in range(at, len(messages)) if messages[index].get("role") == "assistant"]
    return replies[AGENT_TURNS] if len(replies) > AGENT_TURNS else len(messages)


def summary_tokens(summary: str) -> int:
    """The size of a real summary as one message."""
    return count_text(summary) + PER_MESSAGE
