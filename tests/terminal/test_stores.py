"""Stores that are not as they should be: said on the screen with what to try, and looked at again until they are."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.terminal.terminal import COMPACTOR, left_well
from tests.tui.places import URL, a_few_sessions

pytestmark = pytest.mark.slow

HERE = ("--store", URL)
NOBODY = 65534


@pytest.fixture(autouse=True)
def sessions(tmp_path, monkeypatch) -> None:
    """Three sessions in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    a_few_sessions()


def test_a_store_that_is_not_there_is_looked_for_until_it_is(open_terminal, tmp_path):
    (tmp_path / "sessions.db").rename(tmp_path / "elsewhere.db")
    terminal = open_terminal(*HERE)
    terminal.sees("there is no store at", "What to try")
    (tmp_path / "elsewhere.db").rename(tmp_path / "sessions.db")
    terminal.sees("3 sessions", "run-42")
    left_well(terminal, "C-q")


def test_a_store_with_damaged_contents_says_so_in_every_pane_and_nothing_ends(open_terminal):
    with closing(sqlite3.connect("sessions.db", isolation_level=None)) as store:
        store.execute("UPDATE contents SET bytes = x'6e6f'")
    terminal = open_terminal(*HERE)
    terminal.sees("run-42")
    terminal.press("Down", "Enter")
    tabs = terminal.sees("cannot be unpacked", "Turns").splitlines()[3].split()
    for name in ("Plan", "Context", "Plot", "Compactions", "Facts"):
        terminal.press(str(tabs.index(name) + 1))
        terminal.sees("cannot be unpacked", name)
    left_well(terminal, "C-q")


def test_a_file_that_is_no_store_says_so(open_terminal, tmp_path):
    (tmp_path / "sessions.db").write_bytes(b"This is a text, and a long one. " * 1_000)
    terminal = open_terminal(*HERE)
    terminal.sees("is damaged or is not a database", "What to try")
    left_well(terminal, "C-q")


def test_a_store_that_somebody_else_writes_to_is_waited_for(open_terminal):
    terminal = open_terminal(*HERE, "--session", "run-42")
    terminal.sees("turn_090")
    with closing(sqlite3.connect("sessions.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        terminal.type("/undo")
        terminal.press("Enter")
        terminal.shows(lambda screen: "turn_090" in screen and "/undo" not in screen, "it was not entered")
        other.execute("ROLLBACK")
    terminal.sees("was taken back")
    left_well(terminal, "C-q")


def test_a_store_that_may_not_be_written_says_so(open_terminal, tmp_path):
    (tmp_path / "sessions.db").chmod(0o400)
    command: tuple[str, ...] = (COMPACTOR, "tui")
    if os.geteuid() == 0:
        shutil.rmtree(tmp_path / ".compactor")
        command = ("setpriv", f"--reuid={NOBODY}", "--clear-groups", *command)
        shutil.chown(tmp_path / "sessions.db", NOBODY)
        for folder in (tmp_path, *tmp_path.parents):
            if Path(tempfile.gettempdir()) in folder.parents:
                folder.chmod(0o755)
    terminal = open_terminal(*HERE, command=command, size=(200, 24))
    terminal.sees("cannot be opened: Permission denied", "or its permissions")
    left_well(terminal, "C-q")


def test_on_a_full_disk_a_change_fails_with_words_and_the_rest_is_still_there(open_terminal):
    # No file may grow over 48 KB: room for what SQLite needs to read, but not for what a compaction writes.
    terminal = open_terminal(*HERE, "--session", "almost full", limits="ulimit -f 96")
    terminal.sees("turn_012")
    terminal.type("/compact")
    terminal.press("Enter")
    terminal.sees("sessions.db", "nothing was written")
    terminal.press("Escape")
    left_well(terminal, "C-q")
