"""Refuses texts that may not stand for their source, and contexts that are worse than the old one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.messages import Message, Thinking
from context_compactor.engine.classify import Verdicts
from context_compactor.engine.options import OUTCOME, Option, TextSource
from context_compactor.engine.tiers import Tier
from context_compactor.tracing import traced

_START = 40


def valid_options(options: Iterable[Option], sources: Sequence[TextSource], verdicts: Verdicts) -> Iterator[Option]:
    """The options whose text may stand for its source; a bad text is refused, and so its source keeps its lines."""
    return (
        option
        for option in options
        if option.tier is not Tier.SUMMARIZE or not objection(option, sources[option.source], verdicts)
    )


def objection(option: Option, source: TextSource, verdicts: Verdicts) -> str:
    """Why a text may not stand for its source; empty when it may."""
    if not option.text.strip():
        return "the text is empty"
    if len(option.text) >= len(source.text):
        return "the text is not shorter than its source"
    verdict = verdicts.exchanges.get(source.exchange)
    failure = verdict.failure if source.is_failure and verdict else None
    # How a call ended is told beside its error, not in its place.
    if failure and option.block != OUTCOME and failure.error[:_START] not in option.text:
        return "the text loses the error of a failed attempt"
    return ""


@traced("verify")
def find_damage(before: Sequence[Message], after: Sequence[Message], dialect: Dialect) -> list[str]:
    """What would make the new context worse than the old one: illegal order, edited reasoning."""
    damage = [f"message {problem.index}: {problem.what}" for problem in find_violations(after, dialect)]
    known = {id(part) for message in before for part in message.parts if isinstance(part, Thinking) and part.signed}
    signed = [part for message in after for part in message.parts if isinstance(part, Thinking) and part.signed]
    originals = {part for message in before for part in message.parts if isinstance(part, Thinking) and part.signed}
    if any(id(part) not in known and part not in originals for part in signed):
        damage.append("a signed piece of reasoning was changed")
    return damage
