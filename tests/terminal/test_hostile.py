"""Texts that try to drive a terminal, or that it draws otherwise than they were measured: the screen stays whole."""

from __future__ import annotations

import json

from tests.terminal.terminal import left_well
from tests.tui.places import URL, filled

CODES = "\x1b[31mred \x1b]0;a title\x07 \x1b[2J\x1b[H \x9b5A \x1bc \x08\x08 \x0e \x00 \r over \x7f"
UNSEEN = "\u202eright to left\u202c \u200bnothing\u200d \ufeff \u2066iso\u2069"
ODD = f"{UNSEEN} שלום مرحبا 漢字 ｗｉｄｅ 👩‍👩‍👧‍👦 🇩🇪 1️⃣ ❤️ Z" + "\u0300" * 300
SEPARATORS = "a\x0bb\x0cc\x85d\u2028e\u2029f"
NAME = "odd שלום 漢字 👩 run"


def conversation() -> list[dict]:
    call = {"id": "c", "type": "function", "function": {"name": f"Bash{CODES}", "arguments": json.dumps({"a": CODES})}}
    return [
        {"role": "system", "content": f"{CODES}{ODD}"},
        {"role": "user", "content": f"Never touch this: {ODD} {CODES}"},
        {"role": "assistant", "content": ODD, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"{CODES}\n{SEPARATORS}\n" * 40},
        {"role": "assistant", "content": f"We decided to keep {CODES} {ODD}."},
        {"role": "user", "content": "x" * 1_000_000},
        {"role": "assistant", "content": "漢" * 50_000 + "\u0301" * 50_000},
        {"role": "user", "content": "\n" * 50_000 + "\t" * 5_000 + "the end of it"},
        {"role": "assistant", "content": SEPARATORS},
    ]


def test_no_text_of_a_conversation_drives_the_terminal_or_disorders_what_is_drawn(open_terminal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    filled(NAME, conversation(), window=3_000_000, automatic=False)
    terminal = open_terminal("--store", URL, size=(100, 30))
    terminal.sees("odd שלום", "1 session")
    terminal.press("Enter")
    tabs = terminal.sees("turn_007").splitlines()[3].split()
    for name in ("Plan", "Context", "Plot", "Compactions", "Facts", "Turns"):
        terminal.press(str(tabs.index(name) + 1))
        is_whole(terminal.sees(name, "/ for commands", "^p palette"))
    for turn in (0, 1, 2, 5, 6):
        terminal.press("End", *["Up"] * turn, "Enter")
        terminal.sees("Wrap")
        terminal.press("n", "w", "End")
        lines = terminal.sees("Wrap", "^p palette").splitlines()
        assert "Wrap" in lines[29], lines
        terminal.press("Escape")
        is_whole(terminal.sees("/ for commands", "turn_007"))
    title, bell = terminal.ask("#{pane_title}|#{window_bell_flag}").split("|")
    assert "a title" not in title
    assert bell.strip() == "0"
    left_well(terminal, "C-q")


def is_whole(screen: str) -> None:
    """What stands on fixed lines stands there, and nothing runs over the edge."""
    lines = screen.splitlines()
    assert lines[0].startswith(" odd שלום 漢字 👩 run")
    assert lines[3].startswith(" Turns  Plan")
    assert lines[28].startswith(" / for commands")
    assert lines[29].rstrip().endswith("^p palette")
