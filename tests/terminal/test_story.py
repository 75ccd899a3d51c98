"""The main story on a real terminal: talk until the context is compacted, plan, compact, take back, recall, go on."""

from __future__ import annotations

import json
import re
import subprocess

from tests.llm.formats import FORMATS
from tests.llm.provider import Reply
from tests.terminal.terminal import COMPACTOR, Terminal
from tests.tui.chatting import reply
from tests.tui.places import URL

WIRE = FORMATS["openai"]
COMPACTED = re.compile(r"✓ (Compacted \d+ messages|Shortened \d+ results? in place)")
TOKENS = re.compile(r"Tokens: ([\d,]+) → ([\d,]+) \(saved ([\d,]+)\)")


def answer(number: int) -> str:
    """Long enough for a small window to be full soon."""
    return "\n\n".join(f"Step {number}.{line} adds part_{number}_{line} to the plan." for line in range(30))


def ran(*arguments: str) -> str:
    """What the command line says of the same store."""
    command = [COMPACTOR, *arguments, "--store", URL]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def send(terminal: Terminal, text: str, heard: str) -> None:
    """Type something and enter it, again while the turn before is not over yet, until its answer is seen."""
    terminal.type(text)
    terminal.shows(lambda screen: heard in screen or terminal.press("Enter"), f"never answered: {text}")


def test_one_talks_until_it_is_compacted_and_goes_on(open_terminal, provider):
    said: list[str] = []
    provider.replies = [reply(answer(number), counted=False) for number in range(12)]
    arguments = ("--store", URL, "--session", "talk", "--model", f"{provider.url}/v1#scripted", "--window", "6000")
    terminal = open_terminal(*arguments, size=(120, 40))
    terminal.sees("This session is made with your first words")
    for number in range(9):
        said.append(f"What does step {number} do?")
        send(terminal, said[-1], f"part_{number}_29")
    terminal.sees("✓ Compacted 16 messages · Tokens: ")
    for number in (9, 10):
        said.append(f"What does step {number} do?")
        send(terminal, said[-1], f"part_{number}_29")

    # A plan, changed by hand and accepted
    terminal.type("/plan --target 30%")
    terminal.press("Enter")
    terminal.sees("saves", "fits")
    terminal.press("p")
    terminal.sees("1 tier changed, not saved yet")
    terminal.press("a")
    terminal.shows(COMPACTED.search, "the plan was never accepted")
    terminal.shows(TOKENS.search, "what it saved was never said")

    # Back, forth, and what has left the context
    terminal.press("/")
    terminal.type("undo")
    terminal.press("Enter")
    terminal.sees("was taken back", "Tokens: ")
    terminal.type("/recall turn_001")
    terminal.press("Enter")
    terminal.sees("What does step 0 do?", "Page before")
    terminal.press("Escape")
    terminal.misses("Page before")
    terminal.type("/search part_0_7")
    terminal.press("Enter")
    terminal.sees("Search", "part_0_7")

    # An answer that is ended, and words that no request could hold
    provider.replies = [*provider.replies[: len(provider.bodies)], Reply(pieces=WIRE.text("Well, "), end="stall")]
    said.append("And the last step?")
    send(terminal, said[-1], "Well,")
    terminal.press("C-c")
    terminal.sees("[cut off here: the user has ended the answer]")
    terminal.paste("x y " * 262_144)
    terminal.sees("[pasted 1,048,576 characters]")
    terminal.press("Enter")
    terminal.sees("Try: in parts", "[pasted 1,048,576 characters]")
    terminal.press("C-c")
    terminal.misses("[pasted")
    terminal.press("C-q")
    left = terminal.left()
    assert (left.code, left.is_restored) == (0, True)

    kept = json.loads(ran("history", "talk", "--json"))["messages"]
    assert [message["content"] for message in kept if message["role"] == "user"] == said
    assert [message["role"] for message in kept] == ["user", "assistant"] * len(said)
    totals = json.loads(ran("history", "talk", "--reports", "--json"))["totals"]
    assert (totals["compactions"], totals["undone"]) == (2, 1)
