"""What only a real process shows: exit codes, streams, pipes and terminals."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from tests import warm

SHIPPED = Path(__file__).parents[2] / "examples" / "demo_session.jsonl.gz"
COMMAND = [sys.executable, "-c", "from context_compactor.cli.main import main; main()"]


def run(*arguments: object, **options) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, check=False, **options)


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A folder with the shipped session in its store, compacted by one process. Tests leave it as it is."""
    folder = tmp_path_factory.mktemp("kept")
    ran = run("compact", SHIPPED, "--session", "demo", "--target", "20%", "-o", "context.json", cwd=folder)
    assert ran.returncode == 0
    return folder


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


# A session that other processes made


def test_another_process_recalls_undoes_compares_and_asks_for_facts(kept, tmp_path):
    place = copytree(kept, tmp_path / "kept")

    def ran(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return warm.run(*arguments, cwd=place, env=os.environ)

    reports = json.loads(ran("history", "demo", "--reports", "--json").stdout)["compactions"]
    ids = [each["id"] for each in reports[0]["archived"]]
    assert ran("recall", ids[0]).stdout
    assert ran("context", "demo").stdout == (place / "context.json").read_bytes()
    assert b"failure" in ran("facts").stdout
    assert b"failure" in ran("facts", "--kind", "error").stdout
    assert ran("facts", "--kind", "mistake").returncode == 2
    assert b'"first_seen":' in ran("facts", "--json").stdout
    assert b"removed" in ran("diff").stdout
    assert ran("undo").returncode == 0
    history, context = (json.loads(ran(verb, "demo").stdout) for verb in ("history", "context"))
    assert len(history) == len(context)
    assert ran("redo").returncode == 0
    assert ran("verify").returncode == 0


@pytest.mark.parametrize("command", ["context demo", "history demo", "recall turn_001", "facts", "sessions"])
def test_a_reader_of_a_session_that_leaves_early_is_no_drama(kept, command):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": kept}
    with subprocess.Popen([*COMMAND, *command.split()], **options) as process:
        process.stdout.close()
        said = process.stderr.read()
        process.wait()
    assert process.returncode == 0
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("command", ["context demo", "facts", "sessions --json"])
def test_a_full_disk_is_told(kept, command):
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([*COMMAND, *command.split()], stdout=full, stderr=subprocess.PIPE, check=False, cwd=kept)
    assert ran.returncode == 1
    assert b"cannot write to standard output: No space left on device" in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_an_original_is_exact_in_a_pipe_and_harmless_on_a_terminal(tmp_path):
    evil = "one\x1b]0;owned\x07\ntwo\r\n\tthree \x1b[31m"
    call = {"id": "call_1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "make"}'}}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": evil},
    ]
    (tmp_path / "agent.json").write_text(json.dumps(messages))
    run("compact", "agent.json", "--session", "evil", cwd=tmp_path)
    assert run("recall", "tool_001", cwd=tmp_path).stdout == evil.encode()
    reader, terminal = pty.openpty()
    subprocess.run([*COMMAND, "recall", "tool_001"], stdout=terminal, check=True, cwd=tmp_path)
    os.close(terminal)
    shown = os.read(reader, 4096)
    os.close(reader)
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert b"\r\n\tthree" in shown


def test_help_loads_neither_the_engine_nor_a_database():
    program = (
        "import sys; from context_compactor.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}print(*sys.modules)"], capture_output=True, check=True, text=True
    )
    loaded = set(ran.stdout.splitlines()[-1].split())
    heavy = (
        "engine.compact",
        "engine.api",
        "sessions.session",
        "store.connect",
        "engine.plan",
        "tokens.counting",
        "handoff",
        "facts",
    )
    assert not loaded & {
        "sqlite3",
        "splintr",
        "tree_sitter",
        "zstandard",
        *(f"context_compactor.{name}" for name in heavy),
    }
