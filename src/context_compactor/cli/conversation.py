"""A transcript on the command line: what it is, how full it is, and what to ask of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import Message
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.dialects.turns import Turn
from context_compactor.engine.compact import run_request
from context_compactor.engine.request import ArchiveScope, CompactionRequest, can_recall
from context_compactor.engine.result import Compaction
from context_compactor.errors import BadSetting
from context_compactor.settings import Level, Settings, load_settings
from context_compactor.text import parse_target
from context_compactor.tokens.budget import Anchor, Budget, Usage, budget_for, measure
from context_compactor.tokens.counting import FixedTokens, MessageCounter, PromptSize, counter_for, read_tools
from context_compactor.tokens.models import Window, request_bytes_for, window_for
from context_compactor.tokens.overflow import learned_limit

if TYPE_CHECKING:
    from context_compactor.summarize.summarizer import ModelSummarizer


class TranscriptInput(Struct, frozen=True):
    """A transcript with the settings that hold for it."""

    transcript: Transcript
    settings: Settings
    window: Window
    messages: list[Message]
    counter: MessageCounter
    prompt: PromptSize
    """Of the tools and the system prompt."""

    @property
    def fixed(self) -> FixedTokens:
        """What is sent with every request beside the messages."""
        return self.counter.fixed_tokens(self.prompt, other=self.settings.overhead_tokens)

    @property
    def tokens(self) -> int:
        """What a request with these messages weighs, as we count it."""
        return self.counter.request_tokens(self.messages) + self.fixed.total

    @property
    def unseen(self) -> int:
        """What the provider counted at the last reply on top of our count; 0 when that is not known."""
        usages = self.transcript.usages
        if not usages or self.transcript.compactions:  # after a compaction the reply saw less than the file holds
            return 0
        last = max(usages)
        counted = self.counter.request_tokens(self.messages[: last + 1]) + self.fixed.total
        return max(0, usages[last].total - counted)

    def with_unseen(self) -> Settings:
        """The settings with room for what the provider counted on top of these messages."""
        overhead = self.settings.overhead_tokens + self.unseen
        return structs.replace(self.settings, overhead_tokens=overhead)

    def compacted(
        self,
        target: str | None = None,
        level: Level | None = None,
        focus: str | None = None,
        summarizer: ModelSummarizer | None = None,
        *,
        dry_run: bool = False,
    ) -> Compaction:
        """The conversation brought down as asked; nothing is written anywhere. A dry run asks no model."""
        transcript, goal = self.transcript, parse_target(target)
        tokens = goal.of(self.tokens) if goal.percent else goal.tokens
        settings = self.settings if tokens is not None else self.with_unseen()
        ask = CompactionRequest(
            self.window.tokens,
            tokens,
            level,
            focus or "",
            settings,
            transcript.model,
            self.prompt,
            can_recall=can_recall(settings, transcript.tools),
        )
        return run_request(
            transcript.messages,
            ask,
            dialect=transcript.dialect,
            archive=ArchiveScope(transcript.session_id),
            summarizer=summarizer,
            dry_run=dry_run,
        )


def open_conversation(
    file: str,
    window: str | None,
    model: str | None = None,
    summarizer: str | None = None,
    layout: str | None = None,
    dialect: str | None = None,
    *,
    tools: str | None = None,
    system: str | None = None,
) -> TranscriptInput:
    """Read a transcript, with the settings of this place and this command.

    `tools` and `system` name files; without, they are those that the transcript has beside its messages.
    """
    wanted = {"window": window, "model": model, "summarizer": summarizer, "layout": layout}
    settings = load_settings(wanted).settings
    transcript = read_transcript(file, dialect=dialect or "auto")
    if tools is not None:
        transcript = structs.replace(transcript, tools=read_tools(_json_in("--tools", tools)))
    if system is not None:
        transcript = structs.replace(transcript, system=_system_in(system))
    named = model or transcript.model or settings.model or ""
    return conversation_of(structs.replace(transcript, model=named), settings)


def conversation_of(transcript: Transcript, settings: Settings) -> TranscriptInput:
    """Settle a transcript's window, its counter and what stands in front of its messages."""
    seen = max((usage.prompt for usage in transcript.usages.values()), default=0)
    model, reported, source = transcript.model, transcript.window, transcript.source
    limit = learned_limit(transcript.errors)
    found = window_for(model, settings.window, reported, source, seen, settings.models, limit)
    counter = MessageCounter(counter_for(transcript.model), transcript.dialect)
    messages = find_dialect(transcript.dialect, transcript.messages).parse(transcript.messages)
    prompt = counter.prompt_size(transcript.tools, transcript.system)
    return TranscriptInput(transcript, structs.replace(settings, window=found.tokens), found, messages, counter, prompt)


def _json_in(option: str, file: str) -> Any:
    try:
        return json.loads(_bytes_in(option, file))
    except (ValueError, RecursionError) as problem:
        raise BadSetting(f"{option}: {file!r:.200} is not JSON ({problem}). Try: a JSON list of tools.") from problem


def _system_in(file: str) -> Any:
    """A system prompt from a file: blocks as JSON, or any other text as it is."""
    if file.endswith(".json"):
        return _json_in("--system", file)
    try:
        return _bytes_in("--system", file).decode()
    except UnicodeDecodeError as problem:
        raise BadSetting(f"--system: {file!r:.200} is not text ({problem}). Try: a text file in UTF-8.") from problem


def _bytes_in(option: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except FileNotFoundError:
        raise BadSetting(f"{option}: there is no file {file!r:.200}. Try: check the path.") from None
    except (OSError, ValueError) as problem:
        raise BadSetting(f"{option}: {file!r:.200} cannot be read ({problem}). Try: another file.") from None


def budget_of(conversation: TranscriptInput) -> Budget:
    """What the context may use: the window, less the answer, less the counter's margin."""
    settings, transcript = conversation.settings, conversation.transcript
    size = request_bytes_for(transcript.model, transcript.dialect, settings.max_request_bytes)
    reserve = settings.output_reserve(conversation.window.tokens)
    return budget_for(conversation.window, reserve, conversation.counter.margin, size)


def measure_conversation(conversation: TranscriptInput, turns: list[Turn], budget: Budget) -> Usage:
    """Usage by section, anchored on what the provider reported last where the file holds it."""
    from context_compactor.facts.file_history import file_history

    return measure(
        turns,
        budget,
        conversation.counter,
        fixed=conversation.fixed,
        anchor=_anchor(conversation.transcript),
        files_loaded=file_history(turns).loaded,
        levels=conversation.settings.levels,
    )


def _anchor(transcript: Transcript) -> Anchor | None:
    if not transcript.usages or transcript.compactions:  # after a compaction the reply saw less than the file holds
        return None
    last = max(transcript.usages)
    return Anchor(last + 1, transcript.usages[last].total)
