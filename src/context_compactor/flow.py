"""READ FIRST: one compaction, from messages in to a context that fits.

    messages in → measure → classify → plan → write → verify → apply → archive → context out

Every stage is a plain function on frozen values; the next lines call them in order. Nothing is changed in place: what
comes out is a new context beside the old one, and a caller that stops half-way has lost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from context_compactor.apply.compose import Composer, Ledger, Written
from context_compactor.apply.instructions import Fitted, fit_instructions
from context_compactor.apply.media import turns_without_media
from context_compactor.apply.verify import find_damage, sound_options
from context_compactor.archive.archive import Archive
from context_compactor.archive.gather import gather_originals
from context_compactor.archive.search.words import terms
from context_compactor.classify.names import NameTable
from context_compactor.classify.pins import settled
from context_compactor.classify.relevance import Weights, lean, thrift_for
from context_compactor.classify.rules import Verdicts, classify
from context_compactor.classify.steer import Steers, sound_steers
from context_compactor.classify.tier import Tier
from context_compactor.engine.fit import fill_target
from context_compactor.engine.newest import newest_excerpts
from context_compactor.engine.open_question import fit_open_question
from context_compactor.engine.outcomes import outcome_of
from context_compactor.engine.story import Story, story_units
from context_compactor.facts.extract import extract_facts
from context_compactor.facts.fact import Fact
from context_compactor.facts.remember import remember, root_of
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.message import Message
from context_compactor.messages.record import Excerpt, Record, open_turns
from context_compactor.messages.turn import Turn
from context_compactor.plan.focus import Focus
from context_compactor.plan.goal import Goal
from context_compactor.plan.planner import draft_plan
from context_compactor.plan.steering import Steered, decided_zones, follow
from context_compactor.plan.view import Spoken, View, build_sources, spoken_in
from context_compactor.plan.zones import Room, Zone, room_for_turns, turn_sizes
from context_compactor.protocols import Layout, Strategy
from context_compactor.strategies.follow_steers import FollowSteers
from context_compactor.tracing import traced

# How much more the lines of a turn count that the user wants to have in a few lines.
_RAISED = 4.0
# Where the context is one message, the share of the target that the newest turns may take in it.
_NEWEST_SHARE = 0.2
# How much more a sentence counts that is about all of what the user wants to have in view.
_FOCUS_FACTOR = 8.0


class Kit(Struct, frozen=True):
    """What a compaction works with."""

    dialect: Dialect
    counter: MessageCounter
    strategies: tuple[Strategy, ...]
    ladder: tuple[Layout, ...]
    weights: Weights = Weights()
    focus: str = ""
    factors: dict[int, float] = {}
    """How much more or less the lines of turns count, by their number."""
    steers: Steers = {}
    """What the user has decided about turns."""
    is_one_message: bool = False
    """Whether the context is to be a record alone, with the newest turns in it and the open question behind."""


class Scene(Struct, frozen=True):
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


class Outcome(Struct, frozen=True):
    """A new context with everything that explains it. `damage` says why it may not be used.

    `cut` has the tokens that shortened instructions and an open question had before, by turn.
    """

    written: Written
    composer: Composer
    archive: Archive
    damage: list[str]
    cut: dict[int, int]


@traced("classify")
def read_scene(messages: Sequence[Message], dialect: Dialect, *, tells_secrets: bool = True) -> Scene:
    """Take a context apart and classify what is in it.

    Where no secrets may be told they are replaced first: what is cut in two would not be known for one any more.
    """
    turns, past = open_turns(messages, dialect)
    hidden = None if tells_secrets else open_turns(_without_secrets(messages, dialect), dialect)[0]
    told = turns if hidden is None else hidden
    verdicts = classify(told, root_of(past))
    facts = extract_facts(settled(told), verdicts.failures, verdicts.files, outcome_of)
    return Scene(list(messages), turns, past, verdicts, facts, hidden)


def _without_secrets(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    from context_compactor.archive.redact import redact  # its patterns take time to build

    return dialect.parse(redact([message.raw for message in messages]).value)


def compact(scene: Scene, goal: Goal, kit: Kit) -> Outcome:
    """Bring a context under its target; lose nothing that cannot be recalled."""
    fitted = _fit_instructions(scene, goal, kit)
    scene = structs.replace(scene, turns=fitted.turns)
    asked = _fit_open_question(scene, goal, kit)
    scene = structs.replace(scene, turns=asked.turns)
    kit = _steered(kit, scene.turns)
    sizes = turn_sizes(scene.turns, kit.counter)
    spoken = tuple(spoken_in(scene.told, kit.counter))
    decided = decided_zones(scene.turns, kit.steers)
    kept = [number for number, zone in decided.items() if zone is Zone.VERBATIM]
    room = Room(scene.turns, sizes, room_for_turns(scene.turns, sizes, goal.target, kept), goal.shares, decided)
    room = structs.replace(room, shares=goal.shares.scaled(thrift_for(room.share)))
    stays = _share_of_history(scene, room)
    layouts = (layout.zones(room) for layout in kit.ladder)
    for steered in (follow(zones, scene.turns, sizes, kit.steers) for zones in layouts if zones is not None):
        composer = plan(scene, steered, spoken, room, goal.bytes, kit)
        written = fill_target(composer.draft, composer.story, goal.target, stays, composer.write)
        if written.tokens <= goal.target:
            break
    else:  # nothing fits: of the ledgers only the failures stay, and the task in a few words
        composer = plan(scene, steered, spoken, room, goal.bytes, kit, thrift=0.0)
        written = fill_target(composer.draft, composer.story, goal.target, stays, composer.write)
    damage = find_damage(scene.messages, written.messages, kit.dialect)
    edits, tokens = written.texts.edits, composer.turn_tokens
    originals = gather_originals(scene.turns, steered.zones, edits, scene.verdicts, tokens, written.cited())
    archive = Archive((*fitted.originals, *originals, *asked.originals))  # of two with one id the last one counts
    return Outcome(written, composer, archive, damage, fitted.cut | asked.cut)


def _share_of_history(scene: Scene, room: Room) -> float:
    """How much may stay of everything there was, with what an earlier record stands for."""
    told = scene.past.tokens if scene.past else 0
    return room.tokens / max(told + room.tokens / max(room.share, 1e-6), 1.0)


def _steered(kit: Kit, turns: Sequence[Turn]) -> Kit:
    """The kit with the steers that can be followed, and what follows them."""
    if not kit.steers:
        return kit
    steers = sound_steers(turns, kit.steers)
    factors = {number: _RAISED * kit.factors.get(number, 1.0) for number in steers if steers[number] is Tier.SUMMARIZE}
    return structs.replace(
        kit,
        steers=steers,
        factors=kit.factors | factors,
        strategies=(*kit.strategies, FollowSteers(steers)),
    )


def _fit_instructions(scene: Scene, goal: Goal, kit: Kit) -> Fitted:
    if not goal.may_cut_instructions:
        return Fitted(scene.turns)
    return fit_instructions(scene.turns, goal.target, kit.counter, kit.dialect)


def _fit_open_question(scene: Scene, goal: Goal, kit: Kit) -> Fitted:
    kept = [number for number, tier in kit.steers.items() if tier is Tier.KEEP]
    return fit_open_question(
        scene.turns, goal.target, kit.counter, kit.dialect, scene.verdicts, past=scene.past, kept=kept
    )


@traced("plan")
def plan(
    scene: Scene,
    steered: Steered,
    spoken: tuple[Spoken, ...],
    room: Room,
    most_bytes: int,
    kit: Kit,
    thrift: float | None = None,
) -> Composer:
    """Gather what must stay and what may, and put the options of all strategies on the scales."""
    zones, share = steered.zones, room.share
    folded = [turn for turn in scene.told if zones[turn.number] is Zone.FOLDED]
    known = remember(
        scene.facts,
        folded,
        scene.past,
        int(room.tokens * (1.0 if thrift is None else thrift)),
        kit.counter.text,
        scene.verdicts.root,
    )
    tells_newest = kit.is_one_message and thrift is None
    excerpts = scene.past.excerpts if scene.past else ()
    weights = lean(kit.weights, share)
    sources = build_sources(spoken, excerpts, known.optional, scene.verdicts, weights)
    bare = turns_without_media(scene.turns, zones, most_bytes, kit.steers)
    quoted = "\n".join(quote.text for quote in known.quotes)
    table = NameTable()
    view = View(
        tuple(scene.turns),
        zones,
        sources,
        scene.verdicts,
        table,
        weights,
        Focus(kit.focus, terms) if kit.focus else None,
        bare,
        quoted,
        kit.factors,
        kit.steers,
        steered.why,
    )
    proposed = (option for strategy in kit.strategies for option in strategy.propose(view))
    options = sound_options(proposed, sources, scene.verdicts)
    draft = draft_plan(view, options, known.texts())
    tokens = {turn.number: size.whole for turn, size in zip(room.turns, room.sizes, strict=True)}
    newest = newest_excerpts(folded, scene.verdicts, int(room.tokens * _NEWEST_SHARE)) if tells_newest else ()
    ledger = Ledger(known.quotes, known.must, scene.past, newest)
    story = _story(scene, view, [*known.texts(), *_words(newest)], tokens, kit)
    return Composer(view, draft, ledger, kit.counter, kit.dialect, tokens, story, kit.is_one_message)


def _words(excerpts: Sequence[Excerpt]) -> list[str]:
    return ["\n".join(excerpt.lines) for excerpt in excerpts]


def _story(scene: Scene, view: View, standing: Sequence[str], tokens: dict[int, int], kit: Kit) -> Story:
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
    story = Story(units, kit.counter.texts, after)
    story.cover(standing)
    story.start()
    return story
