"""What a summary will take before anything is sent: how many calls, how much is shown, how much is written.

It is reckoned by the same chunks that would be sent, and as if every first answer could be used and were as long as it
may be. A model that has to be asked again costs more, one that is brief costs less.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from msgspec import Struct, structs

from context_compactor.llm.model import ModelUsage
from context_compactor.llm.prices import cost
from context_compactor.price import Price
from context_compactor.prompts.prompt import Prompt
from context_compactor.protocols import Model
from context_compactor.report import Expected
from context_compactor.summarize.ask import Assignment, Material, build_request, request_tokens, room_for_text
from context_compactor.summarize.quoting import tell_turns
from context_compactor.summarize.spans import Count, cut_chunks
from context_compactor.summarize.subject import Limits, Subject, language_for

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


def as_copy(model: Model, subject: Subject, count: Count, limits: Limits, prompt: Prompt) -> Effort:
    """When the turns are shown as a copy; nothing when that cannot be done at all."""
    limits = limits.within(model)
    assignment, before = Assignment(prompt, language_for(subject), limits.tokens, subject.focus), subject.before(count)
    room = chunk_room(assignment, model, count, before, limits)
    chunks = cut_chunks(tell_turns(subject.turns), room, count) if room >= LEAST_ROOM else []
    if not chunks or expected_calls(len(chunks), limits, room) > limits.calls:
        return Effort()
    frame = request_tokens(build_request(assignment, before, model), count)
    shown = sum(chunk.tokens for chunk in chunks)
    parts = Effort(len(chunks), shown + frame * len(chunks), 0, limits.tokens * len(chunks))
    return parts.plus(_merges(len(chunks), frame, limits, room))


def chunk_room(assignment: Assignment, model: Model, count: Count, before: Material, limits: Limits) -> int:
    """How many tokens of turns one request takes: what the window leaves, or less where the settings say so."""
    room = room_for_text(assignment, model, count, before)
    return min(room, limits.chunk_tokens) if limits.chunk_tokens else room


def with_prefix(model: Model, subject: Subject, count: Count, limits: Limits, prompt: Prompt, prefix: int) -> Effort:
    """When the instruction is sent behind the conversation's own messages of `prefix` tokens."""
    assignment = Assignment(prompt, language_for(subject), limits.tokens, subject.focus)
    material = structs.replace(subject.before(count), prefix=({},))
    return Effort(1, prefix + request_tokens(build_request(assignment, material, model), count), prefix, limits.tokens)


def expected_calls(chunks: int, limits: Limits, room: int) -> int:
    """How many calls it takes to tell so many chunks and to merge what came of them."""
    return chunks + _merges(chunks, 0, limits, room).calls


def _merges(parts: int, frame: int, limits: Limits, room: int) -> Effort:
    """A few parts at a time are made one, until one is left."""
    taken = Effort()
    each = limits.tokens + _PART_HEADING_TOKENS
    while parts > 1:
        groups = ceil(parts / max(room // each, 2))
        taken = taken.plus(Effort(groups, parts * each + groups * frame, 0, groups * limits.tokens))
        parts = groups
    return taken
