"""A session that is closed, or given up twice, while a model is at work for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from context_compactor.errors import BadSetting
from context_compactor.library import summarizer_for
from context_compactor.sessions import core
from context_compactor.sessions.async_session import AsyncSession
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import WorkClaim
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest
from context_compactor.testing import ScriptedModel
from tests.sessions.summarizing import FIRST, PLAIN, QUICK, Slow, opened, steps
from tests.sessions.test_presummarize import begun, state_of
from tests.waiting import PATIENCE, wait_for


class Deaf(ScriptedModel):
    """A model that does not listen to its cancel."""

    def __init__(self) -> None:
        super().__init__([PLAIN])
        self.begun, self.go, self.done = Event(), Event(), Event()

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        self.begun.set()
        self.go.wait(PATIENCE)
        self.done.set()
        return super().write(request, Control(control.deadline, Event()))


def test_a_deaf_model_is_left_behind_with_its_attempt_counted_and_its_claim_released(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(core, "_MAX_CLOSE_SECONDS", 0.2)
    model = Deaf()
    session = begun(model, tmp_path, idle_seconds=0.01)
    assert model.begun.wait(PATIENCE)
    session.close()
    with opened(None, tmp_path) as again:
        state = state_of(again)
        assert state.presummary_claim == WorkClaim()
        assert state.spent.attempts == state.presummary_spent.attempts > 0
        model.go.set()
        wait_for(lambda: not session._idle._thread.is_alive())
        assert state_of(again) == state


def test_closing_an_async_session_ends_what_is_told_ahead():
    async def live() -> int:
        model = Slow()
        session = await AsyncSession.open("run", window=32_000, store="memory:", settings=QUICK, summarizer=model)
        await session.append([*FIRST, *steps(0, 34)])
        ahead = asyncio.create_task(session.prepare())
        assert await asyncio.to_thread(model.begun.wait, PATIENCE)
        await session.close()
        return (await ahead).told

    assert asyncio.run(live()) == 0


def test_a_task_that_is_cancelled_twice_still_waits_for_its_thread(monkeypatch):
    async def live() -> None:
        model = Deaf()
        async with await AsyncSession.open("run", window=32_000, store="memory:", summarizer=model) as session:
            await session.append([*FIRST, *steps(0, 34)])
            task = asyncio.create_task(session.compact(level="soft"))
            assert await asyncio.to_thread(model.begun.wait, PATIENCE)
            for _ in range(2):
                task.cancel()
                await asyncio.to_thread(int)  # when this is back, a task that waits for nothing has ended
            assert not task.done()
            model.go.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(live())


def test_a_session_takes_the_model_that_tells_its_stories():
    model = ScriptedModel([PLAIN])
    with opened(model, summarizer_input_tokens=50_000) as session:
        session.append([*FIRST, *steps(0, 34)])
        assert session.compact(level="soft").summarized_by == model.name
    with pytest.raises(BadSetting, match="is not a model name"):
        Session.open("run", store="memory:", summarizer="no-such-form")
    assert summarizer_for(QUICK) is None
