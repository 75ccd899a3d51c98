"""The prompt on a real terminal: pastes of anything, Enter with Alt, and the ways out while something is under way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from context_compactor.sessions.session import Session
from tests.cli.conftest import conversation
from tests.llm.provider import Provider, Reply
from tests.tui.places import URL, filled
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow

COLOURS = "\x1b[31mfailed\x1b[0m at \x07 line 3\r\n/quit\r\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def slow(folder) -> Iterator[Provider]:
    """A model that begins to answer and never ends, and a session whose story it is to tell."""
    provider = Provider()
    piece = json.dumps({"choices": [{"delta": {"content": "Once upon a time "}}]})
    provider.replies = [Reply(pieces=[f"data: {piece}\n\n".encode()], end="stall")]
    filled("run", conversation(), window=64_000, automatic=False, summarizer=f"{provider.url}/v1#slow")
    yield provider
    provider.close()


@pytest.mark.usefixtures("folder")
def test_a_paste_with_colours_and_line_ends_is_one_piece_and_presses_no_key(open_terminal):
    filled("run", conversation(), automatic=False, window=64_000)
    terminal = open_terminal("--store", URL, "--session", "run")
    terminal.sees("/ for commands")
    for times in (3, 30_000):
        pasted = COLOURS * times
        terminal.paste(pasted)
        size = len(pasted.replace("\r\n", "\n"))
        terminal.sees(f"[pasted {size:,} characters")
        terminal.press("C-c")
        terminal.sees("/ for commands")
    terminal.paste("x" * 1_048_576)
    terminal.sees("[pasted 1,048,576 characters]")
    terminal.press("C-c")
    terminal.sees("/ for commands")
    terminal.press("C-c", "C-c")
    left = terminal.left()
    assert (left.code, left.is_restored) == (0, True)


@pytest.mark.usefixtures("folder")
def test_enter_with_alt_begins_a_line_and_commands_are_completed(open_terminal):
    filled("run", conversation(), automatic=False, window=64_000)
    terminal = open_terminal("--store", URL, "--session", "run")
    terminal.sees("/ for commands")
    terminal.press("/")
    terminal.sees("/compact [focus]", "/undo")
    terminal.type("cont")
    terminal.press("Tab")
    terminal.sees("/context")
    terminal.press("Enter")
    terminal.sees("= 35,041 of 50,400", "Characters")
    terminal.type("one")
    terminal.press("M-Enter")
    terminal.type("two")
    terminal.shows(lambda screen: " one\n two\n" in screen, "never two lines")
    terminal.press("C-q")
    assert terminal.left().code == 0


@pytest.mark.parametrize("key", ["C-q", "C-c"])
def test_leaving_while_a_compaction_is_under_way_ends_everything(key, slow, open_terminal):
    terminal = open_terminal("--store", URL, "--session", "run")
    terminal.sees("/ for commands")
    terminal.press("/")
    terminal.type("compact --target 9k")
    terminal.press("Enter")
    terminal.sees("Compacting", "Ctrl-C cancels")
    wait_for(lambda: slow.bodies)
    terminal.press(key)
    if key == "C-c":
        terminal.sees("Cancelled: nothing was changed.")
        terminal.press("C-c")
        terminal.sees("Ctrl-C again leaves.")
        terminal.press("C-c")
    left = terminal.left()
    assert (left.code, left.is_restored) == (0, True)
    assert "Traceback" not in left.screen
    assert slow.gone.wait(PATIENCE)
    with Session.open("run", store=URL) as session:
        assert session.compactions() == []
        assert not session.verify()
