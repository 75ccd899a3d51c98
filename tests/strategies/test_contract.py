"""What every strategy and every layout must keep to. A new one is tested by adding it to the lists of the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import Message
from context_compactor.dialects.repair import repair
from context_compactor.engine.classify import parse_context
from context_compactor.engine.compact import write_context
from context_compactor.engine.layouts import Room, Shares, Zone, room_for_turns, turn_sizes
from context_compactor.engine.options import OUTCOME, Option
from context_compactor.engine.request import EngineConfig, Goal, shares_for
from context_compactor.engine.result import CompactedContext
from context_compactor.engine.strategies import DEFAULT_LAYOUTS, DEFAULT_STRATEGIES
from context_compactor.engine.tiers import Tier
from context_compactor.engine.view import PlanningView
from context_compactor.facts.kinds import Voice
from context_compactor.protocols import Layout, Strategy
from context_compactor.settings import Level
from context_compactor.tokens.counting import MessageCounter, counter_for
from tests.dialects.strategies import histories
from tests.engine.sessions import sessions, shares
from tests.engine.talks import DIALECT_NAMES

every_strategy = pytest.mark.parametrize("strategy", DEFAULT_STRATEGIES, ids=lambda strategy: type(strategy).__name__)
every_layout = pytest.mark.parametrize("layout", DEFAULT_LAYOUTS, ids=str)
LEVELS = (*Level, None)


def legal(raw: list[dict], dialect: str) -> list[Message]:
    return repair(DIALECTS[dialect].parse(raw), DIALECTS[dialect])[0]


def contexts() -> SearchStrategy[tuple[str, list[Message]]]:
    """Contexts in any dialect, also ones that had to be repaired."""
    drawn = [sessions(name).map(lambda session: (session.dialect, session.messages)) for name in DIALECT_NAMES]
    drawn += [histories(name, 2, 6).map(lambda raw, name=name: (name, raw)) for name in DIALECT_NAMES]
    return st.one_of(drawn).map(lambda pair: (pair[0], legal(pair[1], pair[0])))


@st.composite
def outcomes(draw: st.DrawFn) -> CompactedContext:
    """Compactions of fresh contexts and of ones that carry a record."""
    dialect, messages = draw(contexts())
    counter = MessageCounter(counter_for(None), dialect)
    config = EngineConfig(DIALECTS[dialect], counter, DEFAULT_STRATEGIES, DEFAULT_LAYOUTS)
    level = draw(st.sampled_from(LEVELS))
    for _ in range(draw(st.integers(1, 2))):
        target = max(1, int(counter.request_tokens(messages) * draw(shares)))
        goal = Goal(target, 10**9, level, shares_for(level, 5, 0.25))
        outcome = write_context(parse_context(messages, config.dialect), goal, config)
        messages = outcome.written.messages
    return outcome


def views() -> SearchStrategy[PlanningView]:
    """Views as strategies are shown them."""
    return outcomes().map(lambda outcome: outcome.composer.view)


@st.composite
def rooms(draw: st.DrawFn) -> Room:
    """Rooms of any size, down to one token."""
    dialect, messages = draw(contexts())
    turns = parse_context(messages, DIALECTS[dialect]).turns
    sizes = turn_sizes(turns, MessageCounter(counter_for(None), dialect))
    target = max(1, int(sum(size.whole for size in sizes) * draw(shares)))
    wanted = shares_for(draw(st.sampled_from(LEVELS)), draw(st.integers(0, 8)), 0.25)
    return Room(turns, sizes, room_for_turns(turns, sizes, target), wanted)


def of_tier(options: Iterable[Option], *tiers: Tier) -> Iterator[Option]:
    return (option for option in options if option.tier in tiers)


def proposed(view: PlanningView) -> Iterator[Option]:
    """What all strategies say about a view; each option is signed by its own."""
    return (option for strategy in DEFAULT_STRATEGIES for option in strategy.propose(view))


@every_strategy
def test_a_strategy_is_a_value_with_a_name(strategy):
    assert isinstance(strategy, Strategy)
    assert strategy.name == strategy.name.lower()
    assert strategy == type(strategy)()
    assert hash(strategy) == hash(type(strategy)())


@given(view=views())
def test_options_are_about_sources_and_blocks_that_exist_and_may_be_shortened(view):
    for option in proposed(view):
        source = view.sources[option.source]
        assert view.is_open(source), option
        assert OUTCOME <= option.block < len(source.blocks), option


@given(view=views())
def test_options_are_signed_and_give_a_reason_and_a_weight(view):
    for strategy in DEFAULT_STRATEGIES:
        for option in strategy.propose(view):
            assert option.strategy == strategy.name
            assert option.reason, strategy
            assert option.weight >= 0, strategy


@given(view=views())
def test_what_is_kept_is_kept_word_for_word(view):
    for option in of_tier(proposed(view), Tier.KEEP):
        assert option.text == view.sources[option.source].blocks[option.block].text, option.strategy


@given(view=views())
def test_thinking_is_left_out_whole_or_not_at_all(view):
    for option in proposed(view):
        if view.sources[option.source].voice is Voice.THINKING:
            assert (option.tier, option.text) == (Tier.DROP, ""), option.strategy


@given(view=views())
def test_the_same_view_gives_the_same_options(view):
    for strategy in DEFAULT_STRATEGIES:
        assert list(strategy.propose(view)) == list(strategy.propose(view)), strategy


def _is_quoted(source, view):
    return source.voice == "user" and all(block.text.strip() in view.quoted for block in source.blocks)


@given(outcome=outcomes())
def test_together_the_strategies_and_the_story_have_something_to_say_about_every_text(outcome):
    view = outcome.composer.view
    asked = [source for source in view.open_sources() if source.blocks and not _is_quoted(source, view)]
    proposals = {option.source for option in proposed(view)}
    turns = {unit.turn for unit in outcome.composer.story.units}
    assert [source for source in asked if source.number not in proposals and source.turn not in turns] == []


@given(outcome=outcomes())
def test_a_text_that_is_not_shorter_than_its_source_is_never_weighed(outcome):
    view = outcome.composer.view
    for option in of_tier(outcome.composer.draft.options, Tier.SUMMARIZE):
        assert 0 < len(option.text) < len(view.sources[option.source].text)


def served(room: Room) -> Iterator[tuple[Layout, Mapping[int, Zone]]]:
    """The layouts that serve a room, with the zones that they give."""
    return ((layout, zones) for layout in DEFAULT_LAYOUTS if (zones := layout.zones(room)))


@every_layout
def test_a_layout_is_a_value_with_a_name(layout):
    assert isinstance(layout, Layout)
    assert layout.name
    assert hash(layout) == hash(type(layout)(**vars(layout)))


@given(room=rooms())
def test_a_layout_gives_every_turn_a_zone_or_does_not_serve(room):
    for layout in DEFAULT_LAYOUTS:
        zones = layout.zones(room)
        assert zones is None or list(zones) == [turn.number for turn in room.turns], layout


@given(room=rooms())
def test_instructions_are_fixed_and_nothing_else_is(room):
    for layout, zones in served(room):
        for turn in room.turns:
            assert (zones[turn.number] is Zone.FIXED) == turn.is_instruction, layout


@given(room=rooms())
def test_what_nobody_has_answered_stays_verbatim(room):
    for layout, zones in served(room):
        for turn in reversed(room.turns):
            if turn.role != "user" or turn.exchanges:
                break
            assert zones[turn.number] is Zone.VERBATIM, layout


@given(room=rooms())
def test_what_is_folded_comes_before_what_stays(room):
    for layout, zones in served(room):
        kept = [zone for zone in zones.values() if zone is not Zone.FIXED]
        assert kept == sorted(kept, key=lambda zone: zone is not Zone.FOLDED), layout


@given(room=rooms())
def test_the_same_room_gives_the_same_zones(room):
    for layout in DEFAULT_LAYOUTS:
        assert layout.zones(room) == layout.zones(room), layout


@given(room=rooms())
def test_the_last_layout_of_the_ladder_always_serves(room):
    assert DEFAULT_LAYOUTS[-1].zones(room) is not None


def test_an_empty_context_has_no_zones():
    assert [layout.zones(Room([], [], 100, Shares())) for layout in DEFAULT_LAYOUTS] == [{}] * len(DEFAULT_LAYOUTS)
