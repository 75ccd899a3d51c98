"""Looking at sessions in a real terminal: every screen there and back, at any size, on any kind of terminal."""

from __future__ import annotations

import re

import pytest

from tests.terminal.terminal import COMPACTOR, left_well
from tests.tui.places import URL, a_few_sessions

pytestmark = pytest.mark.slow

HERE = ("--store", URL)
STANDS = ("Turn ", "turn_090")
"""What the first pane of the session `run-42` shows."""


@pytest.fixture(autouse=True)
def sessions(tmp_path, monkeypatch) -> None:
    """Three sessions in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    a_few_sessions()


def test_from_all_sessions_to_one_through_all_its_panes_to_what_was_said_and_back(open_terminal):
    terminal = open_terminal(*HERE)
    terminal.sees("3 sessions · 1 aggressive", "run-42", "almost full", "quiet")
    terminal.type("/run-")
    terminal.sees("1 of 3 sessions", "run-42")
    terminal.press("Enter", "Enter")
    tabs = terminal.sees("of 2,362 tokens", *STANDS).splitlines()[3].split()
    for name, words in {
        "Context": ("tool results", "Characters"),
        "Plot": ("tokens over messages", "compactions (×)"),
        "Compactions": ("Saved", "Conversation compacted"),
        "Facts": ("[all ", "decision"),
        "Search": ("Only what has left the context is searched",),
        "Diff": ("Before", "After", "29 removed, 1 added"),
        "Turns": STANDS,
    }.items():
        if name == "Diff":
            terminal.misses("⏎ Open")
            terminal.press("Escape")  # out of the question, which takes digits as well
            terminal.sees("⏎ Open")
        terminal.press(str(tabs.index(name) + 1))
        terminal.sees(*words)
    terminal.press("Home")
    terminal.sees("turn_001")
    terminal.press("Enter")
    terminal.sees("turn_001", "Request 0: look at src/part_0.py", "Wrap")
    terminal.press("Escape")
    terminal.sees("of 2,362 tokens", "turn_001")
    terminal.press("Escape")
    terminal.sees("1 of 3 sessions")
    left_well(terminal, "q")


def test_a_terminal_may_get_any_size_on_every_screen_and_one_that_is_too_small_says_so(open_terminal):
    terminal = open_terminal(*HERE, size=(30, 5))
    terminal.sees("Too small: 30x5", "40x10")
    terminal.resize(80, 24)
    terminal.sees("▌almost full")
    for key, words, tiny in (
        ("Down", ("run-42", "almost fu"), (39, 24)),
        ("Enter", ("of 2,362", "turn_090"), (80, 9)),
        ("Enter", ("Part 29 does 87",), (20, 4)),
        ("?", ("Each bar is the context",), (200, 3)),
        ("Escape", ("Part 29 does 87",), (24, 24)),
        ("Escape", ("of 2,362", "turn_090"), (39, 9)),
        ("/", ("of 2,362", "/compact"), (30, 60)),
    ):
        terminal.resize(80, 24)
        terminal.misses("Too small")
        terminal.press(key)
        for width, height in ((80, 24), (200, 60), (40, 10)):
            terminal.resize(width, height)
            terminal.sees(*words)
        terminal.resize(*tiny)
        terminal.sees("Too small")
    for width, height in ((1, 1), (2, 60), (200, 1)):
        terminal.resize(width, height)
        terminal.shows(lambda screen: screen.startswith("T"), "it does not say that it is too small")
    terminal.resize(39, 9)  # on one line, tmux itself keeps what its alternate screen showed
    terminal.sees("Too small: 39x9")
    left_well(terminal, "C-q")


@pytest.mark.parametrize("kind", ["xterm-mono", "vt100", "linux"])
def test_every_kind_of_terminal_that_has_a_cursor_is_drawn_on(open_terminal, kind):
    terminal = open_terminal(
        *HERE, "--session", "run-42", env={"TERM": kind}, command=("env", f"TERM={kind}", COMPACTOR, "tui")
    )
    terminal.sees("○ below soft", *STANDS)
    left_well(terminal, "C-q")


def test_without_colours_every_sign_is_there_and_nothing_is_coloured(open_terminal):
    terminal = open_terminal(*HERE, env={"NO_COLOR": "1", "COLORTERM": "truecolor"})
    terminal.sees("◑ aggressive", "○ below soft", "███████░ 88 %")
    found = re.findall(r"\x1b\[[\d;]*[34]8;(?:2;(\d+);(\d+);(\d+)|5;(\d+))", terminal.painted())
    assert found
    assert all(red == green == blue for red, green, blue, _ in found), found
    assert all(not number or is_grey(int(number)) for *_, number in found), found
    left_well(terminal, "q")


def is_grey(number: int) -> bool:
    """Whether a colour of the palette of 256 is none."""
    return number >= 232 or number in (0, 7, 8, 15, 16, 59, 102, 145, 188, 231)


@pytest.mark.parametrize("locale", [{"LC_ALL": "POSIX"}, {"LANG": None}])
def test_without_a_locale_of_utf_8_it_is_drawn_all_the_same(open_terminal, locale):
    terminal = open_terminal(*HERE, env=locale)
    terminal.sees("███████░ 88 %", "run-42")
    left_well(terminal, "q")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TERM": "dumb"}, "the terminal UI does not work with TERM=dumb. Try: `compactor sessions`"),
        (
            {"PYTHONIOENCODING": "latin-1"},
            "uses the encoding iso8859-1, and the UI needs UTF-8. Try: LANG=C.UTF-8",
        ),
        (
            {"PYTHONUTF8": "0", "LC_ALL": "C"},
            "uses the encoding ascii, and the UI needs UTF-8. Try: LANG=C.UTF-8",
        ),
    ],
)
def test_where_nothing_can_be_drawn_it_says_what_to_try(open_terminal, env, words):
    given = [f"{name}={value}" for name, value in env.items()]
    left = open_terminal(*HERE, command=("env", *given, COMPACTOR, "tui"), size=(200, 24)).left()
    assert left.code == 2
    assert words in left.screen
    assert len(left.screen.strip().splitlines()) == 1
    assert left.is_restored
