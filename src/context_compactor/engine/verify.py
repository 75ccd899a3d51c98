"""Refuses texts that may not stand for their source, and contexts that are worse than the old one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from msgspec import structs

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.messages import Message, Thinking
from context_compactor.engine.classify import Verdicts
from context_compactor.engine.options import OUTCOME, Option, TextSource
from context_compactor.engine.tiers import Tier
from context_compactor.engine.view import PlanningView
from context_compactor.facts.kinds import Voice
from context_compactor.protocols import Strategy
from context_compactor.text import plural
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


def custom_options(strategies: Sequence[Strategy], view: PlanningView) -> tuple[list[Option], list[str]]:
    """What the caller's own strategies propose, as far as it may be used, and what was wrong with the rest."""
    options: list[Option] = []
    refused: list[str] = []
    for strategy in strategies:
        try:
            proposed = list(strategy.propose(view))
        except Exception as error:  # noqa: BLE001 - somebody else's code; a compaction can do without it
            refused.append(f"strategy {strategy.name!r} was left out: {type(error).__name__}: {error}")
            continue
        wrong = {at: why for at, option in enumerate(proposed) if (why := next(_objections(option, view), ""))}
        valid = (option for at, option in enumerate(proposed) if at not in wrong)
        options.extend(structs.replace(option, strategy=strategy.name) for option in valid)
        if wrong:
            first = next(iter(wrong.values()))
            refused.append(f"{plural(len(wrong), 'option')} of strategy {strategy.name!r} left out: {first}")
    return options, refused


def _objections(option: Any, view: PlanningView) -> Iterator[str]:
    """Why an option of a strategy that is not ours may not be used. Each relies on those before it."""
    if not isinstance(option, Option):
        yield f"propose() gave a {type(option).__name__}; it must give Option values"
    if not isinstance(option.source, int) or not 0 <= option.source < len(view.sources):
        yield f"there is no source {option.source!r}; use the number of a source of view.open_sources()"
    source = view.sources[option.source]
    if not view.is_open(source):
        yield f"source {source.number} may not be shortened; use those of view.open_sources()"
    if not isinstance(option.tier, Tier) or not isinstance(option.text, str) or not option.reason:
        yield f"the option for source {source.number} needs a tier, a text and a reason"
    if not isinstance(option.weight, (int, float)) or not 0 <= option.weight < inf:
        yield f"the weight {option.weight!r} for source {source.number} is not a number from 0 on"
    yield from _text_objections(option, source, view.verdicts)


def _text_objections(option: Any, source: TextSource, verdicts: Verdicts) -> Iterator[str]:
    if source.voice is Voice.THINKING and (option.tier, option.text) != (Tier.DROP, ""):
        yield "reasoning is left out whole with DROP and no text, or not at all"
    if option.tier is Tier.KEEP:
        if not isinstance(option.block, int) or not 0 <= option.block < len(source.blocks):
            yield f"source {source.number} has no block {option.block!r}"
        if option.text != source.blocks[option.block].text:
            yield "KEEP needs the text of its block, unchanged"
    elif option.block != -1 and (option.tier is not Tier.SUMMARIZE or option.block != OUTCOME):
        yield f"only KEEP names a block; leave it out for {option.tier}"
    elif option.tier is Tier.SUMMARIZE:
        yield from filter(None, [objection(option, source, verdicts)])
    elif option.text and (source.ref not in option.text or len(option.text) >= len(source.text)):
        yield f"a text for {option.tier} must be shorter than its source and name {source.ref!r}, which recalls it"


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
