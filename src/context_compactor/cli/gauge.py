"""How full a conversation is, as far as its file can tell."""

from __future__ import annotations

from context_compactor.cli.conversation import Conversation
from context_compactor.measure.budget import Budget, budget_for
from context_compactor.measure.usage import Anchor, Usage, measure
from context_compactor.measure.windows import request_bytes_for
from context_compactor.messages.transcripts import Transcript
from context_compactor.messages.turn import Turn


def budget_of(conversation: Conversation) -> Budget:
    """What the context may use: the window, less the answer, less the counter's margin."""
    settings, transcript = conversation.settings, conversation.transcript
    size = request_bytes_for(transcript.model, transcript.dialect, settings.max_request_bytes)
    reserve = settings.output_reserve(conversation.window.tokens)
    return budget_for(conversation.window, reserve, conversation.counter.margin, size)


def measure_conversation(conversation: Conversation, turns: list[Turn], budget: Budget) -> Usage:
    """Usage by section, anchored on what the provider reported last where the file holds it."""
    from context_compactor.classify.lifecycle import file_life

    return measure(
        turns,
        budget,
        conversation.counter,
        fixed_tokens=conversation.settings.overhead_tokens,
        anchor=_anchor(conversation.transcript),
        files_loaded=file_life(turns).loaded,
        levels=conversation.settings.levels,
    )


def _anchor(transcript: Transcript) -> Anchor | None:
    if not transcript.usages or transcript.compactions:  # after a compaction the reply saw less than the file holds
        return None
    last = max(transcript.usages)
    return Anchor(last + 1, transcript.usages[last].total)
