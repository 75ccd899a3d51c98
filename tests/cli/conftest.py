"""Running commands in this process, and conversations to run them on."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path
from shutil import copytree

import pytest
from msgspec import Struct

from context_compactor.cli.main import main
from tests.engine.talks import bash, edit, read, talk_in

ERROR = "AssertionError: assert 41 == 42"


class Ran(Struct):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """Runs `compactor` with these arguments, in an empty folder and with no settings around."""
    monkeypatch.chdir(tmp_path)
    for name in ("COMPACTOR_WINDOW", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run_command(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(left.value.code or 0, out, err)

    return run_command


def conversation(steps: int = 40) -> list[dict]:
    """An agent that reads a long file again and again, in the chat dialect."""
    messages = [
        {"role": "system", "content": "You are a careful engineer."},
        {"role": "user", "content": "Fix the parser in src/parser.py. Never touch legacy/."},
    ]
    for step in range(steps):
        call = {"name": "read_file", "arguments": json.dumps({"path": f"src/part_{step}.py"})}
        messages += [
            {
                "role": "assistant",
                "content": f"Reading part {step}.",
                "tool_calls": [{"id": f"call_{step}", "type": "function", "function": call}],
            },
            {
                "role": "tool",
                "tool_call_id": f"call_{step}",
                "content": "\n".join(f"def part_{step}_{line}(value): return value + {line}" for line in range(60)),
            },
        ]
    return [*messages, {"role": "assistant", "content": "All parts are read."}, {"role": "user", "content": "Go on."}]


@pytest.fixture
def transcript(tmp_path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps(conversation()), encoding="utf-8")
    return path


class Stored(Struct):
    """A session `run-42` in the store of the folder: what went in, and the context and report that came out."""

    file: Path
    store: Path
    messages: list[dict]
    context: list[dict]
    report: dict


@pytest.fixture
def stored(run, tmp_path, kept_store) -> Stored:
    """A conversation in which things went wrong, kept and compacted by the command."""
    if not any(kept_store.iterdir()):
        _store(run, kept_store)
    copytree(kept_store, tmp_path, dirs_exist_ok=True)
    done = json.loads((tmp_path / "done.json").read_text(encoding="utf-8"))
    (tmp_path / "done.json").unlink()
    file = tmp_path / "agent.json"
    messages = json.loads(file.read_text(encoding="utf-8"))
    return Stored(file, tmp_path / ".compactor" / "compactor.db", messages, done["messages"], done["report"])


@pytest.fixture(scope="session")
def kept_store(tmp_path_factory) -> Path:
    """Where the session lies from which each test gets a copy."""
    return tmp_path_factory.mktemp("kept")


def _store(run, folder: Path) -> None:
    talk = talk_in("openai-chat").system("You are a careful engineer.").user("Fix the parser. Never touch legacy/.")
    for number in range(30):
        lines = "\n".join(f"def part_{number}_{line}(value): return value + {line}" for line in range(50))
        talk.step(read(f"src/part_{number}.py", lines), text=f"Reading part {number}.")
    talk.step(bash("pytest -q tests/test_parser.py", f"Exit code 1\nE   {ERROR}\n1 failed in 0.10s", failed=True))
    talk.step(edit("src/parser.py", "return 1", "return 2"), text="We decided to go with a table of rules.")
    talk.answer("All parts are read.").user("Go on.")
    (folder / "agent.json").write_text(json.dumps(talk.messages), encoding="utf-8")
    with chdir(folder):
        done = run("compact", folder / "agent.json", "--session", "run-42", "--target", "25%", "--json")
    (folder / "done.json").write_text(done.out, encoding="utf-8")
