"""What only a real process shows: exit codes, streams, pipes and terminals."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SHIPPED = Path(__file__).parents[2] / "examples" / "demo_session.jsonl.gz"
COMMAND = [sys.executable, "-c", "from context_compactor.cli.main import main; main()"]


def run(*arguments: object, **options) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, check=False, **options)


def test_the_version_is_printed():
    ran = run("--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith(b"compactor 0.")


def test_bad_input_leaves_with_two_and_one_line_for_people(tmp_path):
    ran = run("compact", tmp_path / "none.json")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(b"error: ")
    assert len(ran.stderr.splitlines()) == 1


def test_the_shipped_session_can_be_compacted_from_standard_input():
    ran = run("compact", "-", "--target", "10%", input=SHIPPED.read_bytes())
    assert ran.returncode == 0
    assert ran.stdout.startswith(b"[\n{")
    assert b"Conversation compacted:" in ran.stderr


def test_a_reader_that_leaves_early_is_no_drama():
    with subprocess.Popen([*COMMAND, "compact", SHIPPED], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        process.wait()
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_colour_is_for_terminals_and_can_be_turned_off(no_colour, coloured):
    reader, terminal = pty.openpty()
    env = os.environ | {"NO_COLOR": no_colour, "TERM": "xterm"}
    subprocess.run([*COMMAND, "config"], stdout=terminal, check=True, env=env)
    os.close(terminal)
    assert (b"\x1b[" in os.read(reader, 4096)) is coloured
    os.close(reader)


def test_a_terminal_that_knows_no_unicode_gets_something_readable():
    ran = run("show", SHIPPED, env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert ran.returncode == 0
    assert b"in all" in ran.stdout
