"""Summaries in the background: told while nobody waits, held, and swapped in at once if nothing has changed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from context_compactor.errors import ModelDenied, ModelUnavailable
from context_compactor.sessions.async_session import AsyncSession
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import CircuitBreaker, WorkClaim, read_session_state
from context_compactor.sessions.summaries import PRESUMMARY
from context_compactor.settings import ModelEntry, Settings
from context_compactor.store.sqlite import SqliteStore
from context_compactor.summarize.model import ModelAnswer
from context_compactor.testing import ScriptedModel
from context_compactor.tokens.prices import ModelUsage
from tests.sessions.summarizing import FIRST, PLAIN, QUICK, Ears, Slow, opened, step, steps, stories
from tests.sessions.talk import illegal
from tests.store.children import Child
from tests.summarize.samples import GOOD
from tests.waiting import PATIENCE, wait_for

USER = {"role": "user", "content": "Go on with the handler."}


def begun(model: object, store: object = "memory:", turns: int = 34, **more: object) -> Session:
    """A session that is about half full."""
    session = opened(model, store, **more)
    session.append([*FIRST, *steps(0, turns)])
    return session


def state_of(session: Session):
    return read_session_state(session._core.store.session("run").state)


def shown(model: ScriptedModel, first: int = 0) -> str:
    return "\n".join(message.text for request in model.requests[first:] for message in request.messages)


def fill(session: Session, first: int = 34):
    """Go on until something is compacted; its report."""
    for number in range(first, first + 60):
        report = session.append(step(number))
        if report is not None:
            return report
    raise AssertionError("nothing was compacted")


# Told, held, swapped in


def test_a_twin_that_is_closed_ends_nothing_of_the_others():
    with begun(ScriptedModel([GOOD])) as session:
        session.clone().close()
        assert session.prepare().summarized > 20
        assert "summarized 34 of the" in fill(session).reason


def test_what_was_told_ahead_is_swapped_in_at_the_threshold_without_asking_anybody():
    model, ears = ScriptedModel([GOOD]), Ears()
    with begun(model, ears=ears) as session:
        before = session.context()
        assert session.prepare().summarized > 20
        assert session.context() == before
        asked = len(model.requests)
        report = fill(session)
        assert len(model.requests) == asked
        assert report.level == "soft"
        assert report.summarized_by == "scripted"
        assert "summarized 34 of the" in report.reason
        assert len(report.model_calls) == asked
        assert any("httpOnly cookie" in line for line in stories(session))
        assert illegal(session.context()) == []
    assert ears.types.count("job.queued") == 1
    assert ears.reasons(PRESUMMARY) == []


def test_how_things_stood_is_left_out_when_the_work_went_on_since_and_told_when_it_did_not():
    model = ScriptedModel([GOOD])
    with begun(model) as session:
        session.prepare()
        fill(session)
        assert not any("staging secret is missing (turn_005)" in line for line in stories(session))
        assert "done: token rotation in src/auth/jwt.ts (turn_005)" in stories(session)


def test_what_comes_next_is_told_alone_with_the_story_so_far_before_it():
    model = ScriptedModel([GOOD])
    with begun(model) as session:
        session.prepare()
        first = len(model.requests)
        session.append(steps(34, 40))
        assert session.prepare().summarized == 6
        later = shown(model, first)
        assert "Looking around, part 33." in later
        assert "Looking around, part 20." not in later
        assert "- blocked: the staging secret is missing" in later
        report = fill(session, 40)
        assert "summarized 40 of the" in report.reason
        assert len(report.model_calls) == len(model.requests)


def test_it_is_not_told_again_while_little_is_new():
    model = ScriptedModel([GOOD])
    with begun(model) as session:
        session.prepare()
        asked = len(model.requests)
        session.append(step(34))
        assert session.prepare().summarized == 0
        assert len(model.requests) == asked


def test_it_outlives_the_process(tmp_path: Path):
    with begun(ScriptedModel([GOOD]), tmp_path) as session:
        session.prepare()
    model = ScriptedModel([GOOD])
    with opened(model, tmp_path) as session:
        report = fill(session)
        assert report.summarized_by == "scripted"
        assert model.requests == []
        assert session.verify() == []


def test_a_compaction_that_somebody_asks_for_uses_it_and_one_with_a_focus_does_not():
    for focus, asked in ((None, False), ("the cookie", True)):
        model, ears = ScriptedModel([GOOD]), Ears()
        with begun(model, ears=ears) as session:
            session.prepare()
            before = len(model.requests)
            report = session.compact(focus=focus)
            assert report.summarized_by == "scripted"
            assert (len(model.requests) > before) is asked
            assert bool(ears.reasons(PRESUMMARY)) is asked
            assert state_of(session).presummary == ""


def test_a_dry_run_says_that_nobody_would_be_asked_and_changes_nothing():
    with begun(ScriptedModel([GOOD])) as session:
        assert session.compact(dry_run=True).expected is not None
        session.prepare()
        held = state_of(session).presummary
        assert session.compact(dry_run=True).expected is None
        assert state_of(session).presummary == held


def test_an_emergency_has_the_time_for_it():
    model = ScriptedModel([GOOD])
    with begun(model) as session:
        session.prepare()
        asked = len(model.requests)
        report = session.append(steps(34, 62))
        assert report.level == "emergency"
        assert len(model.requests) == asked
        assert report.changed


# Nothing that has changed


def test_after_an_undo_it_is_dropped_and_said():
    model, ears = ScriptedModel([GOOD]), Ears()
    with begun(model, ears=ears) as session:
        session.compact()
        session.append(steps(34, 64))
        assert session.prepare().summarized
        session.undo()
        asked = len(model.requests)
        session.compact()
        assert len(model.requests) > asked
    assert ears.reasons(PRESUMMARY) == ["what it was made from has changed"]


def test_an_original_that_was_put_back_among_the_turns_it_tells_makes_it_untrue():
    model, ears = ScriptedModel([GOOD]), Ears()
    long = "\n".join(f"line {n} of the log, which is long and of no interest" for n in range(150))
    call = {"id": "log", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "cat log"}'}}
    with opened(model, ears=ears, max_output_tokens=800) as session:
        session.append([*FIRST, {"role": "assistant", "content": "The log.", "tool_calls": [call]}])
        session.append([{"role": "tool", "tool_call_id": "log", "content": long}, *steps(0, 32)])
        assert session.prepare().summarized
        ref = next(original.ref for original in session._core.store.originals("run"))
        session.restore(ref)
        session.compact(level="aggressive")
    assert ears.reasons(PRESUMMARY) == ["what it was made from has changed"]


@pytest.mark.parametrize("change", ["model", "prompt"])
def test_another_model_or_prompt_does_not_use_it(tmp_path: Path, change: str):
    with begun(ScriptedModel([GOOD]), tmp_path) as session:
        session.prepare()
    model, ears = ScriptedModel([GOOD], name="another" if change == "model" else "scripted"), Ears()
    own = {"compact_prompt": "Sum up:\n{messages}"} if change == "prompt" else {}
    with opened(model, tmp_path, ears=ears, **own) as session:
        session.compact()
    assert model.requests
    assert ears.reasons(PRESUMMARY) == ["what it was made from has changed"]


# While the model thinks


def test_no_snapshot_is_needed_for_a_summary_of_a_log_that_goes_on(tmp_path: Path):
    """The log is only added to and the base is known by its hash: what comes in mid-summary stands behind it, once."""
    model = Slow()
    with begun(model, tmp_path) as session:
        head = session._core.store.session("run").head
        entries = session._core.store.entries("run")
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(session.prepare)
            assert model.begun.wait(PATIENCE)
            for number in range(34, 38):
                session.append(step(number))
            with closing(SqliteStore(str(tmp_path / "sessions.db"))) as other, other.writing("run") as row:
                assert row.head == head + 8  # nobody holds a lock, in this process or in another
            model.go.set()
            assert ahead.result(PATIENCE).summarized == 34
        assert session._core.store.entries("run", until=head) == entries
        report = fill(session, 38)
        assert report.summarized_by == "scripted"
        history, context = session.history(), session.context()
        assert history == [*FIRST, *steps(0, (len(history) - len(FIRST)) // 2)]
        kept = [raw for raw in context if raw in history]
        assert kept == [raw for raw in history if raw in kept]
        assert context[-2:] == history[-2:]
        assert session.verify() == []


def test_what_was_told_of_a_context_that_is_gone_is_dropped():
    model, ears = Slow(PLAIN), Ears()
    with begun(model, ears=ears) as session:
        session.fresh()
        session.append(steps(34, 66))
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(session.prepare)
            assert model.begun.wait(PATIENCE)
            session.undo()
            model.go.set()
            assert ahead.result(PATIENCE).summarized == 0
        assert state_of(session).presummary == ""
    assert ears.reasons(PRESUMMARY) == ["what it was made from has changed meanwhile"]


def test_a_compaction_does_not_wait_for_it_and_ends_it():
    model = Slow()
    with begun(model) as session, ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(session.prepare)
        assert model.begun.wait(PATIENCE)
        assert session.fresh().changed
        assert ahead.result(PATIENCE).summarized == 0
        assert state_of(session).presummary == ""


def test_there_is_never_a_second_one_for_a_session(tmp_path: Path):
    model, second = Slow(), ScriptedModel([GOOD])
    with begun(model, tmp_path) as session, opened(second, tmp_path) as other, ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(session.prepare)
        assert model.begun.wait(PATIENCE)
        assert other.prepare().summarized == 0
        assert session.prepare().summarized == 0
        model.go.set()
        assert ahead.result(PATIENCE).summarized == 34
        assert second.requests == []
        assert state_of(session).presummary_claim == WorkClaim()


def test_one_of_another_process_keeps_us_from_it_until_that_process_is_dead(tmp_path: Path):
    with begun(None, tmp_path):
        pass

    def work(child: Child) -> None:
        model = Slow()
        with opened(model, tmp_path) as session:
            Thread(target=session.prepare, daemon=True).start()
            assert model.begun.wait(PATIENCE)
            child.say()
            model.go.wait(PATIENCE)

    model = ScriptedModel([GOOD])
    with Child(work) as child, opened(model, tmp_path) as session:
        child.hear()
        assert session.prepare().summarized == 0
        assert model.requests == []
        child.kill()
        child.wait()
        assert session.prepare().summarized == 34


def test_closing_ends_it_at_once_and_leaves_nothing_behind(tmp_path: Path):
    model = Slow()
    session = begun(model, tmp_path, idle_seconds=0.01)
    assert model.begun.wait(PATIENCE)
    session.close()
    assert not model.go.is_set()
    assert model.requests == []
    with opened(None, tmp_path) as again:
        assert state_of(again).presummary_claim == WorkClaim()
        assert state_of(again).presummary == ""
        assert state_of(again).summarizer_failures.failures == 0


def test_a_session_does_it_by_itself_when_nothing_comes():
    model = ScriptedModel([GOOD])
    with begun(model, idle_seconds=0.01) as session:
        wait_for(lambda: state_of(session).presummary)
        asked = len(model.requests)
        assert fill(session).summarized_by == "scripted"
        assert len(model.requests) >= asked


def test_an_async_session_does_it_too():
    async def live() -> None:
        model = Slow()
        session = await AsyncSession.open("run", window=32_000, store="memory:", settings=QUICK, summarizer=model)
        await session.append([*FIRST, *steps(0, 34)])
        ahead = asyncio.create_task(session.prepare())
        assert await asyncio.to_thread(model.begun.wait, PATIENCE)
        await session.append(step(34))  # nobody waits for the model
        model.go.set()
        assert (await ahead).summarized
        await session.close()

    asyncio.run(live())


# When not


@pytest.mark.parametrize("off", ["enabled", "automatic", "summarize_ahead"])
def test_nobody_is_asked_where_nothing_happens_by_itself(off: str):
    model = ScriptedModel([GOOD])
    with begun(model, **{off: False}) as session:
        assert session.prepare().summarized == 0
    assert model.requests == []


def test_without_a_model_there_is_nothing_to_tell_ahead():
    with begun(None) as session:
        assert session.prepare().summarized == 0
        assert session.compact().summarized_by == ""


def test_a_half_empty_context_is_left_alone():
    model = ScriptedModel([GOOD])
    with begun(model, turns=20) as session:
        assert session.usage().share < 0.4
        assert session.prepare().summarized == 0
    assert model.requests == []


# When it fails


def test_a_failure_is_told_and_the_same_is_not_asked_again_not_even_after_a_restart(tmp_path: Path):
    model, ears = ScriptedModel(["I cannot do that."]), Ears()
    with begun(model, tmp_path, ears=ears) as session:
        before = session.context()
        assert session.prepare().summarized == 0
        asked = len(model.requests)
        assert session.prepare().summarized == 0
        assert session.context() == before
    assert "was refused" in ears.reasons(PRESUMMARY)[0]
    with opened(model, tmp_path) as session:
        session.prepare()
        assert len(model.requests) == asked
        assert session.compact().changed


def test_a_server_that_was_away_is_asked_about_the_same_turns_when_it_is_back(tmp_path: Path):
    with begun(ScriptedModel([ModelUnavailable("503")]), tmp_path) as session:
        assert session.prepare().summarized == 0
    with opened(ScriptedModel([GOOD]), tmp_path) as session:
        assert session.prepare().summarized > 0


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_after_three_failures_in_a_row_the_model_rests_and_the_digest_serves(tmp_path: Path):
    model, ears, clock = ScriptedModel([ModelDenied("wrong key")]), Ears(), Clock()
    with opened(model, tmp_path, ears=ears, clock=clock) as session:
        session.append(FIRST)
        for number in (100, 200, 300):
            report = fill(session, number)
            assert report.level in ("soft", "aggressive")
            assert report.changed
            assert report.summarized_by == ""
        assert "the last 3 answers of scripted were of no use" in " ".join(ears.reasons("summary by a model"))
    asked = len(model.requests)
    with opened(model, tmp_path, ears=ears, clock=clock) as session:
        report = fill(session, 400)
        assert report.changed
        assert "asked again in 300 s" in report.reason
        session.append(steps(500, 525))
        assert session.prepare().summarized == 0
        assert len(model.requests) == asked
        session.compact(target_tokens=3_000)  # what somebody asks for is tried
        assert len(model.requests) > asked
        asked = len(model.requests)
        clock.now += timedelta(seconds=301)
        fill(session, 600)
        assert len(model.requests) > asked


def test_a_story_that_is_used_ends_the_row_of_failures():
    with begun(ScriptedModel([GOOD])) as session:
        session._core.change(lambda state: structs.replace(state, summarizer_failures=CircuitBreaker(2, "", 0.0)))
        session.compact()
        assert state_of(session).summarizer_failures == CircuitBreaker()


def test_what_it_costs_counts_for_the_limits_of_the_session():
    def told(_request: object) -> ModelAnswer:
        return ModelAnswer(text=GOOD, stop="complete", usage=ModelUsage(input=1_000, output=1_000))

    limits = Settings(
        idle_seconds=0,
        promote_to_memory=False,
        models={"scripted": ModelEntry(input=10.0, output=10.0)},
        session_spend_limit=1.0,
    )
    model = ScriptedModel([told])
    with begun(model, settings=limits) as session:
        session.prepare()
        spent = state_of(session).spent
        assert spent.attempts == len(model.requests)
        assert spent.dollars == pytest.approx(0.02 * spent.attempts)
        used = structs.replace(spent, dollars=0.9999)
        session._core.change(lambda state: structs.replace(state, spent=used))
        session.append(steps(34, 40))
        asked = len(model.requests)
        session.prepare()
        assert len(model.requests) == asked


def test_the_limits_of_a_compaction_hold_for_what_was_told_ahead_of_it_and_for_itself_together():
    model = ScriptedModel([GOOD])
    with begun(model, attempt_limit=12) as session:
        session.prepare()
        text = state_of(session).presummary_spent.attempts
        assert text == len(model.requests) > 0
        session.compact(focus="the cookie")
        assert len(model.requests) <= 12
        assert state_of(session).spent.attempts == len(model.requests)
        assert state_of(session).presummary_spent.attempts == 0


# Whatever happens


@given(st.lists(st.sampled_from(["append", "ahead", "compact", "undo", "redo", "fresh", "ask"]), max_size=10))
def test_whatever_happens_in_between_nothing_is_lost_and_the_context_is_legal(verbs: list[str]):
    number = 34
    with begun(ScriptedModel([GOOD, "no", GOOD])) as session:
        for verb in verbs:
            if verb == "append":
                session.append(steps(number, number + 8))
                number += 8
            else:
                {
                    "ahead": session.prepare,
                    "compact": session.compact,
                    "undo": session.undo,
                    "redo": session.redo,
                    "fresh": session.fresh,
                    "ask": lambda: session.append(USER),
                }[verb]()
            assert illegal(session.context()) == []
        found = [raw for raw in session.history() if raw != USER]
        assert found == [*FIRST, *steps(0, number)]
        assert session.verify() == []
