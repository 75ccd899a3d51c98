"""A store on this machine: what the screens have done there, and a compaction that is cancelled under way."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting, UnknownReference, UnknownSession
from context_compactor.sessions.project import local_owner
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_profile
from context_compactor.store.connect import connect
from context_compactor.summarize.summarizer import open_summarizer
from context_compactor.tui.sources.local import LocalSource
from tests.sessions.summarizing import FIRST, Slow, steps
from tests.sessions.talk import messages
from tests.tui.places import CALM, URL, a_few_sessions, filled
from tests.waiting import PATIENCE, until


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
        plan = (await source.planned("new", target_tokens=1_500, focus="part 3")).report
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


def test_a_user_owns_the_sessions_they_begin_and_not_those_they_go_on_with(folder):
    Session.open("of a program", window=60_000, store=URL).close()
    for name in ("new", "of a program"):
        asked(lambda source, name=name: source.create(name, window=60_000))
    with closing(connect(URL)) as store:
        owners = {row.id: read_profile(row.profile).owner for row in store.sessions()}
    assert owners == {"new": local_owner(URL, folder), "of a program": ""}
    assert owners["new"].startswith("os-user:")


def test_tiers_are_set_and_a_plan_with_tiers_of_its_own_decides_nothing():
    async def story(source):
        await source.create("new", window=60_000)
        await source.append("new", messages(0, 61))
        await source.set_tier("new", 5, "keep")
        assert await source.tiers("new") == {5: Tier.KEEP}
        kept = await source.planned("new", target_tokens=1_500)
        other = await source.planned("new", target_tokens=1_500, tiers={8: "drop"})
        assert (kept.tiers, other.tiers) == ({5: Tier.KEEP}, {8: Tier.DROP})
        with pytest.raises(BadSetting, match="not answered yet"):
            await source.planned("new", tiers={46: "drop"})
        await source.set_tier("new", 8, Tier.DROP)
        await source.clear_tier("new", 5)
        assert (await source.planned("new", target_tokens=1_500)).decisions == other.decisions
        await source.clear_tier("new")
        assert await source.tiers("new") == {}
        assert not await source.compactions("new")

    asked(lambda source: source.create("new", window=60_000))
    asked(story)


def test_a_request_is_compacted_when_that_is_due_and_only_then():
    filled("full", messages(0, 41), window=5_000, automatic=False)

    async def story(source):
        due = await source.request("full")
        again = await source.request("full")
        with Session.open("full", store=URL) as session:
            assert due.messages == again.messages == session.context()
        return due.report, again.report

    assert asked(story) == (None, None)
    asked(lambda source: source.set_automatic("full", True))
    made, again = asked(story)
    assert made.changed
    assert again is None


def test_an_append_that_leads_to_a_compaction_tells_of_it_and_others_look_meanwhile():
    filled("run", [*FIRST, *steps(0, 34)], window=32_000, automatic=False)
    model = Slow()

    async def story(source):
        await source.set_automatic("run", True)
        await source.context("run")
        source._opened._known["run"].core.use_summarizer(open_summarizer(model, CALM))
        said = {"role": "user", "content": "word " * 5_000}
        task = asyncio.create_task(source.append("run", said))
        assert await asyncio.to_thread(model.begun.wait, PATIENCE)
        assert (await source.turns("run")).total
        assert said in await source.context("run")
        model.go.set()
        appended = await task
        assert appended.report.changed
        assert (await source.request("run")).report is None  # it was told already

    asked(story)


def test_a_session_compacts_by_itself_or_not_for_whoever_opens_it_next():
    filled("run", messages(0, 8), automatic=False)

    async def story(source):
        assert (await source.settings("run"))["automatic"] is False
        assert await source.set_automatic("run", True) is True
        found = await source.settings("run")
        assert (found["automatic"], found["idle_seconds"]) == (True, 0)
        with pytest.raises(UnknownSession):
            await source.set_automatic("nobody", True)

    asked(story)


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
        core.use_summarizer(open_summarizer(model, CALM))
        task = asyncio.create_task(source.compact("run", target_tokens=4_000))
        assert await asyncio.to_thread(model.begun.wait, PATIENCE)
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


class Watched(LocalSource):
    """Counts how often it has looked at its store."""

    looks = 0

    async def _run(self, work):
        found = await super()._run(work)
        self.looks += 1
        return found


def test_changes_are_told_once_and_a_store_that_goes_away_is_told_as_well(folder):
    a_few_sessions()

    async def story():
        source = Watched(URL, look_seconds=0.01)
        watched = source.watch()
        following = asyncio.ensure_future(anext(watched))
        await until(lambda: source.looks)
        await source.append("quiet", {"role": "user", "content": "Hello"})
        change = await following
        assert change.sessions == {"quiet"}
        assert not change.offline
        await watched.aclose()
        await source.close()

    asyncio.run(story())
