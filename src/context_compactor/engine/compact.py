"""READ FIRST: one compaction, from messages in to a context that fits."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from context_compactor.archive.originals import Archive
from context_compactor.archive.search.terms import terms
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message
from context_compactor.dialects.record import Excerpt, Record, open_turns
from context_compactor.dialects.turns import Turn
from context_compactor.engine.apply import Composer, RecordContent, WrittenContext, fill_target, gather_originals
from context_compactor.engine.classify import Verdicts, classify
from context_compactor.engine.digests.outcomes import outcome_of
from context_compactor.engine.layouts import (
    Room,
    Zone,
    ZonedTurns,
    apply_overrides,
    override_zones,
    room_for_turns,
    turn_sizes,
)
from context_compactor.engine.open_question import fit_open_question
from context_compactor.engine.planner import draft_plan
from context_compactor.engine.relevance import Weights, share_factor, weights_for_share
from context_compactor.engine.request import Goal
from context_compactor.engine.required import record_root, required_content
from context_compactor.engine.story import Story, story_units
from context_compactor.engine.strategies import FollowTierOverrides
from context_compactor.engine.tiers import Tier, TierOverrides, finished_turns, valid_overrides
from context_compactor.engine.truncation import FittedTurns, fit_instructions
from context_compactor.engine.verify import find_damage, valid_options
from context_compactor.engine.view import Focus, PlanningView, TurnText, build_sources, turn_texts
from context_compactor.engine.write import newest_excerpts, turns_without_media
from context_compactor.facts.extract import extract_facts
from context_compactor.facts.fact import Fact
from context_compactor.facts.names import NameTable
from context_compactor.protocols import Layout, Strategy
from context_compactor.tokens.counting import MessageCounter
from context_compactor.tracing import traced

# How much more the lines of a turn count that the user wants to have in a few lines.
_SUMMARIZED_TURN_FACTOR = 4.0
# Where the context is one message, the share of the target that the newest turns may take in it.
_NEWEST_SHARE = 0.2
# How much more a sentence counts that is about all of what the user wants to have in view.
_FOCUS_FACTOR = 8.0


class EngineConfig(Struct, frozen=True):
    """What a compaction works with."""

    dialect: Dialect
    counter: MessageCounter
    strategies: tuple[Strategy, ...]
    layouts: tuple[Layout, ...]
    weights: Weights = Weights()
    focus: str = ""
    factors: dict[int, float] = {}
    """How much more or less the lines of turns count, by their number."""
    steers: TierOverrides = {}
    """What the user has decided about turns."""
    is_one_message: bool = False
    """Whether the context is to be a record alone, with the newest turns in it and the open question behind."""


class ParsedContext(Struct, frozen=True):
    """A context taken apart: its turns, what an earlier compaction left, and what is known of both."""

    messages: list[Message]
    turns: list[Turn]
    past: Record | None
    verdicts: Verdicts
    facts: list[Fact]
    without_secrets: list[Turn] | None = None
    """The turns with their secrets replaced, where the record may tell none; turns that stay are as they were."""

    @property
    def told(self) -> list[Turn]:
        """The turns as the record may tell them."""
        return self.turns if self.without_secrets is None else self.without_secrets


class CompactedContext(Struct, frozen=True):
    """A new context with everything that explains it. `damage` says why it may not be used.

    `cut` has the tokens that shortened instructions and an open question had before, by turn.
    """

    written: WrittenContext
    composer: Composer
    archive: Archive
    damage: list[str]
    cut: dict[int, int]


@traced("classify")
def parse_context(messages: Sequence[Message], dialect: Dialect, *, with_secrets: bool = True) -> ParsedContext:
    """Take a context apart and classify what is in it.

    Where no secrets may be told they are replaced first: what is cut in two would not be known for one any more.
    """
    turns, past = open_turns(messages, dialect)
    hidden = None if with_secrets else open_turns(_without_secrets(messages, dialect), dialect)[0]
    told = turns if hidden is None else hidden
    verdicts = classify(told, record_root(past))
    facts = extract_facts(finished_turns(told), verdicts.failures, verdicts.files, outcome_of)
    return ParsedContext(list(messages), turns, past, verdicts, facts, hidden)


def _without_secrets(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    from context_compactor.archive.redaction import redact  # its patterns take time to build

    return dialect.parse(redact([message.raw for message in messages]).value)


def compact_context(scene: ParsedContext, goal: Goal, config: EngineConfig) -> CompactedContext:
    """Bring a context under its target; lose nothing that cannot be recalled."""
    fitted = _fit_instructions(scene, goal, config)
    scene = structs.replace(scene, turns=fitted.turns)
    asked = _fit_open_question(scene, goal, config)
    scene = structs.replace(scene, turns=asked.turns)
    config = _with_overrides(config, scene.turns)
    sizes = turn_sizes(scene.turns, config.counter)
    spoken = tuple(turn_texts(scene.told, config.counter))
    decided = override_zones(scene.turns, config.steers)
    kept = [number for number, zone in decided.items() if zone is Zone.VERBATIM]
    room = Room(scene.turns, sizes, room_for_turns(scene.turns, sizes, goal.target, kept), goal.shares, decided)
    room = structs.replace(room, shares=goal.shares.scaled(share_factor(room.share)))
    stays = _share_of_history(scene, room)
    layouts = (layout.zones(room) for layout in config.layouts)
    for steered in (
        apply_overrides(zones, scene.turns, sizes, config.steers) for zones in layouts if zones is not None
    ):
        composer = plan_context(scene, steered, spoken, room, goal.bytes, config)
        written = fill_target(composer.draft, composer.story, goal.target, stays, composer.write)
        if written.tokens <= goal.target:
            break
    else:  # nothing fits: of the ledgers only the failures stay, and the task in a few words
        composer = plan_context(scene, steered, spoken, room, goal.bytes, config, thrift=0.0)
        written = fill_target(composer.draft, composer.story, goal.target, stays, composer.write)
    damage = find_damage(scene.messages, written.messages, config.dialect)
    edits, tokens = written.texts.edits, composer.turn_tokens
    originals = gather_originals(scene.turns, steered.zones, edits, scene.verdicts, tokens, written.cited())
    archive = Archive((*fitted.originals, *originals, *asked.originals))  # of two with one id the last one counts
    return CompactedContext(written, composer, archive, damage, fitted.cut | asked.cut)


def _share_of_history(scene: ParsedContext, room: Room) -> float:
    """How much may stay of everything there was, with what an earlier record stands for."""
    told = scene.past.tokens if scene.past else 0
    return room.tokens / max(told + room.tokens / max(room.share, 1e-6), 1.0)


def _with_overrides(config: EngineConfig, turns: Sequence[Turn]) -> EngineConfig:
    """The kit with the steers that can be followed, and what follows them."""
    if not config.steers:
        return config
    steers = valid_overrides(turns, config.steers)
    factors = {
        number: _SUMMARIZED_TURN_FACTOR * config.factors.get(number, 1.0)
        for number in steers
        if steers[number] is Tier.SUMMARIZE
    }
    return structs.replace(
        config,
        steers=steers,
        factors=config.factors | factors,
        strategies=(*config.strategies, FollowTierOverrides(steers)),
    )


def _fit_instructions(scene: ParsedContext, goal: Goal, config: EngineConfig) -> FittedTurns:
    if not goal.may_cut_instructions:
        return FittedTurns(scene.turns)
    return fit_instructions(scene.turns, goal.target, config.counter, config.dialect)


def _fit_open_question(scene: ParsedContext, goal: Goal, config: EngineConfig) -> FittedTurns:
    kept = [number for number, tier in config.steers.items() if tier is Tier.KEEP]
    return fit_open_question(
        scene.turns, goal.target, config.counter, config.dialect, scene.verdicts, past=scene.past, kept=kept
    )


@traced("plan")
def plan_context(
    scene: ParsedContext,
    steered: ZonedTurns,
    spoken: tuple[TurnText, ...],
    room: Room,
    most_bytes: int,
    config: EngineConfig,
    thrift: float | None = None,
) -> Composer:
    """Gather what must stay and what may, and put the options of all strategies on the scales."""
    zones, share = steered.zones, room.share
    folded = [turn for turn in scene.told if zones[turn.number] is Zone.FOLDED]
    known = required_content(
        scene.facts,
        folded,
        scene.past,
        int(room.tokens * (1.0 if thrift is None else thrift)),
        config.counter.text,
        scene.verdicts.root,
    )
    tells_newest = config.is_one_message and thrift is None
    excerpts = scene.past.excerpts if scene.past else ()
    weights = weights_for_share(config.weights, share)
    sources = build_sources(spoken, excerpts, known.optional, scene.verdicts, weights)
    bare = turns_without_media(scene.turns, zones, most_bytes, config.steers)
    quoted = "\n".join(quote.text for quote in known.quotes)
    table = NameTable()
    view = PlanningView(
        tuple(scene.turns),
        zones,
        sources,
        scene.verdicts,
        table,
        weights,
        Focus(config.focus, terms) if config.focus else None,
        bare,
        quoted,
        config.factors,
        config.steers,
        steered.why,
    )
    proposed = (option for strategy in config.strategies for option in strategy.propose(view))
    options = valid_options(proposed, sources, scene.verdicts)
    draft = draft_plan(view, options, known.texts())
    tokens = {turn.number: size.whole for turn, size in zip(room.turns, room.sizes, strict=True)}
    newest = newest_excerpts(folded, scene.verdicts, int(room.tokens * _NEWEST_SHARE)) if tells_newest else ()
    ledger = RecordContent(known.quotes, known.must, scene.past, newest)
    story = _build_story(scene, view, [*known.texts(), *_excerpt_texts(newest)], tokens, config)
    return Composer(view, draft, ledger, config.counter, config.dialect, tokens, story, config.is_one_message)


def _excerpt_texts(excerpts: Sequence[Excerpt]) -> list[str]:
    return ["\n".join(excerpt.lines) for excerpt in excerpts]


def _build_story(
    scene: ParsedContext, view: PlanningView, standing: Sequence[str], tokens: dict[int, int], config: EngineConfig
) -> Story:
    """What can be told of the folded turns, weighed against what stands in the context anyway."""
    lowered = {number for number, tier in view.steers.items() if tier in (Tier.REFERENCE, Tier.DROP)}
    folded = [number for number, zone in view.zones.items() if zone is Zone.FOLDED and number not in lowered]
    units = story_units(scene.told, scene.verdicts, scene.past, folded)
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
