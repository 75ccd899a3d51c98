"""A store on this machine: what the screens have done there, and a compaction that is cancelled under way."""

from __future__ import annotations

import asyncio

import pytest

from context_compactor.errors import BadSetting, UnknownReference, UnknownSession
from context_compactor.story import open_teller
from context_compactor.tui.local import LocalSource
from tests.session.talk import messages
from tests.session.telling import FIRST, Slow, steps
from tests.tui.places import CALM, URL, a_few_sessions, filled


def asked(verb):
    """What the store of this folder answers."""

    async def ask():
        source = LocalSource(URL)
        try:
            return await verb(source)
        finally:
            await source.close()

    return asyncio.run(ask())


def test_verbs_that_change_something_do_and_say_what_they_did(folder):
    async def story(source):
        await source.create("new", window=60_000)
        appended = await source.append("new", messages(0, 60))
        assert appended.messages == 60
        plan = await source.plan("new", target_tokens=1_500, focus="part 3")
        assert plan.changed
        assert not await source.compactions("new")
        report = await source.compact("new", target_tokens=1_500)
        assert report.changed
        assert (await source.restore("new", "turn_001")).ref == "turn_001"
        assert (await source.undo("new")).compaction_id == report.compaction_id
        assert await source.undo("new") is None
        assert (await source.redo("new")).compaction_id == report.compaction_id
        assert "mind the gap" in await source.checkpoint("new", "mind the gap")
        assert (await source.handoff("new", "write", "go on")).phase == "write"
        assert (await source.export("new", folder / "out")).count
        assert (await source.settings("new"))["preserve_recent_turns"] == 5
        return (await source.compactions("new"))[0].is_active

    asked(lambda source: source.create("new", window=60_000))
    assert asked(story)


def test_looking_makes_no_store_and_no_session(folder):
    with pytest.raises(BadSetting, match="no store"):
        asked(lambda source: source.sessions())
    assert not list(folder.iterdir())
    a_few_sessions()
    with pytest.raises(UnknownSession):
        asked(lambda source: source.session("nobody"))
    with pytest.raises(UnknownReference):
        asked(lambda source: source.original("run-42", "nonsense"))
    assert [line.id for line in asked(lambda source: source.sessions())] == ["almost full", "quiet", "run-42"]


def test_a_compaction_whose_task_is_cancelled_leaves_everything_as_it_was():
    filled("run", [*FIRST, *steps(0, 34)], window=32_000, automatic=False)
    model = Slow()

    async def story(source):
        before = await source.context("run")
        core = source._opened._known["run"].core
        core.use_teller(open_teller(model, CALM))
        task = asyncio.create_task(source.compact("run", target_tokens=4_000))
        await asyncio.to_thread(model.begun.wait, 60)
        turns = await source.turns("run")  # others can look meanwhile
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert turns.total
        assert await source.context("run") == before
        assert not await source.compactions("run")
        model.go.set()
        assert (await source.compact("run", target_tokens=4_000)).changed

    asked(story)


def test_changes_are_told_once_and_a_store_that_goes_away_is_told_as_well(folder):
    a_few_sessions()

    async def story():
        source = LocalSource(URL, look_seconds=0.01)
        watched = source.watch()
        following = asyncio.ensure_future(anext(watched))
        await asyncio.sleep(0.2)
        await source.append("quiet", {"role": "user", "content": "Hello"})
        change = await following
        assert change.sessions == {"quiet"}
        assert not change.offline
        await watched.aclose()
        await source.close()

    asyncio.run(story())
