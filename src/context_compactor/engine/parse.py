"""Takes a context apart: its turns, what an earlier compaction left, and what is known of both."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message
from context_compactor.dialects.record import Record, open_turns
from context_compactor.dialects.turns import Turn, turn_spans
from context_compactor.engine.classify import Verdicts, classify
from context_compactor.engine.digests.outcomes import outcome_of
from context_compactor.engine.required import record_root
from context_compactor.engine.tiers import finished_turns
from context_compactor.facts.extract import extract_facts
from context_compactor.facts.fact import Fact
from context_compactor.tracing import traced


class ParsedContext(Struct, frozen=True):
    """A context taken apart: its turns, what an earlier compaction left, and what is known of both."""

    messages: list[Message]
    turns: list[Turn]
    past: Record | None
    verdicts: Verdicts
    facts: list[Fact]
    redacted_turns: list[Turn] | None = None
    """The turns with their secrets replaced, where the record may hold none; turns that stay are as they were."""

    @property
    def readable_turns(self) -> list[Turn]:
        """The turns as the record may quote them."""
        return self.turns if self.redacted_turns is None else self.redacted_turns


@traced("classify")
def parse_context(messages: Sequence[Message], dialect: Dialect, *, with_secrets: bool = True) -> ParsedContext:
    """Take a context apart and classify what is in it.

    Where the record may hold no secrets they are replaced first: half of one would not be recognized any more.
    """
    turns, past = open_turns(messages, dialect)
    redacted = None if with_secrets else open_turns(_without_secrets(messages, dialect), dialect)[0]
    readable = turns if redacted is None else redacted
    verdicts = classify(readable, record_root(past))
    facts = extract_facts(finished_turns(readable), verdicts.failures, verdicts.files, outcome_of)
    return ParsedContext(list(messages), turns, past, verdicts, facts, redacted)


def _without_secrets(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    from context_compactor.archive.redaction import redact  # its patterns take time to build

    return dialect.parse(redact([message.raw for message in messages]).value)


def turn_positions(
    parsed: ParsedContext, steps: Sequence[tuple[int, Message]], given: int
) -> dict[int, tuple[int, int]]:
    """For each turn where its messages stand among those that were given, before `steps` repaired them."""
    known = {id(message) for _, message in steps}
    # A message that stood behind the record in one and the same message has that message's position.
    rest = next((message for turn in parsed.turns for message in turn.messages if id(message) not in known), None)
    first = next((at for at, message in steps if message.role not in ("system", "developer")), 0)
    return turn_spans(parsed.turns, [*steps, *([(first, rest)] if rest is not None else [])], given)
