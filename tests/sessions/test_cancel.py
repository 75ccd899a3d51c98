"""Cancelled at any moment, by anybody: everything is as it was, and the next compaction is not cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from context_compactor.errors import ModelStopped
from context_compactor.sessions.async_session import AsyncSession
from context_compactor.sessions.session import Session
from context_compactor.store.sqlite import SqliteStore
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest, raise_if_stopped
from context_compactor.testing import ScriptedModel
from tests.sessions.summarizing import FIRST, PLAIN, QUICK, Ears, Slow, opened, steps, stories
from tests.sessions.talk import illegal
from tests.summarize.samples import GOOD
from tests.waiting import PATIENCE

TALK = [*FIRST, *steps(0, 34)]


class Phases(ScriptedModel):
    """A model that cancels its session at a moment of its work."""

    def __init__(self, moment: str) -> None:
        super().__init__([PLAIN])
        self.moment = moment
        self.cancel: Callable[[], object] = lambda: None

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """Its answer, unless it is cancelled before."""
        if self.moment == "in mid-stream":
            self.requests.append(request)
            self.cancel()
            raise_if_stopped(control)  # as a client does between two pieces of text
        answer = super().write(request, control)
        if self.moment == "between two chunks" and len(self.requests) == 1:
            self.cancel()
        if self.moment == "after the last call":
            self.cancel()
        return answer


class Store(SqliteStore):
    """A store in which something happens amid a commit."""

    amid: Callable[[], object] = staticmethod(lambda: None)

    def drop_facts(self, session_id: str, from_turn: int) -> None:
        """The last but one thing that a commit writes."""
        super().drop_facts(session_id, from_turn)
        self.amid()


def everything(session: Session) -> tuple[object, ...]:
    """All that a user could see of a session, and its log by hashes."""
    store = session._core.store
    log = [(entry.position, entry.kind, entry.hash) for entry in store.entries("run")]
    return log, session.context(), session.history(), session.compactions(), session.usage(), session.facts()


MOMENTS = ("before the call", "in mid-stream", "between two chunks", "after the last call", "amid the commit")


@pytest.mark.parametrize("moment", MOMENTS)
def test_cancelling_at_any_moment_leaves_the_old_state(moment: str):
    model, ears = Phases(moment), Ears()
    with (
        closing(Store()) as store,
        opened(model, store, ears=ears, summarizer_input_tokens=3_000, summarizer_parallel_calls=1) as session,
    ):
        session.append(TALK)
        before = everything(session)
        model.cancel = session.cancel
        dialect = session._core.dialect
        if moment == "before the call":
            session._core.dialect = lambda *raws: (session.cancel(), dialect(*raws))[1]  # amid the compaction
        if moment == "amid the commit":
            store.amid = session.cancel
        with pytest.raises(ModelStopped, match="cancelled"):
            session.compact()
        session._core.dialect, store.amid, model.cancel = dialect, lambda: None, lambda: None
        assert everything(session) == before
        assert session.verify() == []
        assert "summary.applied" not in ears.types
        assert len(model.requests) == {"before the call": 0, "in mid-stream": 1}.get(moment, len(model.requests))
        model.moment = ""
        assert session.compact().summarized_by == "scripted"
        assert stories(session)


def test_a_cancel_when_nothing_is_under_way_cancels_nothing():
    with opened(ScriptedModel([GOOD])) as session:
        session.append(TALK)
        assert session.cancel() is False
        assert session.compact().summarized_by == "scripted"


def test_another_thread_may_cancel():
    model = Slow()
    with opened(model) as session, ThreadPoolExecutor(1) as pool:
        session.append(TALK)
        before = everything(session)
        made = pool.submit(session.compact)
        assert model.begun.wait(PATIENCE)
        assert session.cancel() is True
        with pytest.raises(ModelStopped):
            made.result(PATIENCE)
        assert everything(session) == before


def test_a_compaction_that_nobody_asked_for_is_refused_and_the_messages_are_there():
    model, ears = Phases("in mid-stream"), Ears()
    with opened(model, ears=ears) as session:
        session.append(TALK)
        model.cancel = session.cancel
        report = session.append([*steps(34, 49), {"role": "user", "content": "And now?"}])
        assert (report.status, report.reason) == ("unchanged", "cancelled")
        assert (
            session.context() == session.history() == [*TALK, *steps(34, 49), {"role": "user", "content": "And now?"}]
        )
        assert session.append({"role": "assistant", "content": "This."}) is None
        assert ears.types[-2:] == ["threshold.crossed", "compaction.refused"]
        model.moment = ""
        assert session.append(steps(49, 54)).changed  # it is tried again when the context has grown


def test_a_cancelled_call_is_no_failure_of_the_model():
    model = Phases("in mid-stream")
    with opened(model) as session:
        session.append(TALK)
        model.cancel = session.cancel
        for _ in range(4):
            with pytest.raises(ModelStopped):
                session.compact()
        model.moment = ""
        assert session.compact().summarized_by == "scripted"


def test_an_interrupt_by_the_user_leaves_the_old_state():
    class Interrupted(ScriptedModel):
        def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
            raise KeyboardInterrupt

    with opened(Interrupted([PLAIN])) as session:
        session.append(TALK)
        before = everything(session)
        with pytest.raises(KeyboardInterrupt):
            session.compact()
        assert everything(session) == before


def test_a_cancelled_task_ends_the_call_and_the_session_goes_on():
    async def live() -> None:
        model = Slow()
        opening = AsyncSession.open("run", window=32_000, store="memory:", settings=QUICK, summarizer=model)
        async with await opening as session:
            await session.append(TALK)
            before = await session.context()
            task = asyncio.create_task(session.compact())
            assert await asyncio.to_thread(model.begun.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await session.context() == before
            assert await session.compactions() == []
            assert session.cancel() is False
            model.go.set()
            assert (await session.compact()).summarized_by == "scripted"
            assert illegal(await session.context()) == []

    asyncio.run(live())


def test_a_task_may_be_given_up_after_a_time():
    async def live() -> Sequence[object]:
        model = Slow()
        opening = AsyncSession.open("run", window=32_000, store="memory:", settings=QUICK, summarizer=model)
        async with await opening as session:
            await session.append(TALK)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.compact(), 0.2)
            return await session.compactions()

    assert asyncio.run(live()) == []
