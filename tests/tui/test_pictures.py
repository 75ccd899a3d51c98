"""The pictures of the documentation: the screens as they are, over the session that ships with the repository."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from shutil import copytree

import pytest
from textual.pilot import Pilot

from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.sessions.session import Session
from tests.llm.provider import Provider
from tests.tui.chatting import answers, show
from tests.tui.conftest import same_picture
from tests.tui.places import CALM, NOW, URL, enter, play, press, settle

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "examples" / "demo_session.jsonl.gz"
SIZE = (110, 30)
HOUR = timedelta(hours=1)
ANSWER = """\
Three things are still open:

1. `cmd/entire/cli/hooks.go` has no test for an empty payload.
2. The retry in `uploader.go` waits forever when the server answers 503.
3. The changelog does not name the new flag."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A store with that session, which was compacted on the way, and another one that has just begun."""
    folder = tmp_path_factory.mktemp("pictures")
    said = read_transcript(SHIPPED).messages
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, messages, window in (("checkout-service", said, 40_000), ("fix-the-parser", said[:30], 60_000)):
            with Session.open(name, window=window, store=URL, settings=CALM, clock=lambda: NOW - HOUR) as session:
                for message in messages:
                    session.append(message)
    return folder


@pytest.fixture
def store(made, folder) -> None:
    """A copy of it in the folder of the test."""
    copytree(made, folder, dirs_exist_ok=True)


@pytest.fixture
def provider(monkeypatch) -> Iterator[Provider]:
    """A model with one thing to say."""
    serving = Provider()
    serving.replies = answers(ANSWER)
    monkeypatch.setenv("OPENAI_API_KEY", "a key of ours")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{serving.url}/v1")
    yield serving
    serving.close()


def compare(pilot: Pilot[None], name: str) -> None:
    """The screen is the picture of this name in the documentation."""
    same_picture(pilot, ROOT / "docs" / "images" / f"tui-{name}.svg")


def test_sessions_look_as_the_documentation_shows_them(store):
    async def story(pilot: Pilot[None]) -> None:
        compare(pilot, "sessions")

    play(story, size=(110, 12))


@pytest.mark.parametrize(("name", "keys"), [("turns", ()), ("plot", ("5",))])
def test_a_session_looks_as_the_documentation_shows_it(store, name, keys):
    async def story(pilot: Pilot[None]) -> None:
        await press(pilot, *keys)
        compare(pilot, name)

    play(story, size=SIZE, session_id="checkout-service")


def test_a_plan_looks_as_the_documentation_shows_it(store):
    async def story(pilot: Pilot[None]) -> None:
        await press(pilot, "2")
        await press(pilot, "l", "l")
        await press(pilot, "end", "pageup")
        await press(pilot, "p")
        await press(pilot, "down", "down", "minus")
        await settle(pilot)
        compare(pilot, "plan")

    play(story, size=SIZE, session_id="checkout-service")


def test_a_chat_looks_as_the_documentation_shows_it(store, provider):
    async def story(pilot: Pilot[None]) -> None:
        await enter(pilot, "What is still open?")
        await enter(pilot, "/compact what is still open")
        compare(pilot, "chat")

    show(story, provider, "checkout-service", window=None, size=SIZE, model="openai/gpt-4.1-mini")
