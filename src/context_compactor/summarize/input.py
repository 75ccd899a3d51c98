"""What a summary is about, what it may take, what it should cost, and which way of asking is cheaper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from msgspec import Struct, structs

from context_compactor.archive.redaction import redact
from context_compactor.dialects.detection import dialect_named
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.turns import Turn
from context_compactor.engine.classify import parse_context
from context_compactor.engine.report import Expected, ModelCall
from context_compactor.engine.request import CompactionRun
from context_compactor.engine.result import CompactionResult
from context_compactor.facts.fact import Fact
from context_compactor.facts.utterances import agent_utterances, user_utterances
from context_compactor.protocols import Model
from context_compactor.settings import Level, ModelEntry, Settings
from context_compactor.summarize.evidence import Objection
from context_compactor.summarize.language import language_of
from context_compactor.summarize.merge import summary_tokens
from context_compactor.summarize.prompt import Prompt
from context_compactor.summarize.request import (
    Count,
    Coverage,
    PromptMaterial,
    SummaryAssignment,
    build_request,
    cut_chunks,
    quote_turns,
    quoted,
    request_tokens,
    room_for_text,
)
from context_compactor.summarize.summary import Summary, from_record
from context_compactor.tokens.prices import ModelUsage, call_cost

# Of a system text, and of the exact lines in an earlier record, a model is shown no more than this.
_SYSTEM_TOKENS = 2_000
_EXCERPT_TOKENS = 4_000
# A summary may have so small a part of the model's window, but so many tokens always.
_WINDOW_PARTS = 8
_LEAST_TOKENS = 300


class SummaryLimits(Struct, frozen=True):
    """What one summary may take: its own tokens, those of each request, calls at once and altogether.

    Without `chunk_tokens` the model is shown as much at once as its window takes. `models` are the user's own, over
    those that are known.
    """

    tokens: int = 1_500
    chunk_tokens: int | None = None
    parallel: int = 4
    calls: int = 100
    models: dict[str, ModelEntry] = {}

    def within(self, model: Model) -> SummaryLimits:
        """The same for a model with a small window, most of which is for what it is shown."""
        return structs.replace(self, tokens=min(self.tokens, max(model.window // _WINDOW_PARTS, _LEAST_TOKENS)))


DEFAULT_LIMITS = SummaryLimits()


class SummarySubject(Struct, frozen=True):
    """What a summary is about: the turns, what is known of them, and what stands before them."""

    turns: Sequence[Turn]
    facts: tuple[Fact, ...] = ()
    previous: Summary = Summary()
    system: str = ""
    focus: str = ""
    prefix: tuple[dict[str, Any], ...] = ()
    """The conversation's own messages, when the model has them in its cache: they are sent instead of a copy."""
    beside: dict[str, Any] = {}
    """What the agent sends with them."""

    def before(self, count: Count) -> PromptMaterial:
        """What a model is shown before the turns."""
        system = "\n".join(quoted(self.system))
        tokens = count(system)
        if tokens > _SYSTEM_TOKENS:
            system = system[: len(system) * _SYSTEM_TOKENS // tokens] + "\n[the rest is left out]"
        return PromptMaterial("", system if self.system.strip() else "", _shortened(self.previous, count))


def _shortened(previous: Summary, count: Count) -> Summary:
    """An earlier record with the newest of its exact lines: a model need not see all of many."""
    room, kept = _EXCERPT_TOKENS, []
    for excerpt in reversed(previous.excerpts):
        room -= count("\n".join(excerpt.lines)) + 20
        if room < 0:
            break
        kept.append(excerpt)
    return Summary(previous.sections, previous.happened, tuple(reversed(kept)))


class SummaryOutcome(Struct, frozen=True):
    """A summary that may be used or none, and how it came to it. `failed` names requests not to be sent again."""

    summary: Summary | None
    calls: tuple[ModelCall, ...]
    objections: tuple[Objection, ...]
    corrections: tuple[Objection, ...]
    coverage: Coverage
    failed: frozenset[str] = frozenset()


def language_for(subject: SummarySubject) -> str:
    """The language of the user's own words; of the agent's when the user has said too little; nothing when unknown."""
    user = "\n".join(utterance.text for utterance in user_utterances(subject.turns))
    agent = "\n".join(utterance.text for utterance in agent_utterances(subject.turns))
    return language_of(user) or language_of(subject.previous.text) or language_of(agent)


# With less room for the conversation than this, a model is not asked.
MIN_ROOM = 200
_PART_HEADING_TOKENS = 20


class CallEstimate(Struct, frozen=True):
    """So many calls, tokens shown, of these read from the provider's cache, and tokens written."""

    calls: int = 0
    shown: int = 0
    cached: int = 0
    written: int = 0

    def plus(self, other: CallEstimate) -> CallEstimate:
        """Both together."""
        return CallEstimate(*map(sum, zip(structs.astuple(self), structs.astuple(other), strict=True)))

    def cost(self, model: str, entries: Mapping[str, ModelEntry]) -> float | None:
        """US dollars, or None when the price is not known."""
        fresh = ModelUsage(input=self.shown - self.cached, cache_read=self.cached, output=self.written)
        return call_cost(fresh, model, entries)

    def expected(self, model: str, entries: Mapping[str, ModelEntry]) -> Expected:
        """The same as the report has it."""
        return Expected(
            model, self.calls, self.shown, self.written, self.cost(model, entries), with_prefix=self.cached > 0
        )


def estimate_copy(
    model: Model, subject: SummarySubject, count: Count, limits: SummaryLimits, prompt: Prompt
) -> CallEstimate:
    """When the turns are shown as a copy; nothing when that cannot be done at all."""
    limits, before = limits.within(model), subject.before(count)
    assignment = SummaryAssignment(prompt, language_for(subject), limits.tokens, subject.focus)
    room = chunk_room(assignment, model, count, before, limits)
    chunks = cut_chunks(quote_turns(subject.turns), room, count) if room >= MIN_ROOM else []
    if not chunks or expected_calls(len(chunks), limits, room) > limits.calls:
        return CallEstimate()
    frame = request_tokens(build_request(assignment, before, model), count)
    shown = sum(chunk.tokens for chunk in chunks)
    parts = CallEstimate(len(chunks), shown + frame * len(chunks), 0, limits.tokens * len(chunks))
    return parts.plus(_merges(len(chunks), frame, limits, room))


def chunk_room(
    assignment: SummaryAssignment, model: Model, count: Count, before: PromptMaterial, limits: SummaryLimits
) -> int:
    """How many tokens of turns one request takes: what the window leaves, or less where the settings say so."""
    room = room_for_text(assignment, model, count, before)
    return min(room, limits.chunk_tokens) if limits.chunk_tokens else room


def estimate_prefix(
    model: Model, subject: SummarySubject, count: Count, limits: SummaryLimits, prompt: Prompt, prefix: int
) -> CallEstimate:
    """When the instruction is sent behind the conversation's own messages of `prefix` tokens."""
    assignment = SummaryAssignment(prompt, language_for(subject), limits.tokens, subject.focus)
    material = structs.replace(subject.before(count), prefix=({},))
    return CallEstimate(
        1, prefix + request_tokens(build_request(assignment, material, model), count), prefix, limits.tokens
    )


def expected_calls(chunks: int, limits: SummaryLimits, room: int) -> int:
    """How many calls it takes to summarize so many chunks and to merge the summaries."""
    return chunks + _merges(chunks, 0, limits, room).calls


def _merges(parts: int, frame: int, limits: SummaryLimits, room: int) -> CallEstimate:
    """A few parts at a time are made one, until one is left."""
    taken = CallEstimate()
    each = limits.tokens + _PART_HEADING_TOKENS
    while parts > 1:
        groups = ceil(parts / max(room // each, 2))
        taken = taken.plus(CallEstimate(groups, parts * each + groups * frame, 0, groups * limits.tokens))
        parts = groups
    return taken


# Our counts may be a tenth too low.
_WINDOW_SHARE = 0.9


class RequestPlan(Struct, frozen=True):
    """What is asked for, within which limits, and what that should take."""

    subject: SummarySubject
    limits: SummaryLimits
    effort: CallEstimate


def plan_request(
    result: CompactionResult, model: Model, settings: Settings, prompt: Prompt, *, may_send_own: bool = True
) -> RequestPlan:
    """Brief a model on a compaction. The conversation's own messages are used where they may be and are cheaper."""
    count = result.run.config.counter.text
    subject, limits = subject_of(result), limits_for(settings, summary_tokens(result))
    copied = estimate_copy(model, subject, count, limits, prompt)
    prefix = cached_prefix(result, model, settings) if may_send_own else ()
    if not prefix:
        return RequestPlan(subject, limits, copied)
    prefix_tokens = result.run.config.counter.count_many(result.run.config.dialect.parse(prefix))
    beside = count(str(settings.agent_request))
    sent = estimate_prefix(model, subject, count, limits, prompt, sum(prefix_tokens) + beside)
    # Where no price is known one call that a cache serves is taken for cheaper than copies.
    own_cost, copy_cost = (each.cost(model.name, settings.models) for each in (sent, copied))
    is_cheaper = not copied.calls or own_cost is None or copy_cost is None or own_cost <= copy_cost
    if sent.shown + 2 * sent.written > _WINDOW_SHARE * model.window or not is_cheaper:
        return RequestPlan(subject, limits, copied)
    own = structs.replace(subject, prefix=prefix, beside=settings.agent_request)
    return RequestPlan(own, limits, sent)


def subject_of(
    result: CompactionResult, turns: Sequence[Turn] | None = None, previous: Summary | None = None
) -> SummarySubject:
    """The turns that leave the context, what is known of them, and what stands before them.

    With `turns` only these are summarized, behind the `previous` summary of those before.
    """
    parsed, focus = result.run.parsed, result.run.config.focus
    if result.run.request.settings.redact_secrets:  # taken out first: half of one would not be recognized any more
        dialect = result.run.config.dialect
        parsed = parse_context(dialect.parse(redact([message.raw for message in parsed.messages]).value), dialect)
        focus = redact(focus).value
    earlier = from_record(parsed.past) if previous is None else previous
    numbers = {turn.number for turn in (result.folded if turns is None else turns)}
    gone = {turn.number for turn in result.folded}
    return SummarySubject(
        turns=[turn for turn in parsed.turns if turn.number in numbers],
        facts=tuple(fact for fact in parsed.facts if fact.turn in gone or fact.last_turn in gone),
        previous=redact(earlier).value if result.run.request.settings.redact_secrets else earlier,
        system="\n".join(message.text for turn in parsed.turns if turn.is_instruction for message in turn.messages),
        focus=focus,
    )


def limits_for(settings: Settings, tokens: int) -> SummaryLimits:
    """What the settings allow a summary of so many tokens to take."""
    return SummaryLimits(
        tokens=tokens,
        chunk_tokens=settings.summarizer_input_tokens,
        parallel=settings.summarizer_parallel_calls,
        calls=settings.attempt_limit,
        models=settings.models,
    )


def reason_to_skip(result: CompactionResult) -> str:
    """Why a model is not asked; empty when it is."""
    if not is_model_asked(result.run):
        return "an emergency cannot wait for one"
    if result.report.status != "success":
        return "the context does not fit even without one"
    if not result.folded:
        return "no turn was folded, so there is nothing to summarize"
    if not summary_tokens(result):
        return f"a target of {result.run.goal.target:,} tokens leaves no room for a record by a model"
    return ""


def is_model_asked(run: CompactionRun) -> bool:
    """Whether a model is asked in such a compaction: at the soft and aggressive levels, and when somebody asked."""
    return run.trigger.level in (Level.SOFT, Level.AGGRESSIVE) or run.request.is_wanted


def cached_prefix(result: CompactionResult, model: Model, settings: Settings) -> tuple[dict[str, Any], ...]:
    """The conversation up to the last turn that leaves it, as the agent sends it; empty when it cannot be sent.

    A cache is read as long as a request begins the same, and what the agent sends first are its tools and its system
    prompt. So without `agent_request` there is nothing to gain, and neither where secrets are to be left out.
    """
    request, dialect = result.run.request, result.run.config.dialect
    if request.settings.redact_secrets or not settings.agent_request or not result.folded:
        return ()
    if not is_agent_model(model.name, request.model, dialect.name):
        return ()
    last = result.folded[-1].messages[-1].raw
    sent = list(request.sent) or [message.raw for message in result.run.parsed.messages]
    end = next((at for at, raw in enumerate(sent, 1) if raw is last or raw == last), 0)
    prefix = sent[:end]
    return () if find_violations(dialect.parse(prefix), dialect) else tuple(prefix)


def is_agent_model(name: str, agents: str | None, dialect: str) -> bool:
    """Whether a model is the one the agent works with, and takes messages of this dialect as they are."""
    if not agents or not name.startswith(dialect_named(dialect).native_models):
        return False
    return name == agents or ("/" not in agents and re.split(r"[/#]", name)[-1] == agents)
