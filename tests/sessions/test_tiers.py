"""The user sets tiers: every compaction follows them, in every process, until it is taken back or the turn is gone."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import AsyncSession, BadSetting
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.turns import split_turns
from context_compactor.engine.tiers import Tier
from context_compactor.sessions.session import Session
from context_compactor.store.sqlite import SqliteStore
from tests.dialects.strategies import DIALECT_NAMES
from tests.sessions.talk import CALM, Raw, count, illegal, messages, opened

WINDOW = 6_000
"""Large enough for the talk, and small enough that an emergency has something to do."""


def talked(session: Session, rounds: int = 10) -> None:
    """A question, a call, its result and an answer, so many times, then a question that waits."""
    session.append(messages(0, rounds * 4 + 1))


def talked_on(session: Session, first: int) -> None:
    """Ten rounds more."""
    session.append(messages(first, first + 40))


def failing(number: int) -> list[Raw]:
    """A command that fails."""
    call = {"name": "Bash", "arguments": json.dumps({"command": f"make part_{number}"})}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"f{number}", "type": "function", "function": call}],
        },
        {
            "role": "tool",
            "tool_call_id": f"f{number}",
            "content": f"Exit code 2\nE_{number}: part_{number} is not there",
        },
    ]


def numbers(session: Session) -> list[int]:
    return [turn.number for turn in session._core.parse_context().content.turns]


def text_of(context: list[Raw]) -> str:
    return json.dumps(context)


def wanted_turns(session: Session) -> dict[int, list[Raw]]:
    """Every turn as it was appended, by its number: a question, a call with its result, an answer."""
    turns = split_turns(find_dialect("auto", session.history()).parse(session.history()))
    return {turn.number: [message.raw for message in turn.messages] for turn in turns}


def shown(raw: Raw, context: list[Raw]) -> bool:
    """Whether a message stands in a context, be it in one with the record."""
    field = "parts" if "parts" in raw else "content"
    said = raw.get(field)
    joined = said if isinstance(said, list) else [{"type": "text", "text": said}]
    return raw in context or any(isinstance(each.get(field), list) and each[field][1:] == joined for each in context)


def kept_messages(session: Session) -> list[Raw]:
    """The messages of the turns that the user keeps, as they stand in the context."""
    kept = [number for number, tier in session.tiers().items() if tier is Tier.KEEP]
    turns = [turn for turn in session._core.parse_context().content.turns if turn.number in kept]
    return [message.raw for turn in turns for message in turn.messages]


def lost(session: Session) -> list[int]:
    """Turns that cannot be recalled as they were appended."""
    return [
        number for number, turn in wanted_turns(session).items() if session.original(f"turn_{number:03d}").value != turn
    ]


def test_a_turn_that_is_kept_stays_byte_for_byte_through_compaction_after_compaction(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        talked(session)
        turn = wanted_turns(session)[5]
        session.set_tier(5, "keep")
        for more in range(3):
            report = session.compact(level="emergency")
            assert report.changed
            context = session.context()
            at = context.index(turn[0])
            assert context[at : at + len(turn)] == turn
            assert "kept by you" in {item.reason for item in report.preserved}
            session.append(messages(41 + more * 40, 41 + (more + 1) * 40))
        assert session.tiers() == {5: Tier.KEEP}
        assert lost(session) == []


def test_a_tier_that_is_set_in_one_process_is_followed_in_another(tmp_path: Path):
    with (
        opened(tmp_path, window=WINDOW, automatic=False) as one,
        opened(tmp_path, window=WINDOW, automatic=False) as other,
    ):
        talked(one)
        one.set_tier(5, "keep")
        assert other.tiers() == {5: Tier.KEEP}
        assert wanted_turns(one)[5][0] in (other.compact(level="emergency") and other.context())


def test_a_compaction_that_nobody_asked_for_follows_as_well(tmp_path: Path):
    with opened(tmp_path, automatic=False) as session:
        session.append(messages(0, 12))
        session.set_tier(2, "keep")
        turn = wanted_turns(session)[2]
    with opened(tmp_path) as session:
        reports = [session.append(messages(first, first + 4)) for first in range(12, 120, 4)]
        assert any(report is not None and report.changed for report in reports)
        assert all(raw in session.context() for raw in turn)


def test_the_plan_says_what_the_compaction_does_then(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        talked(session)
        for turn, tier in ((2, "keep"), (5, "drop"), (8, "reference"), (11, "summarize")):
            session.set_tier(turn, tier)
        plan = session.plan(target_tokens=1_500)
        before = session.context()
        assert {each.turn: each.set_tier for each in plan.turns() if each.set_tier} == session.tiers()
        report = session.compact(target_tokens=1_500)
        assert before != session.context()
        named = ("tokens_before", "tokens_after", "messages_after", "preserved", "summarized", "discarded", "status")
        assert [getattr(plan.report, name) for name in named] == [getattr(report, name) for name in named]
        tiers = {each.turn: each.tier for each in plan.turns()}
        assert (tiers[2], tiers[5], tiers[8], tiers[11]) == (Tier.KEEP, Tier.DROP, Tier.REFERENCE, Tier.SUMMARIZE)


def test_a_plan_changes_nothing_and_its_totals_are_those_of_its_decisions(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        talked(session)
        row = session._core.store.session("run")
        plan = session.plan("compute_3", "emergency")
        assert session._core.store.session("run") == row
        assert sum(total.targets for total in plan.totals()) == len(plan.decisions)
        assert sum(total.tokens_after for total in plan.totals()) == sum(each.tokens_after for each in plan.decisions)
        assert session.compact("compute_3", "emergency", dry_run=True).tokens_after == plan.report.tokens_after


def test_a_tier_is_taken_back_alone_or_with_all_others(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        talked(session)
        plain = session.plan(level="emergency")
        for turn in (2, 5, 8):
            session.set_tier(turn, "keep")
        session.set_tier(8, Tier.DROP)
        assert session.tiers() == {2: Tier.KEEP, 5: Tier.KEEP, 8: Tier.DROP}
        session.clear_tier(5)
        assert session.tiers() == {2: Tier.KEEP, 8: Tier.DROP}
        session.clear_tier()
        assert session.tiers() == {}
        assert session.plan(level="emergency").decisions == plain.decisions


def test_a_tier_ends_when_its_turn_is_folded_and_counts_again_after_an_undo(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        talked(session)
        session.set_tier(5, "drop")
        session.set_tier(8, "keep")
        session.compact(level="emergency")
        assert session.tiers() == {8: Tier.KEEP}
        with pytest.raises(BadSetting, match="folded already"):
            session.set_tier(5, "keep")
        session.undo()
        assert session.tiers() == {5: Tier.DROP, 8: Tier.KEEP}


def test_what_must_not_be_touched_is_refused_with_the_reason(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        session.append({"role": "system", "content": "Be careful."})
        talked(session, 3)
        for turn, tier, why in (
            (0, "drop", "instructions"),
            (10, "summarize", "not answered yet"),
            (11, "keep", "there is no such turn; the last one is 10"),
            (-4, "keep", "no such turn"),
            (True, "keep", "not a turn number"),
            ("5", "keep", "not a turn number"),
            (5, "gone", "known tiers: keep, summarize, reference, drop"),
        ):
            with pytest.raises(BadSetting, match=why):
                session.set_tier(turn, tier)  # type: ignore[arg-type]
        assert session.tiers() == {}
        session.set_tier(10, "keep")
        assert session.tiers() == {10: Tier.KEEP}


def test_facts_of_turns_that_were_folded_around_one_that_stays_are_not_forgotten(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        session.append([*messages(0, 24), messages(24, 25)[0], *failing(1), messages(27, 28)[0]])
        talked_on(session, 28)
        session.set_tier(2, "keep")
        before = {(fact.kind, fact.content) for fact in session.facts("failure")}
        assert before
        session.compact(level="emergency")
        talked_on(session, 68)
        session.compact(level="emergency")
        after = {(fact.kind, fact.content) for fact in session.facts("failure")}
        assert before <= after
        session.prepare()
        assert before <= {(fact.kind, fact.content) for fact in session.facts("failure")}


def test_a_failure_in_a_turn_that_is_dropped_stands_in_the_context(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        session.append([messages(0, 1)[0], *failing(1), messages(3, 4)[0]])
        talked_on(session, 4)
        session.set_tier(2, "drop")
        report = session.compact(level="emergency")
        assert "lowered by you" in {item.reason for item in report.discarded}
        assert "make part_1" in text_of(session.context())
        assert "E_1: part_1 is not there" in text_of(session.context())


def test_a_handoff_a_fresh_window_and_a_checkpoint_go_on_behind_a_turn_that_was_kept(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        talked(session)
        session.set_tier(5, "keep")
        session.compact(level="emergency")
        session.checkpoint()
        session.handoff("write")
        session.fresh()
        assert wanted_turns(session)[5][0] in session.context()
        session.append(messages(41, 45))
        assert lost(session) == []


async def _awaited(folder: Path) -> dict[int, Tier]:
    address = f"sqlite:///{folder / 'sessions.db'}"
    async with await AsyncSession.open(
        "run", store=address, window=WINDOW, settings=CALM, count_tokens=count
    ) as session:
        await session.append(messages(0, 41))
        await session.set_tier(5, "keep")
        await session.set_tier(8, "drop")
        await session.clear_tier(8)
        plan = await session.plan(level="emergency")
        assert plan.report.changed
        return await session.tiers()


def test_an_async_session_sets_tiers_alike(tmp_path: Path):
    assert asyncio.run(_awaited(tmp_path)) == {5: Tier.KEEP}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("set_tier"), st.integers(0, 60), st.sampled_from(Tier)),
        st.tuples(st.just("clear_tier"), st.integers(0, 60), st.just(Tier.KEEP)),
        st.tuples(st.sampled_from(("append", "compact", "undo", "redo")), st.integers(1, 9), st.just(Tier.KEEP)),
    ),
    min_size=4,
    max_size=16,
)


def do(session: Session, dialect: str, step: str, number: int, tier: Tier) -> None:
    live = numbers(session)
    if step == "append":
        first = len(session.history())
        session.append(messages(first, first + number, dialect))
    elif step in ("set_tier", "clear_tier") and not live:
        return
    elif step == "set_tier":
        try:
            session.set_tier(live[number % len(live)], tier)
        except BadSetting as error:
            assert "not answered yet" in str(error)
    elif step == "clear_tier":
        session.clear_tier(live[number % len(live)])
    elif step == "compact":
        target = 300 * number
        plan = session.plan(target_tokens=target)
        report = session.compact(target_tokens=target)
        assert (plan.report.status, plan.report.tokens_after) == (report.status, report.tokens_after)
        assert report.status != "failed"
        assert report.status != "success" or report.tokens_after <= target
    else:
        session.undo() if step == "undo" else session.redo()


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(drawn=steps)
def test_whatever_tiers_are_set_nothing_is_lost_all_is_legal_and_what_is_kept_is_there(dialect, drawn):
    options = {"dialect": dialect, "window": WINDOW, "automatic": False, "max_output_tokens": 100_000}
    with closing(SqliteStore()) as store, opened(store, **options) as session:
        session.append(messages(0, 60, dialect))
        for step in drawn:
            before = kept_messages(session)
            do(session, dialect, *step)
            context = session.context()
            assert illegal(context, dialect) == []
            assert step[0] != "compact" or all(shown(raw, context) for raw in before)
        assert lost(session) == []
        assert store.session("run").messages == len(session.history())
        assert list(store.verify()) == []


def test_a_plan_where_nothing_has_to_go_keeps_every_turn_and_says_why(tmp_path: Path):
    with opened(tmp_path, window=WINDOW, automatic=False) as session:
        assert session.plan().decisions == ()
        talked(session)
        plan = session.plan(target_tokens=1_000_000, tiers={2: "keep", 5: "drop"})
        assert (plan.report.status, "within the target" in plan.report.reason) == ("unchanged", True)
        turns = plan.turns()
        assert [each.turn for each in turns] == [each.turn for each in session.plan(level="emergency").turns()]
        assert {each.tier for each in turns} == {Tier.KEEP}
        assert all(each.tokens_before == each.tokens_after > 0 for each in turns)
        assert {each.turn: each.reason for each in turns}[2] == "kept by you"
        assert {each.turn: each.set_tier for each in turns if each.set_tier} == {2: Tier.KEEP, 5: Tier.DROP}


def test_the_names_of_earlier_versions_still_work_and_say_which_to_use(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(messages(0, 24))
        with pytest.warns(DeprecationWarning, match=r"steer\(\) is deprecated; use set_tier\(\)"):
            session.steer(3, "keep")
        with pytest.warns(DeprecationWarning, match=r"use tiers\(\)"):
            assert session.steering() == {3: Tier.KEEP}
        with pytest.warns(DeprecationWarning, match=r"use clear_tier\(\)"):
            session.unsteer()
        with pytest.warns(DeprecationWarning, match=r"use prepare\(\)"):
            assert session.work_ahead().told == 0
        with pytest.warns(DeprecationWarning, match=r"use clone\(\)"):
            session.twin().close()
        assert session.tiers() == {}
