"""Sessions of a server: the same screens, what happens there at once, and a server that goes away and comes back."""

from __future__ import annotations

import asyncio

import pytest
from textual.widgets import Input

from context_compactor.client import Client
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting, ServerDenied, UnknownSession
from context_compactor.server.tokens import add_token
from context_compactor.tui.panes.plan import PlanPane
from context_compactor.tui.registry import PANES
from context_compactor.tui.screens.viewer import ViewerScreen
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.sources.remote import RemoteSource
from tests.llm.provider import Provider, Reply, failure
from tests.server.running import running
from tests.sessions.talk import messages
from tests.tui.places import WIDE, enter, key_of, play, press, rows_of, screen_text, until
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

CALM = {"idle_seconds": 0, "automatic": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a session that was compacted twice and has gone on since."""
    with running(tmp_path_factory.mktemp("server")) as made:
        with Client(made.url) as client:
            client.create("run", window=6_000, settings=CALM)
            client.create("other", window=6_000, settings=CALM)
            client.append("run", messages(0, 60))
            assert client.compact("run", target_tokens=1_500).compacted
            client.append("run", messages(60, 100))
            assert client.compact("run", target_tokens=1_500).compacted
            client.append("run", messages(100, 108))
        yield made


def remote(server) -> RemoteSource:
    return RemoteSource(server.url, look_seconds=0.05)


def asked(source, verb):
    """What a source answers."""

    async def ask():
        try:
            return await verb(source)
        finally:
            await source.close()

    return asyncio.run(ask())


def beside(server) -> LocalSource:
    """The same store without the server."""
    return LocalSource(server.service.config.store)


def test_a_server_and_its_store_tell_the_same_turns(server):
    def turns(source):
        return source.turns("run", 0, 1_000)

    over_http, local = asked(remote(server), turns), asked(beside(server), turns)
    assert over_http == local
    assert {line.tier for line in local.turns} >= {"keep", "reference"}


def test_a_server_and_its_store_tell_the_same_standing_facts_and_search(server):
    async def look(source):
        standing = await source.session("run")
        return (
            standing.line.tokens,
            standing.sections,
            standing.turns_left,
            standing.totals,
            await source.facts("run"),
            await source.search("run", "value_25"),
            [(each.report.compaction_id, each.is_active) for each in await source.compactions("run")],
            await source.context("run"),
            (await source.original("run", "turn_002")).page.text,
        )

    assert asked(remote(server), look) == asked(beside(server), look)


def test_a_server_and_its_store_tell_the_same_changes_by_the_last_compaction(server):
    def diff(source):
        return source.diff("run")

    over_http, local = asked(remote(server), diff), asked(beside(server), diff)
    assert over_http.rows == local.rows
    assert over_http.title == local.title


def test_the_plot_of_a_server_says_that_it_is_estimated_and_is_close(server):
    def plotted(source):
        return source.plotted("run")

    over_http, local = asked(remote(server), plotted), asked(beside(server), plotted)
    assert over_http.is_estimate
    assert not local.is_estimate
    assert [each.message for each in local.compactions] == [60, 100]
    for mine, theirs in zip(over_http.compactions, local.compactions, strict=True):
        assert abs(mine.message - theirs.message) <= 3
    assert over_http.points[-1][0] == local.points[-1][0] == 108


def test_every_pane_works_over_a_server(server):
    async def story(pilot):
        assert "run" in screen_text(pilot)
        await press(pilot, "slash", *"run", "enter", "enter")
        for spec in PANES:
            await press(pilot, *(("escape",) if isinstance(pilot.app.focused, Input) else ()), key_of(spec.id))
            if spec.id == "search":
                await enter(pilot, "value_25")
                assert rows_of(pilot).total
            assert "Reading…" not in screen_text(pilot)
        assert not [notice for notice in pilot.app._notifications if notice.severity == "error"]
        await press(pilot, "1", "home", "enter")
        assert isinstance(pilot.app.screen, ViewerScreen)
        assert "Request 0" in screen_text(pilot)

    play(story, size=WIDE, source=remote(server))


def test_a_compaction_on_the_server_is_told_as_it_happens(tmp_path):
    def compact(url):
        with Client(url) as client:
            client.append("run", messages(0, 60))
            assert client.compact("run", target_tokens=1_500).compacted

    with running(tmp_path) as server:
        server.made("run", 6_000, settings=CALM)

        async def story(pilot):
            await asyncio.to_thread(compact, server.url)
            await until(pilot, lambda: any("run: compacted" in notice.message for notice in pilot.app._notifications))
            await until(pilot, lambda: "60 messages" in screen_text(pilot))
            await press(pilot, key_of("compactions"))
            await until(pilot, lambda: rows_of(pilot).total == 1)

        play(story, source=remote(server), session_id="run")


def test_a_server_that_goes_away_is_said_to_be_offline_and_goes_on_when_it_is_back(tmp_path):
    with running(tmp_path) as first:
        port = first.port
        first.made("run", 6_000, settings=CALM)
    source = RemoteSource(f"http://127.0.0.1:{port}", look_seconds=0.05)

    def come_back():
        entered = running(tmp_path, port=port)
        server = entered.__enter__()
        with Client(server.url) as client:
            client.append("run", {"role": "user", "content": "I am back."})
        return entered

    async def story(pilot):
        await until(pilot, lambda: "offline" in screen_text(pilot))
        assert "no answer from" in screen_text(pilot)
        server = await asyncio.to_thread(come_back)
        try:
            await until(pilot, lambda: "▌run" in screen_text(pilot))
            await until(pilot, lambda: "offline" not in screen_text(pilot))
            await press(pilot, "enter")
            await until(pilot, lambda: "I am back." in screen_text(pilot))
        finally:
            await asyncio.to_thread(server.__exit__, None, None, None)
        await until(pilot, lambda: "offline" in screen_text(pilot))
        assert "I am back." in screen_text(pilot)  # what was read stays
        await press(pilot, key_of("facts"), "r")
        assert pilot.app.is_running

    play(story, source=source)


def test_a_wrong_token_is_a_page_that_says_so(tmp_path):
    add_token(tmp_path / "tokens.toml", "ada", namespace="", read_only=False)
    with running(tmp_path, token_file=tmp_path / "tokens.toml") as server:

        async def story(pilot):
            text = screen_text(pilot)
            assert "token" in text
            assert "What to try" in text

        play(story, source=RemoteSource(server.url, "cct_wrong", look_seconds=0.05))
        with pytest.raises(ServerDenied):
            asked(RemoteSource(server.url, "cct_wrong"), lambda source: source.sessions())


def test_what_a_server_cannot_do_is_an_error_that_says_where_it_can_be_done(server, tmp_path):
    with pytest.raises(BadSetting, match="on the server"):
        asked(remote(server), lambda source: source.export("run", tmp_path))
    with pytest.raises(UnknownSession):
        asked(remote(server), lambda source: source.session("nobody"))


def test_verbs_that_change_something_work_over_a_server(tmp_path):
    async def story(source):
        await source.create("new", window=60_000)
        appended = await source.append("new", messages(0, 60))
        assert appended.messages == 60
        plan = (await source.planned("new", target_tokens=1_500)).report
        assert plan.changed
        assert not await source.compactions("new")
        report = await source.compact("new", target_tokens=1_500, focus="part 3")
        assert report.changed
        back = await source.restore("new", "turn_001")
        assert back.ref == "turn_001"
        assert (await source.undo("new")).compaction_id == report.compaction_id
        assert (await source.redo("new")).compaction_id == report.compaction_id
        assert "mind the gap" in await source.checkpoint("new", "mind the gap")
        assert (await source.handoff("new", "write", "go on")).phase == "write"
        assert "window" not in await source.settings("new")

    with running(tmp_path) as server:
        asked(remote(server), story)


def test_tiers_are_set_over_a_server_as_in_its_store(server):
    async def with_tiers(source):
        live = [turn.turn for turn in (await source.planned("run", level="emergency")).turns() if turn.turn > 0]
        await source.set_tier("run", live[0], "keep")
        assert await source.tiers("run") == {live[0]: Tier.KEEP}
        await source.set_tier("run", live[1], Tier.DROP)
        await source.clear_tier("run", live[0])
        assert await source.tiers("run") == {live[1]: Tier.DROP}
        plan = await source.planned("run", target_tokens=900, tiers={live[2]: "keep"})
        with pytest.raises(BadSetting, match="folded already"):
            await source.planned("run", tiers={live[0] - 1: "keep"})
        await source.clear_tier("run")
        assert await source.tiers("run") == {}
        return plan.decisions, plan.report.tokens_after, plan.tiers

    assert asked(remote(server), with_tiers) == asked(beside(server), with_tiers)


def test_a_request_over_a_server_tells_of_compactions_that_were_made_since(tmp_path):
    async def story(source):
        await source.create("new", window=60_000)
        await source.append("new", messages(0, 60))
        first = await source.request("new")
        assert (len(first.messages), first.report) == (60, None)
        with Client(server.url) as other:
            made = other.compact("new", target_tokens=1_500).report
        second = await source.request("new")
        assert second.report.compaction_id == made.compaction_id
        assert len(second.messages) < 60
        assert (await source.request("new")).report is None
        assert (await source.compact("new", target_tokens=600)).changed
        assert (await source.request("new")).report is None  # whoever asked has it

    with running(tmp_path) as server:
        asked(remote(server), story)


@pytest.fixture
def silent(monkeypatch):
    """A model that takes requests and says nothing; the server's own choice."""
    provider = Provider()
    provider.replies = [Reply(end="stall")]
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#silent")
    yield provider
    provider.close()


def test_a_compaction_on_a_server_whose_task_is_cancelled_ends_there_and_changes_nothing(tmp_path, silent):
    async def story(source):
        await source.create("new", window=60_000)
        await source.append("new", messages(0, 60))
        before = await source.context("new")
        task = asyncio.create_task(source.compact("new", target_tokens=1_500))
        await asyncio.to_thread(wait_for, lambda: silent.bodies)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_for, silent.gone)
        assert await source.context("new") == before
        assert not await source.compactions("new")
        silent.replies = [failure(400, {})]
        assert (await source.compact("new", target_tokens=1_500)).changed

    with running(tmp_path) as server:
        asked(remote(server), story)


def test_a_compaction_that_was_done_before_it_could_be_cancelled_is_told_as_it_is(tmp_path):
    async def story(source):
        await source.create("new", window=60_000)
        await source.append("new", messages(0, 60))
        task = asyncio.create_task(source.compact("new", target_tokens=1_500))
        await asyncio.to_thread(wait_for, lambda: len(service.store.session("new").state) and _made(server))
        task.cancel()
        assert (await task).changed

    with running(tmp_path) as server:
        service = server.service
        asked(remote(server), story)


def _made(server) -> int:
    return server.get("/v1/sessions/new/compactions").json["totals"]["compactions"]


def test_a_session_of_a_server_compacts_by_itself_or_not(tmp_path):
    async def story(source):
        await source.create("new", window=60_000)
        for is_on in (False, True):
            assert await source.set_automatic("new", is_on) is is_on
            assert (await source.settings("new")).get("automatic", True) is is_on

    with running(tmp_path) as server:
        asked(remote(server), story)


def test_a_plan_over_a_server_is_changed_accepted_and_cancelled(tmp_path, silent):
    with running(tmp_path) as server, Client(server.url) as client:
        client.create("run", window=8_000, settings=CALM)
        client.append("run", messages(0, 61))
        before = client.context("run").messages

        async def story(pilot):
            await press(pilot, key_of("plan"), "t", *"1500", "enter", "down", "down", "down", "down", "p")
            pane = pilot.app.screen.query_one(PlanPane)
            expected = client.plan("run", target_tokens=1_500, tiers={5: "keep"})
            assert pane.planner.plan.decisions == expected.decisions
            assert f"→ {expected.report.tokens_after:,} tokens" in screen_text(pilot)
            await press(pilot, "end", "minus")
            assert "not answered yet" in screen_text(pilot)
            assert client.tiers("run") == {}
            await press(pilot, "A")
            assert "auto on" in screen_text(pilot)
            await press(pilot, "A")
            await pilot.press("a")
            await until(pilot, lambda: silent.bodies)
            await press(pilot, "ctrl+c")
            assert "Cancelled: nothing was changed" in screen_text(pilot)
            assert (client.tiers("run"), client.context("run").messages) == ({}, before)
            silent.replies = [failure(400, {})]
            await press(pilot, "a")
            assert "✓ Compacted" in screen_text(pilot)
            assert client.tiers("run") == {5: Tier.KEEP}
            assert client.compactions("run").compactions[0].tokens_after == expected.report.tokens_after

        play(story, source=remote(server), session_id="run")
