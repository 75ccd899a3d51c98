"""What a summary will take before anything is sent: how many calls, how much is shown, how much is written.

It is reckoned by the same chunks that would be sent, and as if every first answer could be used and were as long as it
may be. A model that has to be asked again costs more, one that is brief costs less.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from msgspec import Struct

from context_compactor.llm.model import ModelUsage
from context_compactor.llm.prices import cost
from context_compactor.price import Price
from context_compactor.prompts.prompt import Prompt
from context_compactor.protocols import Model
from context_compactor.report import Expected
from context_compactor.summary.ask import Assignment, build_request, request_tokens, room_for_text
from context_compactor.summary.quoting import tell_turns
from context_compactor.summary.spans import Count, cut_chunks
from context_compactor.summary.subject import Limits, Subject, language_for

# With less room for the conversation than this, a model is not asked.
LEAST_ROOM = 200
_PART_HEADING_TOKENS = 20


class Effort(Struct, frozen=True):
    """So many calls, tokens shown, of these read from the provider's cache, and tokens written."""

    calls: int = 0
    shown: int = 0
    cached: int = 0
    written: int = 0

    def plus(self, other: Effort) -> Effort:
        """Both together."""
        return Effort(
            self.calls + other.calls,
            self.shown + other.shown,
            self.cached + other.cached,
            self.written + other.written,
        )

    def cost(self, model: str, prices: Mapping[str, Price]) -> float | None:
        """US dollars, or None when the price is not known."""
        fresh = ModelUsage(input=self.shown - self.cached, cache_read=self.cached, output=self.written)
        return cost(fresh, model, prices)

    def expected(self, model: str, prices: Mapping[str, Price]) -> Expected:
        """The same as the report has it."""
        return Expected(
            model, self.calls, self.shown, self.written, self.cost(model, prices), with_prefix=self.cached > 0
        )


def in_chunks(model: Model, subject: Subject, count: Count, limits: Limits, prompt: Prompt) -> Effort:
    """When the turns are shown as a copy; nothing when that cannot be done at all."""
    assignment = Assignment(prompt, language_for(subject), limits.tokens, subject.focus)
    room = min(limits.chunk_tokens, room_for_text(assignment, model, count, subject.previous))
    chunks = cut_chunks(tell_turns(subject.turns), room, count) if room >= LEAST_ROOM else []
    if not chunks or expected_calls(len(chunks), subject, limits, room) > limits.calls:
        return Effort()
    frame = request_tokens(build_request(assignment, "", model, previous=subject.previous), count)
    shown = sum(chunk.tokens for chunk in chunks)
    if len(chunks) == 1:
        return Effort(1, shown + frame, 0, limits.tokens)
    each = part_tokens(limits, room)
    parts = Effort(len(chunks), shown + frame * len(chunks), 0, each * len(chunks))
    return parts.plus(_merges(len(chunks) + bool(subject.previous), each, frame, limits, room))


def with_prefix(model: Model, subject: Subject, count: Count, limits: Limits, prompt: Prompt, prefix: int) -> Effort:
    """When the instruction is sent behind the conversation's own messages of `prefix` tokens."""
    assignment = Assignment(prompt, language_for(subject), limits.tokens, subject.focus)
    request = build_request(assignment, "", model, previous=subject.previous, prefix=({},))
    return Effort(1, prefix + request_tokens(request, count), prefix, limits.tokens)


def part_tokens(limits: Limits, room: int) -> int:
    """How long the summary of one of several chunks may be."""
    return max(limits.tokens // 2, room // 10)


def expected_calls(chunks: int, subject: Subject, limits: Limits, room: int) -> int:
    """How many calls it takes to summarize so many chunks and to merge what came of them."""
    if chunks == 1:
        return 1
    merges = _merges(chunks + bool(subject.previous), part_tokens(limits, room), 0, limits, room)
    return chunks + merges.calls


def _merges(parts: int, each: int, frame: int, limits: Limits, room: int) -> Effort:
    """A few parts at a time are made one, until one is left."""
    taken = Effort()
    while parts > 1:
        groups = ceil(parts / max(room // (each + _PART_HEADING_TOKENS), 2))
        shown = parts * (each + _PART_HEADING_TOKENS) + groups * frame
        taken = taken.plus(Effort(groups, shown, 0, groups * limits.tokens))
        parts, each = groups, limits.tokens
    return taken
