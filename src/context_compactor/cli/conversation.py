"""A transcript on the command line: what it is, what it weighs, and what to ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from context_compactor.app import Compaction, run
from context_compactor.ask import Ask
from context_compactor.figures import read_goal
from context_compactor.levels import Level
from context_compactor.measure.count import MessageCounter
from context_compactor.measure.tokens import counter_for
from context_compactor.measure.windows import Window, window_for
from context_compactor.messages.detect import find_dialect
from context_compactor.messages.message import Message
from context_compactor.messages.transcripts import Transcript, read_transcript
from context_compactor.settings import Settings, load_settings

if TYPE_CHECKING:
    from context_compactor.story import Teller


class Conversation(Struct, frozen=True):
    """A transcript with the settings that hold for it."""

    transcript: Transcript
    settings: Settings
    window: Window
    messages: list[Message]
    counter: MessageCounter

    @property
    def tokens(self) -> int:
        """What a request with these messages weighs, as we count it."""
        return self.counter.request_tokens(self.messages) + self.settings.overhead_tokens

    @property
    def unseen(self) -> int:
        """What the provider counted at the last reply on top of our count; 0 when that is not known."""
        usages = self.transcript.usages
        if not usages or self.transcript.compactions:  # after a compaction the reply saw less than the file holds
            return 0
        last = max(usages)
        counted = self.counter.request_tokens(self.messages[: last + 1]) + self.settings.overhead_tokens
        return max(0, usages[last].total - counted)

    def with_unseen(self) -> Settings:
        """The settings with room for what the provider counted on top of these messages."""
        overhead = self.settings.overhead_tokens + self.unseen
        return msgspec.structs.replace(self.settings, overhead_tokens=overhead)

    def compacted(
        self,
        target: str | None = None,
        level: Level | None = None,
        focus: str | None = None,
        teller: Teller | None = None,
        *,
        dry_run: bool = False,
    ) -> Compaction:
        """The conversation brought down as asked; nothing is written anywhere. A dry run asks no model."""
        transcript, goal = self.transcript, read_goal(target)
        tokens = goal.of(self.tokens) if goal.percent else goal.tokens
        settings = self.settings if tokens is not None else self.with_unseen()
        ask = Ask(self.window.tokens, tokens, level, focus or "", settings, transcript.model)
        return run(
            transcript.messages,
            ask,
            dialect=transcript.dialect,
            session_id=transcript.session_id,
            teller=teller,
            dry_run=dry_run,
        )


def open_conversation(
    file: str, window: str | None, model: str | None = None, layout: str | None = None
) -> Conversation:
    """Read a transcript, with the settings of this place and this command."""
    wanted = {"window": window, "model": model, "layout": layout}
    return conversation_of(read_transcript(file), load_settings(wanted).settings)


def conversation_of(transcript: Transcript, settings: Settings) -> Conversation:
    """Settle a transcript's window, its counter and what stands in front of its messages."""
    seen = max((usage.prompt for usage in transcript.usages.values()), default=0)
    found = window_for(transcript.model, settings.window, transcript.window, transcript.source, seen)
    counter = MessageCounter(counter_for(transcript.model), transcript.dialect)
    messages = find_dialect(transcript.dialect, transcript.messages).parse(transcript.messages)
    overhead = settings.overhead_tokens + _in_front(transcript, counter)
    settings = msgspec.structs.replace(settings, window=found.tokens, overhead_tokens=overhead)
    return Conversation(transcript, settings, found, messages, counter)


def _in_front(transcript: Transcript, counter: MessageCounter) -> int:
    """Tokens of a system prompt and tool definitions that the file keeps apart from its messages."""
    system = transcript.system
    text = system if isinstance(system, str) else "".join(_texts(system))
    return counter.count_tools(transcript.tools) + (counter.text(text) if text else 0)


def _texts(system: Any) -> list[str]:
    blocks = system if isinstance(system, list) else []
    return [str(block.get("text", "")) for block in blocks if isinstance(block, dict)]
