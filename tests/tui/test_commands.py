"""Commands: what each says and does, in a store and on a server; what is refused; what is cancelled."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import cache
from itertools import count
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import pytest
from msgspec import Struct, structs
from textual.widgets import Input, TabbedContent

from context_compactor.client import Client
from context_compactor.engine.report import Archived, Report
from context_compactor.sessions.session import Session
from context_compactor.tui.panes.facts import FactsPane
from context_compactor.tui.registry import COMMANDS
from context_compactor.tui.screens.help import HelpScreen
from context_compactor.tui.screens.sessions import SessionsScreen
from context_compactor.tui.screens.viewer import ViewerScreen
from context_compactor.tui.sources.base import SessionSource
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.sources.remote import RemoteSource
from context_compactor.tui.widgets.bars import AnswerPanel, Gauge
from context_compactor.tui.widgets.prompt import PromptInput
from tests.cli.conftest import conversation
from tests.llm.provider import Provider, Reply
from tests.server.running import running
from tests.sessions.talk import messages
from tests.tui.places import CALM, SIZES, URL, a_few_sessions, filled, play, press, screen_text, settle, shown, until
from tests.waiting import PATIENCE

OWN = {"idle_seconds": 0, "automatic": False, "promote_to_memory": False}
WRONG = {
    "/compact --level loud": "unknown level 'loud'",
    "/compact --level": "--level needs a value",
    "/compact --target many": "--target: 'many' is neither",
    "/compact --target 0": "--target: '0' is neither",
    "/compact --target=5k --target 6k": "given twice",
    "/compact --lvl soft": "'--lvl' is not an option. Try: --level or --target",
    "/plan --level loud": "unknown level 'loud'",
    "/plan --target many": "--target: 'many' is neither",
    "/retry now": "/retry takes nothing",
    "/compact the names --level soft": "--level stands behind the focus",
    "/undo now": "/undo takes nothing, but 'now' stands behind it",
    "/redo now": "/redo takes nothing",
    "/context all": "/context takes nothing",
    "/sessions all": "/sessions takes nothing",
    "/quit now": "/quit takes nothing",
    "/recall": "an id is missing",
    "/recall turn_001 turn_002": "is more than one id",
    "/recall nonsense": "'nonsense' is not a reference id",
    "/recall turn_999": "Near: turn_0",
    "/restore": "an id is missing",
    "/restore turn_999": "Near: turn_0",
    "/search": "say what to look for",
    "/facts failures": "'failures' is not a kind of fact. Did you mean failure?",
    "/facts ???": "Try: one of task, constraint",
    "/handoff": "a phase is missing",
    "/handoff wrote": "'wrote' is not a phase. Did you mean write?",
    "/settings windw": "Did you mean window?",
    "/help compcat": "Did you mean /compact?",
    "/compcat": "'/compcat' is not a command; did you mean /compact?",
    "/zzzz": "/help lists all of them",
    "/": "is not a command",
    "/usr/bin/env is missing": "begin with two slashes",
    "/\x1b[2J[bold]": "is not a command",
}
"""What may be entered wrongly, and a part of what is said then."""


class Place(Struct):
    """A session somewhere, and how to reach it."""

    name: str
    source: Callable[[], SessionSource]
    is_remote: bool


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("server")) as made:
        yield made


_numbers = count(1)


@cache
def _stored() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    with chdir(folder.name):
        filled("run", messages(0, 60), window=6_000, automatic=False)
        with Session.open("run", store=URL, settings=structs.replace(CALM, automatic=False)) as session:
            assert session.compact(target_tokens=1_500).changed
            session.append(messages(60, 90))
    return folder


@pytest.fixture(params=["store", "server"])
def place(request) -> Place:
    """A session that was compacted once and has gone on since."""
    if request.param == "store":
        copytree(_stored().name, Path(), dirs_exist_ok=True)
        return Place("run", lambda: LocalSource(URL, look_seconds=0.05), False)
    url, name = request.getfixturevalue("server").url, f"run-{next(_numbers)}"
    with Client(url) as client:
        client.create(name, window=6_000, settings=OWN)
        client.append(name, messages(0, 60))
        assert client.compact(name, target_tokens=1_500).compacted
        client.append(name, messages(60, 90))
    return Place(name, lambda: RemoteSource(url, look_seconds=0.05), True)


def told(pilot) -> str:
    """What was told last, on the session's screen; nothing before the first time."""
    return next(iter(reversed(pilot.app.screen_stack[2].query_one(AnswerPanel).texts)), "")


async def run(pilot, line: str) -> str:
    """Enter a command, and wait for what it says."""
    await begin(pilot, line)
    await settle(pilot)
    return told(pilot) if pilot.app.screen_stack[2].query_one(AnswerPanel).texts else ""


async def begin(pilot, line: str) -> None:
    """Enter a command."""
    prompt = pilot.app.screen.query_one(PromptInput)
    prompt.focus()
    prompt.value = line
    await pilot.pause(0)
    prompt.offers.close()
    prompt.action_submit()
    await pilot.pause(0)


def tokens(pilot) -> int:
    return pilot.app.screen_stack[2].query_one(Gauge).status.line.tokens


def session_in(place: Place, story, **more) -> None:
    play(story, source=place.source(), session_id=place.name, **more)


# /compact


def test_compact_says_what_it_did_in_two_lines_and_the_gauge_follows(place):
    async def story(pilot):
        before = tokens(pilot)
        first, second = (await run(pilot, "/compact")).split("\n")
        after = tokens(pilot)
        made = (await pilot.app.source.compactions(place.name))[-1].report
        assert first == f"✓ Compacted {made.messages_removed} messages"
        assert second == f"Tokens: {before:,} → {after:,} (saved {before - after:,})"
        assert after < before
        again = await run(pilot, "/compact --target 100%")
        assert again.startswith("No compaction needed: ")
        assert tokens(pilot) == after

    session_in(place, story)


@pytest.mark.parametrize("size", SIZES)
def test_compact_on_the_screen(size, picture):
    a_few_sessions()

    async def story(pilot):
        told = await run(pilot, "/compact --target 25%")
        assert re.fullmatch(r"✓ Compacted 12 messages\nTokens: [\d,]+ → [\d,]+ \(saved [\d,]+\)", told)
        assert told.splitlines()[1] in screen_text(pilot)
        picture(pilot, "compacted")

    play(story, size=size, session_id="run-42")


def test_the_words_of_a_report_are_the_same_wherever_compact_is_typed():
    done = Report(
        status="success",
        messages_before=90,
        messages_after=14,
        messages_removed=76,
        tokens_before=161_204,
        tokens_after=38_870,
    )
    assert done.answer() == "✓ Compacted 76 messages\nTokens: 161,204 → 38,870 (saved 122,334)"
    original = Archived("tool_001", "log", "…", 10, "", "")
    in_place = Report(
        status="success", messages_before=9, messages_after=9, archived=(original,), tokens_before=20, tokens_after=10
    )
    assert in_place.answer() == "✓ Shortened 1 result in place\nTokens: 20 → 10 (saved 10)"
    record = structs.replace(in_place, archived=())
    assert record.answer().startswith("✓ Shortened the summary of earlier turns\n")
    assert record.short().startswith("Conversation compacted: the summary of earlier turns shortened\n")
    none = Report.unchanged("it is small", tokens=10, messages=1)
    assert none.answer() == none.short() == "No compaction needed: it is small"


def test_compact_takes_a_level_a_target_and_a_focus(place):
    async def story(pilot):
        await run(pilot, "/compact --level emergency --target 30% the names of files")
        report = (await pilot.app.source.compactions(place.name))[-1].report
        assert report.level == "emergency"
        assert report.target_tokens is not None

    session_in(place, story)


@pytest.mark.slow
def test_what_is_wrong_is_said_with_what_to_try_and_nothing_is_changed(place):
    async def story(pilot):
        before = await pilot.app.source.session(place.name)
        for at, (line, words) in enumerate(WRONG.items(), 1):
            said = await run(pilot, line)
            assert len(pilot.app.screen.query_one(AnswerPanel).texts) == at, line
            assert words in said, line
            assert "\x1b" not in said, line
            assert not pilot.app.busy_with(pilot.app.screen), line
        assert await pilot.app.source.session(place.name) == before

    session_in(place, story)


# /plan


def test_plan_shows_the_plan_at_a_level_a_target_and_with_a_focus_and_changes_nothing(place):
    async def story(pilot):
        before = await pilot.app.source.session(place.name)
        await run(pilot, "/plan --level aggressive --target 1k the names of files")
        assert pilot.app.screen.query_one(TabbedContent).active == "plan"
        draft = pilot.app.plans[place.name]
        assert (draft.level, draft.target_tokens, draft.focus) == ("aggressive", 1_000, "the names of files")
        assert "aggressive" in screen_text(pilot)
        assert "1,000" in screen_text(pilot)
        await run(pilot, "/plan")
        draft = pilot.app.plans[place.name]
        assert (draft.level, draft.target_tokens, draft.focus) == (None, None, None)
        assert await pilot.app.source.session(place.name) == before

    session_in(place, story)


# Back and forth


def test_undo_and_redo_say_the_tokens_before_and_after(place):
    async def story(pilot):
        first = tokens(pilot)
        assert (await run(pilot, "/compact")).startswith("✓")
        second = tokens(pilot)
        assert (await run(pilot, "/undo")).split("\n")[1] == f"Tokens: {second:,} → {first:,}"
        assert tokens(pilot) == first
        assert (await run(pilot, "/redo")).split("\n")[1] == f"Tokens: {first:,} → {second:,}"
        assert await run(pilot, "/redo") == "There is no undo to take back."
        await run(pilot, "/undo")
        await run(pilot, "/undo")
        assert await run(pilot, "/undo") == "There is no compaction to take back."

    session_in(place, story)


def test_recall_opens_the_original_and_restore_puts_it_back(place):
    async def story(pilot):
        await run(pilot, "/recall turn_002")
        assert isinstance(pilot.app.screen, ViewerScreen)
        assert "turn_002" in screen_text(pilot)
        await press(pilot, "escape")
        before = await pilot.app.source.context(place.name)
        first, second = (await run(pilot, "/restore turn_002")).split("\n")
        assert first.startswith("✓ turn_002 is back in the context, ")
        assert second == f"Tokens: {tokens(pilot):,} in the context"
        assert await pilot.app.source.context(place.name) != before

    session_in(place, story)


# Looking


def test_context_facts_and_search_show_their_panes(place):
    async def story(pilot):
        tabs = pilot.app.screen.query_one(TabbedContent)
        said = await run(pilot, "/context")
        assert said.endswith("%)")
        assert f"= {tokens(pilot):,} of " in said
        assert tabs.active == "context"
        await run(pilot, "/facts file state")
        assert tabs.active == "facts"
        assert pilot.app.screen.query_one(FactsPane).kind == "file_state"
        await run(pilot, "/facts")
        assert pilot.app.screen.query_one(FactsPane).kind is None
        await run(pilot, "/search value_2")
        assert tabs.active == "search"
        assert pilot.app.screen.query_one("#question", Input).value == "value_2"

    session_in(place, story)


def test_settings_are_listed_with_those_that_differ_marked(place):
    async def story(pilot):
        await run(pilot, "/settings")
        assert isinstance(pilot.app.screen, ViewerScreen)
        assert "* idle_seconds" in screen_text(pilot)
        assert ("  spend_limit" in screen_text(pilot)) is not place.is_remote
        await press(pilot, "escape")
        said = await run(pilot, "/settings idle_seconds")
        assert said.startswith("idle_seconds = 0 (by default 5)\nTime without a message after which")
        assert "it may hold a password" in await run(pilot, "/settings store")
        said = await run(pilot, "/settings levels")
        assert ("as the server has it" if place.is_remote else "soft=0.80:0.40") in said

    session_in(place, story, size=(140, 60))


def test_help_is_a_page_and_help_for_a_command_is_told():
    a_few_sessions()

    async def story(pilot):
        for name, command in list(COMMANDS.items())[::4]:
            said = await run(pilot, f"/help {name}")
            assert said.startswith(f"{command.usage}\n{command.words}")
        assert "--level soft|aggressive|emergency" in await run(pilot, "/help /compact")
        await run(pilot, "/help")
        assert isinstance(pilot.app.screen, HelpScreen)
        for command in COMMANDS.values():
            assert command.usage in pilot.app.screen._text.plain

    play(story, session_id="run-42")


# Going on elsewhere


def test_a_checkpoint_is_shown_and_says_where_it_is(place, folder):
    async def story(pilot):
        await run(pilot, "/checkpoint mind the gap")
        assert isinstance(pilot.app.screen, ViewerScreen)
        assert "mind the gap" in (await pilot.app.screen._document.document_page(1)).pieces[0].text
        file = folder / ".compactor" / "progress-checkpoint.md"
        assert told(pilot) == (
            "✓ Checkpoint kept on the server" if place.is_remote else f"✓ Checkpoint written to {file}"
        )
        assert place.is_remote or "mind the gap" in file.read_text()

    session_in(place, story)


def test_a_handoff_is_shown_with_its_tokens(place):
    async def story(pilot):
        said = await run(pilot, "/handoff write tell the users")
        assert said.startswith("✓ Handoff to write of ")
        assert isinstance(pilot.app.screen, ViewerScreen)
        pieces = (await pilot.app.screen._document.document_page(1)).pieces
        named = {piece.title: piece.text for piece in pieces}
        assert named["task"] == "tell the users"
        assert named["phase"] == "write"
        assert "tokens" in screen_text(pilot).split("\n")[0]

    session_in(place, story)


def test_an_export_says_how_many_originals_are_in_which_folder(place, folder):
    async def story(pilot):
        said = await run(pilot, f"/export {folder}/out side")
        if place.is_remote:
            assert "is on the server" in said
            assert "is on the server" in await run(pilot, "/export")
            return
        made = folder / "out side" / "run"
        held = json.loads((made / "manifest.json").read_text())
        assert said.startswith(f"✓ {len(held['items'])} originals exported to ")
        assert said.endswith(f" files in {made}")
        assert (await run(pilot, "/export")).endswith(f" in {folder / '.tmp/context-archive/run'}")
        (folder / "file").write_text("")
        assert (await run(pilot, "/export file")).count("\n") == 0
        assert "✓" not in told(pilot)

    session_in(place, story)


@pytest.mark.parametrize("place", ["store"], indirect=True)
def test_sessions_goes_back_to_the_list_and_quit_leaves(place):
    async def story(pilot):
        await begin(pilot, "/sessions")
        await settle(pilot)
        assert isinstance(pilot.app.screen, SessionsScreen)
        pilot.app.show_session(place.name)
        await settle(pilot)
        await begin(pilot, "/quit")
        await until(pilot, lambda: not pilot.app.is_running or pilot.app._exit)

    session_in(place, story)


# Who answers


@pytest.mark.parametrize("place", ["store"], indirect=True)
def test_model_says_who_answers_and_takes_another(place):
    async def story(pilot):
        assert "There is no model to talk to yet" in await run(pilot, "/model")
        told_now = await run(pilot, "/model http://127.0.0.1:9/v1#small")
        assert told_now.startswith("✓ From now on: ")
        assert "small" in told_now
        assert "http://127.0.0.1:9/v1#small" in await run(pilot, "/model")
        for wrong, words in (("nonsense", "nonsense"), ("a b", "is more than one name")):
            assert words in await run(pilot, f"/model {wrong}")
            assert "✓" not in told(pilot)
        assert "http://127.0.0.1:9/v1#small" in await run(pilot, "/model")

    session_in(place, story)


# Under way


@pytest.fixture
def slow() -> Iterator[Provider]:
    """A model that begins to answer and never ends."""
    provider = Provider()
    piece = json.dumps({"choices": [{"delta": {"content": "Once upon a time "}}]})
    provider.replies = [Reply(pieces=[f"data: {piece}\n\n".encode()], end="stall")]
    yield provider
    provider.close()


@pytest.fixture(params=["store", "server"])
def slow_summaries(request, slow, tmp_path_factory, monkeypatch) -> Iterator[Place]:
    """A session whose summarizer never answers."""
    model = f"{slow.url}/v1#slow"
    if request.param == "store":
        filled("run", conversation(), window=64_000, automatic=False, summarizer=model)
        yield Place("run", lambda: LocalSource(URL, look_seconds=0.05), False)
        return
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", model)
    with running(tmp_path_factory.mktemp("slow")) as server:
        with Client(server.url) as client:
            client.create("run", window=64_000, settings=OWN)
            client.append("run", conversation())
        yield Place("run", lambda: RemoteSource(server.url, look_seconds=0.05), True)


async def looks(source) -> list[object]:
    """Everything that a compaction changes."""
    line = (await source.session("run")).line
    return [line, await source.context("run"), await source.compactions("run"), await source.facts("run")]


async def under_way(pilot, slow) -> None:
    """Begin a compaction, and wait until the model is asked."""
    await begin(pilot, "/compact --target 9000")
    await until(pilot, lambda: slow.bodies)


def test_a_compaction_shows_its_progress_and_ctrl_c_leaves_everything_as_it_was(slow_summaries, slow):
    async def story(pilot):
        source = pilot.app.source
        before = await looks(source)
        await under_way(pilot, slow)
        assert "Compacting" in screen_text(pilot)
        assert "Ctrl-C cancels" in screen_text(pilot)
        await press(pilot, "ctrl+c")
        assert told(pilot) == "Cancelled: nothing was changed."
        assert "Ctrl-C cancels" not in screen_text(pilot)
        assert await looks(source) == before
        assert pilot.app.is_running
        assert not pilot.app.busy_with(pilot.app.screen)

    session_in(slow_summaries, story)


def test_meanwhile_one_can_write_and_look_but_nothing_else_is_begun(slow_summaries, slow):
    async def story(pilot):
        await under_way(pilot, slow)
        prompt = pilot.app.screen.query_one(PromptInput)
        await begin(pilot, "/undo")
        await until(pilot, lambda: told(pilot).startswith("Not now: /compact is under way."))
        await until(pilot, lambda: prompt.value == "/undo")
        prompt.value = ""
        await pilot.press(*"typing")
        await until(pilot, lambda: prompt.value == "typing")
        await begin(pilot, "/context")
        await until(pilot, lambda: " tokens (" in told(pilot))
        assert await pilot.app.source.compactions("run") == []
        await press(pilot, "ctrl+c")
        assert told(pilot) == "Cancelled: nothing was changed."

    session_in(slow_summaries, story)


def test_a_compaction_goes_on_while_its_screen_is_left_and_is_cancelled_where_one_is(slow_summaries, slow):
    async def story(pilot):
        await under_way(pilot, slow)
        pilot.app.show_sessions()
        await settle(pilot, with_work=False)
        pilot.app.show_session("run")
        await until(pilot, lambda: "Compacting" in screen_text(pilot))
        await begin(pilot, "/compact")
        await until(pilot, lambda: told(pilot).startswith("Not now: /compact is under way."))
        pilot.app.show_sessions()
        await settle(pilot, with_work=False)
        await press(pilot, "ctrl+c")
        await settle(pilot)
        assert "Cancelled: nothing was changed." in [notice.message for notice in pilot.app._notifications]

    session_in(slow_summaries, story)


def test_leaving_ends_a_compaction_wherever_it_is_done(slow_summaries, slow):
    async def leave():
        app = shown(slow_summaries.source(), "run")
        async with app.run_test() as pilot:
            await settle(pilot)
            await under_way(pilot, slow)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: app.is_leaving)
        assert app.return_code == 0
        source = slow_summaries.source()
        try:
            assert slow.gone.wait(PATIENCE)
            assert await source.compactions("run") == []
        finally:
            await source.close()

    asyncio.run(leave())


def test_what_is_done_after_its_screen_was_left_is_told_and_shown_when_one_comes_back():
    a_few_sessions()

    async def story(pilot):
        for line in ("/compact --target 25%", "/handoff write", "/checkpoint", "/undo", "/export out"):
            answer = pilot.app.screen.query_one(AnswerPanel)
            await begin(pilot, line)
            pilot.app.show_sessions()
            await settle(pilot)
            assert isinstance(pilot.app.screen, SessionsScreen)
            said = answer.texts or [notice.message for notice in pilot.app._notifications]
            assert said[-1].startswith("✓"), line
            pilot.app.show_session("run-42")
            await settle(pilot)

    play(story, session_id="run-42")


def test_two_commands_at_once_do_not_interleave():
    a_few_sessions()

    async def story(pilot):
        prompt = pilot.app.screen.query_one(PromptInput)
        for line in ("/compact --target 25%", "/undo"):
            prompt.value = line
            prompt.action_submit()
        await settle(pilot)
        said = pilot.app.screen.query_one(AnswerPanel).texts
        assert any(words.startswith("Not now: /compact is under way") for words in said)
        assert any(words.startswith("✓ Compacted") for words in said)
        assert prompt.value == "/undo"

    play(story, session_id="run-42")


def test_arguments_may_stand_on_the_next_line():
    a_few_sessions()

    async def story(pilot):
        assert "Did you mean failure?" in await run(pilot, "/facts\nfailures")
        assert (await run(pilot, "/compact --target 25%\nthe names\nof files")).startswith("✓")

    play(story, session_id="run-42")


def test_a_server_that_is_gone_is_an_error_in_words(server):
    source = RemoteSource("http://127.0.0.1:9", look_seconds=0.05)

    async def story(pilot):
        for line in ("/compact", "/undo", "/restore turn_001", "/handoff write", "/checkpoint", "/settings"):
            said = await run(pilot, line)
            assert "127.0.0.1:9" in said
            assert "✓" not in said

    play(story, source=source, session_id="run")
