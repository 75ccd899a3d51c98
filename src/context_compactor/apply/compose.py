"""Compose a context from a draft: the record, the shortened turns, and what they weigh together."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from context_compactor.apply.apply import apply
from context_compactor.apply.layout import Texts, write_texts
from context_compactor.engine.story import Story
from context_compactor.facts.ledgers import LedgerLine, merge_entries
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.message import Message
from context_compactor.messages.openai_responses import OpenAIResponses, unbind
from context_compactor.messages.record import Entry, Excerpt, Quote, Record, render
from context_compactor.messages.references import ID, reference_id
from context_compactor.messages.turn import Turn
from context_compactor.plan.planner import Draft
from context_compactor.plan.view import View
from context_compactor.plan.zones import Zone


class Ledger(Struct, frozen=True):
    """What the record must say whatever is chosen: the user's task, and the lines that may not be left out."""

    quotes: tuple[Quote, ...]
    must: tuple[LedgerLine, ...]
    past: Record | None
    newest: tuple[Excerpt, ...] = ()


class Written(Struct, frozen=True):
    """A context that was written and counted."""

    messages: list[Message]
    tokens: int
    record: Record | None
    texts: Texts

    def cited(self) -> set[str]:
        """Every id that the record or a shortened part names, with the turns that stand behind the record."""
        edited = [text for changes in self.texts.edits.values() for text in changes.values() if text]
        behind = (reference_id("turn", number) for number, _ in (self.record.behind if self.record else ()))
        return {*ID.findall("\n".join((render(self.record) if self.record else "", *edited))), *behind}


class Composer(Struct, frozen=True):
    """Writes the context that the draft's current choice stands for."""

    view: View
    draft: Draft
    ledger: Ledger
    counter: MessageCounter
    dialect: Dialect
    turn_tokens: dict[int, int]
    story: Story
    is_one_message: bool = False
    """Whether the record and the words that wait for an answer are to be one message."""

    def write(self) -> Written:
        """The context as it is chosen now."""
        texts = write_texts(self.view, self.draft)
        return self.write_record(self._record(texts), texts)

    def write_record(self, record: Record | None, texts: Texts) -> Written:
        """The context with this record and these texts."""
        joins = self.dialect.strict_alternation or self.is_one_message
        text = render(record) if record else ""
        messages = apply(self.view.turns, self.view.zones, text, texts.edits, self.dialect, joins=joins)
        if isinstance(self.dialect, OpenAIResponses):
            messages = unbind([message for turn in self.view.turns for message in turn.messages], messages)
        return Written(messages, self.counter.request_tokens(messages), record, texts)

    def _record(self, texts: Texts) -> Record | None:
        folded = [turn for turn in self.view.turns if self.view.zones[turn.number] is Zone.FOLDED]
        past = self.ledger.past
        if not folded and past is None:
            return None
        before = past or Record(0, 0, 0, 0)
        turns = max([before.turns, *(turn.number for turn in folded)])
        passed = [turn for turn in self.view.turns if 0 < turn.number <= turns]
        behind = [turn for turn in passed if self.view.zones[turn.number] is not Zone.FOLDED]
        return Record(
            messages=before.messages + sum(len(turn.messages) for turn in folded),
            tokens=before.tokens + sum(self.turn_tokens[turn.number] for turn in folded),
            turns=turns,
            calls=max([before.calls, *_call_numbers(passed)]),
            quotes=self.ledger.quotes,
            sections=self._sections(texts),
            happened=self.story.lines(),
            excerpts=texts.excerpts,
            newest=self.ledger.newest,
            behind=tuple((turn.number, min(_call_numbers([turn]), default=0)) for turn in behind),
        )

    def _sections(self, texts: Texts) -> dict[str, tuple[Entry, ...]]:
        must: dict[str, list[Entry]] = {}
        for line in self.ledger.must:
            must.setdefault(line.section, []).append(line.entry)
        titles = dict.fromkeys((*must, *texts.facts))
        return {title: tuple(merge_entries((*must.get(title, ()), *texts.facts.get(title, ())))) for title in titles}


def _call_numbers(turns: Sequence[Turn]) -> list[int]:
    return [exchange.number for turn in turns for exchange in turn.exchanges]
