"""Nothing bad gets in: texts that must be refused before the choice, and a context that must be before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from context_compactor.classify.tier import Tier
from context_compactor.messages.boundaries import find_problems
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.message import Message, Thinking
from context_compactor.plan.options import Option, Source


class Refusal(Struct, frozen=True):
    """An option that was not taken into account, and why."""

    strategy: str
    source: int
    why: str


def sound_options(options: Iterable[Option], sources: Sequence[Source]) -> tuple[list[Option], list[Refusal]]:
    """The options whose text may stand for its source, and those that were refused."""
    proposed = list(options)
    objections = {
        at: why
        for at, option in enumerate(proposed)
        if option.tier is Tier.SUMMARIZE and (why := _objection(option, sources[option.source]))
    }
    refused = [Refusal(proposed[at].strategy, proposed[at].source, why) for at, why in objections.items()]
    return [option for at, option in enumerate(proposed) if at not in objections], refused


def _objection(option: Option, source: Source) -> str:
    if not option.text.strip():
        return "the text is empty"
    if len(option.text) >= len(source.text):
        return "the text is not shorter than its source"
    return ""


def find_damage(before: Sequence[Message], after: Sequence[Message], dialect: Dialect) -> list[str]:
    """What would make the new context worse than the old one: illegal order, edited reasoning."""
    damage = [f"message {problem.index}: {problem.what}" for problem in find_problems(after, dialect)]
    known = {id(part) for message in before for part in message.parts if isinstance(part, Thinking) and part.signed}
    signed = [part for message in after for part in message.parts if isinstance(part, Thinking) and part.signed]
    originals = {part for message in before for part in message.parts if isinstance(part, Thinking) and part.signed}
    if any(id(part) not in known and part not in originals for part in signed):
        damage.append("a signed piece of reasoning was changed")
    return damage
