"""Composes a new context: plans it, writes the record and the messages, counts them, and corrects until they fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from msgspec import Struct, structs

from context_compactor.archive.originals import Original, ids_of, turn_original
from context_compactor.archive.search.terms import terms
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.legality import first_speaker
from context_compactor.dialects.messages import Message, ToolResult
from context_compactor.dialects.record import Excerpt, Quote, Record, RecordEntry, record_lines, render_record
from context_compactor.dialects.repair import repair
from context_compactor.dialects.turns import REFERENCE_PATTERN, Turn, reference_id, without_recall
from context_compactor.engine.classify import ParsedContext, result_original
from context_compactor.engine.layouts import Room, Zone, ZonedTurns
from context_compactor.engine.planner import PlanSelection, draft_plan
from context_compactor.engine.relevance import weights_for_share
from context_compactor.engine.request import EngineConfig, Goal
from context_compactor.engine.required import required_content
from context_compactor.engine.story import Story, story_units
from context_compactor.engine.strategies import FollowTierOverrides
from context_compactor.engine.tiers import Tier, valid_overrides
from context_compactor.engine.truncation import FittedTurns, fit_instructions, fit_open_question
from context_compactor.engine.verify import custom_options, valid_options
from context_compactor.engine.view import Focus, PlanningView, TurnText, build_sources
from context_compactor.engine.write import Edits, WrittenTexts, newest_excerpts, turns_without_media, write_texts
from context_compactor.facts.kinds import reference_of
from context_compactor.facts.ledgers import LedgerLine, merge_entries
from context_compactor.facts.names import NameTable
from context_compactor.tokens.counting import MessageCounter
from context_compactor.tracing import traced

# How much more the lines of a turn count that the user wants to have in a few lines.
_SUMMARIZED_TURN_FACTOR = 4.0
# Where the context is one message, the share of the target that the newest turns may take in it.
_NEWEST_SHARE = 0.2
# How much more a sentence counts that is about all of what the user wants to have in view.
_FOCUS_FACTOR = 8.0


def fit_turns(parsed: ParsedContext, goal: Goal, config: EngineConfig) -> tuple[FittedTurns, FittedTurns]:
    """The turns with their instructions cut where they would leave no room, then with the open question cut as well."""
    cut = FittedTurns(parsed.turns)
    if goal.may_cut_instructions:
        cut = fit_instructions(parsed.turns, goal.target, config.counter, config.dialect, can_recall=config.can_recall)
    kept = [number for number, tier in config.tier_overrides.items() if tier is Tier.KEEP]
    return cut, fit_open_question(
        cut.turns,
        goal.target,
        config.counter,
        config.dialect,
        parsed.verdicts,
        past=parsed.past,
        kept=kept,
        can_recall=config.can_recall,
    )


def follow_overrides(config: EngineConfig, turns: Sequence[Turn]) -> EngineConfig:
    """The configuration with the tiers of the user that can be followed, and what follows them."""
    if not config.tier_overrides:
        return config
    tiers = valid_overrides(turns, config.tier_overrides)
    factors = {
        number: _SUMMARIZED_TURN_FACTOR * config.factors.get(number, 1.0)
        for number, tier in tiers.items()
        if tier is Tier.SUMMARIZE
    }
    return structs.replace(
        config,
        tier_overrides=tiers,
        factors=config.factors | factors,
        strategies=(*config.strategies, FollowTierOverrides(tiers)),
    )


@traced("plan")
def plan_context(
    parsed: ParsedContext,
    zoned: ZonedTurns,
    texts: tuple[TurnText, ...],
    room: Room,
    most_bytes: int,
    config: EngineConfig,
) -> Composer:
    """Gather what must stay and what may, and weigh the options of all strategies.

    Where nothing else has fitted, of the ledgers only the failures must stay, and the task in a few words.
    """
    zones, share = zoned.zones, room.share
    folded = [turn for turn in parsed.readable_turns if zones[turn.number] is Zone.FOLDED]
    known = required_content(
        parsed.facts,
        folded,
        parsed.past,
        0 if zoned.is_last else room.tokens,
        config.counter.text,
        parsed.verdicts.root,
    )
    quotes_newest = config.is_one_message and not zoned.is_last
    excerpts = parsed.past.excerpts if parsed.past else ()
    weights = weights_for_share(config.weights, share)
    sources = build_sources(texts, excerpts, known.optional, parsed.verdicts, weights)
    bare = turns_without_media(parsed.turns, zones, most_bytes, config.tier_overrides)
    quoted = "\n".join(quote.text for quote in known.quotes)
    table = NameTable()
    view = PlanningView(
        tuple(parsed.turns),
        zones,
        sources,
        parsed.verdicts,
        table,
        weights,
        Focus(config.focus, terms) if config.focus else None,
        bare,
        quoted,
        config.factors,
        config.tier_overrides,
        zoned.why,
    )
    proposed = (option for strategy in config.strategies for option in strategy.propose(view))
    options = valid_options(proposed, sources, parsed.verdicts)
    custom, refused = custom_options(config.custom_strategies, view)
    draft = draft_plan(view, chain(options, custom), known.texts())
    tokens = {turn.number: size.whole for turn, size in zip(room.turns, room.sizes, strict=True)}
    newest = newest_excerpts(folded, parsed.verdicts, int(room.tokens * _NEWEST_SHARE)) if quotes_newest else ()
    content = RecordContent(known.quotes, known.must, parsed.past, newest)
    standing = [*known.texts(), *("\n".join(excerpt.lines) for excerpt in newest)]
    story = _build_story(parsed, view, standing, tokens, config)
    return Composer(
        parsed.messages,
        view,
        draft,
        content,
        config.counter,
        config.dialect,
        tokens,
        story,
        config.is_one_message,
        (*zoned.refused, *refused),
        can_recall=config.can_recall,
    )


def _build_story(
    parsed: ParsedContext, view: PlanningView, standing: Sequence[str], tokens: dict[int, int], config: EngineConfig
) -> Story:
    """What the record can say of the folded turns, weighed against what stands in the context anyway."""
    lowered = {number for number, tier in view.tier_overrides.items() if tier in (Tier.REFERENCE, Tier.DROP)}
    folded = [number for number, zone in view.zones.items() if zone is Zone.FOLDED and number not in lowered]
    units = story_units(parsed.readable_turns, parsed.verdicts, parsed.past, folded)
    after: dict[int, int] = {}
    rest = sum(tokens.values())
    for number, size in tokens.items():
        rest -= size
        after[number] = rest
    if view.focus:
        for unit, share in zip(units, view.focus.shares([unit.text for unit in units]), strict=True):
            unit.weight *= 1.0 + _FOCUS_FACTOR * share + (share > 0)
    story = Story(units, config.counter.texts, after)
    story.cover(standing)
    story.start()
    return story


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
        # The provider's summary stood in one message with what followed it.
        is_split = fixed and live and fixed[-1].is_provider_summary and live[0].role == "assistant"
        return [*fixed[:-1], dialect.join(fixed[-1], live[0]), *live[1:]] if is_split else [*fixed, *live]
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
    detached: frozenset[int] = frozenset()
    """Turns that stay without their reasoning, which the provider no longer accepts."""

    def cited(self) -> set[str]:
        """Every id that the record or a shortened part names, with the turns that stand behind the record."""
        edited = (text for changes in self.texts.edits.values() for text in changes.values() if text)
        behind = (reference_id("turn", number) for number, _ in (self.record.behind if self.record else ()))
        texts = chain(record_lines(self.record) if self.record else (), edited)
        return {*chain.from_iterable(map(REFERENCE_PATTERN.findall, texts)), *behind}


class Composer(Struct, frozen=True):
    """Writes the context that the draft's current choice stands for. `given` are the messages as they came."""

    given: Sequence[Message]
    view: PlanningView
    draft: PlanSelection
    record_content: RecordContent
    counter: MessageCounter
    dialect: Dialect
    turn_tokens: dict[int, int]
    story: Story
    is_one_message: bool = False
    """Whether the record and the words that wait for an answer are to be one message."""
    refused: tuple[str, ...] = ()
    """What was wrong with the options of the caller's own strategies."""
    can_recall: bool = True
    """Whether the reader has a tool named `recall`."""

    def write(self) -> WrittenContext:
        """The context as it is chosen now."""
        texts = write_texts(self.view, self.draft)
        if not self.can_recall:
            texts = structs.replace(texts, edits=_without_recall(texts.edits))
        return self.write_record(self._record(texts), texts)

    def write_record(self, record: Record | None, texts: WrittenTexts) -> WrittenContext:
        """The context with this record and these texts."""
        joins = self.dialect.strict_alternation or self.is_one_message
        text = render_record(record) if record else ""
        messages = apply(self.view.turns, self.view.zones, text, texts.edits, self.dialect, joins=joins)
        kept = self.dialect.detach(self.given, messages)
        lost = {id(old) for old, new in zip(messages, kept, strict=True) if old is not new}
        messages = [message for message in kept if message is not None]
        spoken = messages[first_speaker(messages) :]
        if None in kept or any(message.role in ("system", "developer") for message in spoken):
            messages, _ = repair(messages, self.dialect)  # what stood between two others may be gone
        if record:
            stable = next(at for at, message in enumerate(messages) if message.role == "user")
            messages = self.dialect.place_cache_marks(messages, stable)
        detached = frozenset(turn.number for turn in self.view.turns if any(id(each) in lost for each in turn.messages))
        return WrittenContext(messages, self.counter.request_tokens(messages), record, texts, detached)

    def _record(self, texts: WrittenTexts) -> Record | None:
        folded = [turn for turn in self.view.turns if self.view.zones[turn.number] is Zone.FOLDED]
        past = self.record_content.past
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
            quotes=self.record_content.quotes,
            sections=self._sections(texts),
            happened=self.story.lines(),
            excerpts=texts.excerpts,
            newest=self.record_content.newest,
            behind=tuple((turn.number, min(_call_numbers([turn]), default=0)) for turn in behind),
            can_recall=self.can_recall,
        )

    def _sections(self, texts: WrittenTexts) -> dict[str, tuple[RecordEntry, ...]]:
        must: dict[str, list[RecordEntry]] = {}
        for line in self.record_content.must:
            must.setdefault(line.section, []).append(line.entry)
        titles = dict.fromkeys((*must, *texts.facts))
        return {title: tuple(merge_entries((*must.get(title, ()), *texts.facts.get(title, ())))) for title in titles}


def _without_recall(edits: Edits) -> Edits:
    return {
        place: {part: text and without_recall(text) for part, text in changes.items()}
        for place, changes in edits.items()
    }


def _call_numbers(turns: Sequence[Turn]) -> list[int]:
    return [exchange.number for turn in turns for exchange in turn.exchanges]


_ROUNDS = 6
_SLACK = 0.004
# How much of the free room the story may have, by how much of the history may stay: the less, the more of it tells what
# happened. Set by blind readings; see docs/why/record.md.
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
def fill_target(composer: Composer, target: int, kept: float) -> WrittenContext:
    """Say and keep as much as fits just under the target; when nothing does, the smallest context there is.

    `kept` is the share of the history that may stay.
    """
    draft, story, write = composer.draft, composer.story, composer.write
    base = write()
    room = target - base.tokens
    if room <= 0:
        return base
    del base  # a context that was written is as large as what may stay: one is held at a time
    story.fill(room * story_share(kept))
    draft.cover(line.text for line in story.lines())
    draft.names.forget_words()
    draft.chooser.start()
    written = _fill_lines(draft, write(), target, write)
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
        del written
        written = write()
    while written.tokens > target and not (draft.chooser.is_empty and story.is_empty):
        draft.chooser.drop_last(max(written.tokens - target, 1))
        if draft.chooser.is_empty:
            story.drop_last(max(written.tokens - target, 1))
        del written
        written = write()
    draft.chooser.finish()
    return written


def _fill_lines(
    draft: PlanSelection, base: WrittenContext, target: int, write: Callable[[], WrittenContext]
) -> WrittenContext:
    """Take exact lines until the written context is just under the target."""
    chooser = draft.chooser
    room = target - base.tokens
    if room <= 0:
        return base
    before_lines = base.tokens
    del base
    chooser.fill(room)
    written = write()
    for _ in range(_ROUNDS):
        if target * (1 - _SLACK) <= written.tokens <= target:
            return written
        rate = max(written.tokens - before_lines, 1) / max(chooser.tokens, 1.0)
        aim = (room - target * _SLACK / 2) / rate
        before = len(chooser.chosen)
        if chooser.tokens > aim:
            chooser.drop_last(chooser.tokens - aim)
        else:
            chooser.fill(aim)
        if len(chooser.chosen) == before:
            break
        del written
        written = write()
    while written.tokens > target and not chooser.is_empty:
        chooser.drop_last(max(written.tokens - target, 1))
        del written
        written = write()
    return written


@traced("archive")
def gather_originals(
    parsed: ParsedContext, zones: dict[int, Zone], tokens: dict[int, int], written: WrittenContext
) -> Iterator[Original]:
    """Every turn that is folded, edited or cited by the record, whole, and every result in it by itself."""
    edits, cited = written.texts.edits, written.cited()
    edited = {number for (number, _), changes in edits.items() if changes} | written.detached
    for turn in parsed.turns:
        is_folded = zones[turn.number] is Zone.FOLDED
        if is_folded or turn.number in edited or not cited.isdisjoint(ids_of(turn)):
            yield turn_original(turn, tokens[turn.number])
            changed = {
                part.call_id
                for at, index, _, part in turn.parts()
                if isinstance(part, ToolResult) and index in edits.get((turn.number, at), {})
            }
            for exchange in turn.exchanges:
                result = exchange.result
                if result and (is_folded or result.call_id in changed or reference_of(exchange) in cited):
                    yield result_original(exchange, parsed.verdicts.exchanges[exchange.number])
