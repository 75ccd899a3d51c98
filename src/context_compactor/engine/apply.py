"""Applies a plan: writes the record and the new context, counts it, and corrects until it fits the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from context_compactor.archive.originals import Original, ids_of, turn_original
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, ToolResult
from context_compactor.dialects.openai_responses import OpenAIResponses, unbind
from context_compactor.dialects.record import Excerpt, Quote, Record, RecordEntry, render_record
from context_compactor.dialects.turns import REFERENCE_PATTERN, Turn, reference_id
from context_compactor.engine.classify import Verdicts, result_original
from context_compactor.engine.layouts import Zone
from context_compactor.engine.planner import PlanSelection
from context_compactor.engine.story import Story
from context_compactor.engine.view import PlanningView
from context_compactor.engine.write import Edits, WrittenTexts, write_texts
from context_compactor.facts.kinds import reference_of
from context_compactor.facts.ledgers import LedgerLine, merge_entries
from context_compactor.tokens.counting import MessageCounter
from context_compactor.tracing import traced


@traced("apply")
def apply(
    turns: Sequence[Turn],
    zones: dict[int, Zone],
    record_text: str,
    edits: Edits,
    dialect: Dialect,
    *,
    joins: bool,
) -> list[Message]:
    """The new context: instructions, the record, the turns that stay. With `joins` the user's words that follow the
    record stand in its message.
    """
    fixed: list[Message] = []
    live: list[Message] = []
    first_live = next((turn.number for turn in turns if zones[turn.number] in (Zone.PLACED, Zone.VERBATIM)), None)
    for turn in turns:
        zone = zones[turn.number]
        if zone is Zone.FIXED and (first_live is None or turn.number < first_live):
            fixed.extend(turn.messages)
        elif zone is not Zone.FOLDED:
            live.extend(_edited(turn, edits, dialect))
    if not record_text:
        return [*fixed, *live]
    record = dialect.user_text(record_text)
    if joins and live and live[0].role == "user" and not live[0].results:
        return [*fixed, dialect.join(record, live[0]), *live[1:]]
    return [*fixed, record, *live]


def _edited(turn: Turn, edits: Edits, dialect: Dialect) -> list[Message]:
    messages: list[Message] = []
    for at, message in enumerate(turn.messages):
        changes = edits.get((turn.number, at))
        edited = dialect.edit(message, changes) if changes else message
        messages.append(message if edited is None else edited)
    return messages


class RecordContent(Struct, frozen=True):
    """What the record must say whatever is chosen: the user's task, and the lines that may not be left out."""

    quotes: tuple[Quote, ...]
    must: tuple[LedgerLine, ...]
    past: Record | None
    newest: tuple[Excerpt, ...] = ()


class WrittenContext(Struct, frozen=True):
    """A context that was written and counted."""

    messages: list[Message]
    tokens: int
    record: Record | None
    texts: WrittenTexts

    def cited(self) -> set[str]:
        """Every id that the record or a shortened part names, with the turns that stand behind the record."""
        edited = [text for changes in self.texts.edits.values() for text in changes.values() if text]
        behind = (reference_id("turn", number) for number, _ in (self.record.behind if self.record else ()))
        return {
            *REFERENCE_PATTERN.findall("\n".join((render_record(self.record) if self.record else "", *edited))),
            *behind,
        }


class Composer(Struct, frozen=True):
    """Writes the context that the draft's current choice stands for."""

    view: PlanningView
    draft: PlanSelection
    ledger: RecordContent
    counter: MessageCounter
    dialect: Dialect
    turn_tokens: dict[int, int]
    story: Story
    is_one_message: bool = False
    """Whether the record and the words that wait for an answer are to be one message."""

    def write(self) -> WrittenContext:
        """The context as it is chosen now."""
        texts = write_texts(self.view, self.draft)
        return self.write_record(self._record(texts), texts)

    def write_record(self, record: Record | None, texts: WrittenTexts) -> WrittenContext:
        """The context with this record and these texts."""
        joins = self.dialect.strict_alternation or self.is_one_message
        text = render_record(record) if record else ""
        messages = apply(self.view.turns, self.view.zones, text, texts.edits, self.dialect, joins=joins)
        if isinstance(self.dialect, OpenAIResponses):
            messages = unbind([message for turn in self.view.turns for message in turn.messages], messages)
        return WrittenContext(messages, self.counter.request_tokens(messages), record, texts)

    def _record(self, texts: WrittenTexts) -> Record | None:
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

    def _sections(self, texts: WrittenTexts) -> dict[str, tuple[RecordEntry, ...]]:
        must: dict[str, list[RecordEntry]] = {}
        for line in self.ledger.must:
            must.setdefault(line.section, []).append(line.entry)
        titles = dict.fromkeys((*must, *texts.facts))
        return {title: tuple(merge_entries((*must.get(title, ()), *texts.facts.get(title, ())))) for title in titles}


def _call_numbers(turns: Sequence[Turn]) -> list[int]:
    return [exchange.number for turn in turns for exchange in turn.exchanges]


_ROUNDS = 6
_SLACK = 0.004
# How much of the free room the story may have, by how much of the history may stay: the less, the more of it tells what
# happened. Set by blind readings; see docs/why/story.md.
_SHARES = ((0.04, 0.85), (0.1, 0.62), (0.25, 0.3), (0.5, 0.2))


def story_share(kept: float) -> float:
    """The share of the story where so much of the history may stay; between two lines of the table in proportion."""
    (least, most), *rest = _SHARES
    if kept <= least:
        return most
    for size, share in rest:
        if kept <= size:
            return most + (share - most) * (kept - least) / (size - least)
        least, most = size, share
    return most


@traced("write")
def fill_target(
    draft: PlanSelection, story: Story, target: int, kept: float, write: Callable[[], WrittenContext]
) -> WrittenContext:
    """Tell and keep as much as fits just under the target; when nothing does, the smallest context there is.

    `kept` is the share of the history that may stay.
    """
    base = write()
    room = target - base.tokens
    if room <= 0:
        return base
    story.fill(room * story_share(kept))
    draft.cover(line.text for line in story.lines())
    draft.chooser.start()
    told = write()
    written = _fill_lines(draft, told, target, write)
    for _ in range(_ROUNDS):
        left = target - written.tokens
        if 0 <= left <= target * _SLACK * 2:
            break
        before = story.tokens
        if left > 0:
            story.fill(story.tokens + left)
        else:
            story.drop_last(-left + 1)
        if story.tokens == before:
            break
        written = write()
    while written.tokens > target and not (draft.chooser.is_empty and story.is_empty):
        draft.chooser.drop_last(max(written.tokens - target, 1))
        if draft.chooser.is_empty:
            story.drop_last(max(written.tokens - target, 1))
        written = write()
    return written


def _fill_lines(
    draft: PlanSelection, base: WrittenContext, target: int, write: Callable[[], WrittenContext]
) -> WrittenContext:
    """Take exact lines until the written context is just under the target."""
    chooser = draft.chooser
    room = target - base.tokens
    if room <= 0:
        return base
    chooser.fill(room)
    written = write()
    for _ in range(_ROUNDS):
        if target * (1 - _SLACK) <= written.tokens <= target:
            return written
        rate = max(written.tokens - base.tokens, 1) / max(chooser.tokens, 1.0)
        aim = (room - target * _SLACK / 2) / rate
        before = len(chooser.chosen)
        if chooser.tokens > aim:
            chooser.drop_last(chooser.tokens - aim)
        else:
            chooser.fill(aim)
        if len(chooser.chosen) == before:
            break
        written = write()
    while written.tokens > target and not chooser.is_empty:
        chooser.drop_last(max(written.tokens - target, 1))
        written = write()
    return written


@traced("archive")
def gather_originals(
    turns: Sequence[Turn],
    zones: dict[int, Zone],
    edits: dict[tuple[int, int], dict[int, str | None]],
    verdicts: Verdicts,
    tokens: dict[int, int],
    cited: set[str],
) -> Iterator[Original]:
    """Every turn that is folded, edited or cited by the record, whole, and every result in it by itself."""
    edited = {number for (number, _), changes in edits.items() if changes}
    for turn in turns:
        leaves = zones[turn.number] is Zone.FOLDED or turn.number in edited or not cited.isdisjoint(ids_of(turn))
        if leaves:
            yield turn_original(turn, tokens[turn.number])
            changed = None if zones[turn.number] is Zone.FOLDED else _changed_results(turn, edits)
            for exchange in turn.exchanges:
                result = exchange.result
                is_gone = result is not None and (changed is None or result.call_id in changed)
                if is_gone or (result is not None and reference_of(exchange) in cited):
                    yield result_original(exchange, verdicts.exchanges[exchange.number])


def _changed_results(turn: Turn, edits: dict[tuple[int, int], dict[int, str | None]]) -> set[str]:
    """The calls whose results are shortened where they stand."""
    return {
        part.call_id
        for at, index, _, part in turn.parts()
        if isinstance(part, ToolResult) and index in edits.get((turn.number, at), {})
    }
