"""Summaries that a provider wrote itself: the newest stays in front as it is, and goes only if it leaves no room."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from context_compactor.archive.originals import Original
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import PROVIDER_SUMMARY, Message, Opaque
from context_compactor.dialects.repair import IndexedMessage, repair_with_indexes
from context_compactor.dialects.turns import Turn, text_reference
from context_compactor.engine.classify import ParsedContext, parse_context
from context_compactor.engine.request import CompactionRun
from context_compactor.tokens.counting import MessageCounter

# Of a target a summary may take this much and stay.
_MOST = 0.5
_READABLE = "[Summary by the provider of everything before this]"


def separate_summary(steps: Sequence[IndexedMessage], dialect: Dialect) -> list[IndexedMessage]:
    """The messages with the newest summary by the provider as a message of its own.

    Older ones, which the provider no longer reads, become text where they can be read and are left out where not.
    """
    holders = [at for at, (_, message) in enumerate(steps) if _summaries_in(message)]
    if not holders:
        return list(steps)
    separated: list[IndexedMessage] = []
    for at, (index, message) in enumerate(steps):
        if at == holders[-1]:
            others = [number for number in range(len(message.parts)) if number not in _summaries_in(message)]
            separated.append((index, dialect.pick(message, [_summaries_in(message)[-1]]) if others else message))
            separated += [(index, dialect.pick(message, others))] if others else []
        elif at in holders:
            kept = _as_text(message, dialect)
            separated += [(index, kept)] if kept is not None else []
        else:
            separated.append((index, message))
    return separated


def _summaries_in(message: Message) -> list[int]:
    return [at for at, part in enumerate(message.parts) if isinstance(part, Opaque) and part.type == PROVIDER_SUMMARY]


def _as_text(message: Message, dialect: Dialect) -> Message | None:
    """The message with what its summary says as text; without it where that is sealed. None when nothing is left."""
    edits: dict[int, str | None] = {}
    for at in _summaries_in(message):
        part = message.parts[at]
        is_readable = isinstance(part, Opaque) and part.text and dialect.summaries_are_readable
        edits[at] = f"{_READABLE}\n{part.text}" if is_readable and isinstance(part, Opaque) else None
    return dialect.edit(message, edits)


def without_large_summary(run: CompactionRun, counter: MessageCounter) -> CompactionRun:
    """The run with the provider's summary as ordinary text, where it would take most of the target.

    A sealed one cannot be told: the report then says that the past before it cannot be read.
    """
    summary = provider_summary(run.parsed.turns)
    tokens = sum(map(counter.count, summary.messages)) if summary else 0
    if summary is None or run.goal.reason or tokens <= _MOST * run.effective_goal.target:
        return run
    dialect = run.config.dialect
    steps = [(index, kept) for index, message in run.steps if (kept := _as_text(message, dialect)) is not None]
    legal, _ = repair_with_indexes([message for _, message in steps], dialect)
    steps = [(steps[at][0], message) for at, message in legal]
    parsed = parse_context(
        [message for _, message in steps], dialect, with_secrets=not run.request.settings.redact_secrets
    )
    what = (
        "the provider's own summary leaves too little of the target; its content is in the record"
        if dialect.summaries_are_readable
        else f"unreadable past: the provider's sealed summary of {tokens:,} tokens leaves too little of the target; "
        "what it stands for is known only as far as it was given"
    )
    return structs.replace(run, steps=steps, parsed=parsed, notes=(*run.notes, what))


def provider_summary(turns: Sequence[Turn]) -> Turn | None:
    """The turn that is a summary by the provider, if there is one."""
    return next((turn for turn in turns if turn.messages[0].is_provider_summary), None)


def summary_original(parsed: ParsedContext, counter: MessageCounter) -> tuple[Original, ...]:
    """The readable text of the provider's summary for the archive, so that it is found there."""
    summary = provider_summary(parsed.turns)
    text = summary.messages[0].provider_summary if summary else ""
    if not text:
        return ()
    ref = text_reference(text)
    return (Original(ref, "summary", "the provider's own summary", counter.text(text), text, f'recall("{ref}")'),)
