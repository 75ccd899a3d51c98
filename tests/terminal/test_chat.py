"""Talk on a real terminal: a new session from the list, much at once, and every way out in the middle of an answer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from context_compactor.sessions.session import Session
from tests.llm.formats import FORMATS
from tests.llm.provider import Provider, Reply
from tests.terminal.terminal import COMPACTOR, Terminal
from tests.tui.chatting import reply
from tests.tui.places import URL
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow

WIRE = FORMATS["openai"]
SAVED = re.compile(r"✓ Compacted (\d+) messages\s+Tokens: ([\d,]+) → ([\d,]+) \(saved ([\d,]+)\)")


def kept(session_id: str) -> list[dict]:
    """What the store says was said."""
    with Session.open(session_id, store=URL) as session:
        return session.history()


def talking(open_terminal, provider: Provider, window: int = 100_000, **options) -> Terminal:
    given = ("--store", URL, "--model", f"{provider.url}/v1#scripted", "--window", window)
    return open_terminal(*given, "--session", "talk", size=(120, 40), **options)


def test_a_session_is_begun_from_the_list_and_compacted_by_hand(open_terminal, provider):
    provider.replies = [
        reply("Many words come first. " * 200 + f"Answer {number}.", counted=False) for number in range(4)
    ]
    terminal = open_terminal("--store", URL, size=(120, 40))
    terminal.sees("there is no store", "What to try")
    terminal.press("n")
    terminal.sees("New session", "Window, in tokens")
    terminal.type(f"{provider.url}/v1#scripted")
    terminal.press("Tab")
    terminal.type("20000")
    terminal.press("Enter")
    terminal.sees("This session is made with your first words")
    for number in range(4):
        terminal.type(f"Question {number}?")
        terminal.shows(
            lambda screen, number=number: f"Answer {number}." in screen or terminal.press("Enter"), "never answered"
        )
    terminal.type("/compact --target 30%")
    terminal.shows(lambda screen: SAVED.search(screen) or terminal.press("Enter"), "never compacted")
    _, before, after, saved = (int(part.replace(",", "")) for part in SAVED.search(terminal.screen()).groups())
    assert before - after == saved > 0
    terminal.press("Escape", "C-q")
    assert terminal.left().code == 0
    listed = subprocess.run([COMPACTOR, "sessions", "--json", "--store", URL], capture_output=True, check=True)
    (session,) = json.loads(listed.stdout)["sessions"]
    assert session["messages"] == 8
    assert Path(".compactor/.gitignore").read_text() == "*\n"
    assert [message["role"] for message in kept(session["id"])] == ["user", "assistant"] * 4


def test_a_paste_of_a_megabyte_is_sent_as_it_is_and_kept_whole(open_terminal, provider):
    provider.replies = [reply("That was much.", counted=False)]
    terminal = talking(open_terminal, provider, window=2_000_000)
    terminal.sees("/ for commands")
    pasted = "".join(f"line {number}: value = {number * 7}\n" for number in range(45_000))[: 1 << 20]
    terminal.paste(pasted)
    terminal.sees("[pasted 1,048,576 characters")
    terminal.press("Enter")
    terminal.sees("That was much.")
    terminal.press("C-q")
    assert terminal.left().code == 0
    assert kept("talk")[0]["content"].strip() == pasted.strip()
    assert provider.bodies[0]["messages"][-1]["content"].strip() == pasted.strip()


@pytest.mark.parametrize("way", ["C-q", "SIGTERM", "closed"])
def test_who_leaves_in_the_middle_of_an_answer_finds_what_was_said_until_then(open_terminal, provider, way):
    provider.replies = [Reply(pieces=WIRE.text("Once upon ", "a time "), end="stall")]
    terminal = talking(open_terminal, provider)
    terminal.sees("/ for commands")
    terminal.type("Tell a story.")
    terminal.press("Enter")
    terminal.sees("Once upon a time")
    if way == "C-q":
        terminal.press("C-q")
    elif way == "closed":
        terminal.close()
    else:
        terminal.send(signal.Signals[way])
    assert provider.gone.wait(PATIENCE), "the model was left talking"
    if way != "closed":
        left = terminal.left()
        assert left.code == (0 if way == "C-q" else 128 + signal.Signals[way])
        assert left.screen.strip() == ""
        assert left.is_restored
    wait_for(lambda: len(kept("talk")) == 2)
    said, heard = kept("talk")
    assert said["content"] == "Tell a story."
    assert heard["content"].startswith("Once upon a time")
    if way == "closed":
        goes_on(open_terminal, provider)


def goes_on(open_terminal, provider: Provider) -> None:
    """The same session, opened again."""
    provider.replies.append(reply("And they lived.", counted=False))
    terminal = talking(open_terminal, provider)
    terminal.sees("Once upon a time", "/ for commands")
    terminal.type("Go on.")
    terminal.press("Enter")
    terminal.sees("And they lived.")
    terminal.press("C-q")
    assert terminal.left().code == 0
    assert [message["role"] for message in kept("talk")] == ["user", "assistant"] * 2


def test_an_answer_without_end_is_drawn_as_it_comes_and_ended_with_ctrl_c(open_terminal, provider):
    provider.replies = [Reply(pieces=WIRE.text("All work and no play makes Jack a dull boy.\n\n"), end="endless")]
    terminal = talking(open_terminal, provider, window=1_000_000)
    terminal.sees("/ for commands")
    terminal.type("Write.")
    terminal.press("Enter")
    terminal.shows(lambda screen: screen.count("dull boy") > 10, "it is not drawn")
    terminal.resize(60, 20)
    terminal.press("C-c")
    assert provider.gone.wait(PATIENCE)
    terminal.sees("Ended. What was said is kept.")
    terminal.press("C-q")
    assert terminal.left().code == 0
    assert len(kept("talk")) == 2
