"""Whatever comes, an agent is never broken by us: a hook leaves with 0, and writes down what was wrong."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.agents.coding_agents import CLAUDE_CODE, CODEX
from context_compactor.agents.hook_state import STATE_FILE
from context_compactor.agents.hooks import entry
from tests.hooks.place import Place, Talk, recorded, worked
from tests.warm import COMMAND

_CALLS = [*recorded(CLAUDE_CODE.name).values(), *recorded(CODEX.name).values()]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"nonsense",
        b"{",
        b"[]",
        b"3",
        b'"text"',
        b"null",
        b"{}",
        b'{"session_id": 3}',
        b'{"session_id": ""}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"session_id": "' + b"x" * 5_000_000,
    ],
    ids=lambda said: said[:20].decode("latin-1") or "empty",
)
def test_what_is_no_call_is_written_down_and_nothing_else_happens(place: Place, said: bytes):
    ran = place.run("post-tool-use", said)
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert b"Traceback" not in ran.stderr
    (line,) = place.hook_log()
    assert (line["event"], line["what"]) == ("post-tool-use", "failed")
    assert line["problem"]


@pytest.mark.parametrize("event", ["", "nonsense", "--help-me", "pre-compact-2", "💥"])
def test_an_event_that_is_not_known_is_written_down_with_those_that_are(place: Place, event: str):
    ran = subprocess.run(
        [COMMAND, "hook", event], input=b"{}", capture_output=True, check=False, cwd=place.project, env=place.env
    )
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert b"pre-compact" in ran.stderr


def test_an_agent_that_is_not_known_is_written_down(place: Place, talk: Talk):
    ran = place.run("stop --agent nonsense", talk.said("Stop"))
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert b"claude-code or codex" in ran.stderr


def test_events_may_be_spelled_as_agents_do(place: Place, talk: Talk):
    worked(talk)
    assert place.call("PreCompact", talk.said("PreCompact", trigger="auto")) == ""
    assert list(place.rows()) == [talk.id]


@pytest.mark.parametrize("spoil", ["log is a folder", "log is binary", "log is empty", "log is gone", "log is odd"])
def test_a_log_that_cannot_be_read_stops_nobody(place: Place, talk: Talk, spoil: str):
    worked(talk)
    match spoil:
        case "log is a folder":
            talk.path.unlink()
            talk.path.mkdir()
        case "log is binary":
            talk.path.write_bytes(os.urandom(1000))
        case "log is empty":
            talk.path.write_bytes(b"")
        case "log is gone":
            talk.path.unlink()
        case _:
            talk.path.write_bytes(b'{"type": "user", "message": {"role": "nobody", "content": 3}}\n')
    for event, word in (("PreCompact", "pre-compact"), ("Stop", "stop"), ("SessionEnd", "session-end")):
        ran = place.run(word, talk.said(event, trigger="auto"))
        assert (ran.returncode, ran.stdout) == (0, b"")
        assert b"Traceback" not in ran.stderr
    ran = place.run("session-start", talk.said("SessionStart", source="compact"))
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert place.hook_log()


def test_settings_that_are_wrong_are_written_down_and_the_agent_goes_on(place: Place, talk: Talk):
    worked(talk)
    (place.project / ".compactor").mkdir()
    (place.project / ".compactor/config.toml").write_text("window = 'many'\n")
    ran = place.run("pre-compact", talk.said("PreCompact", trigger="auto"))
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert "window" in str(place.hook_log()[-1]["problem"])


def test_a_store_that_is_damaged_stops_nobody(place: Place, talk: Talk):
    worked(talk)
    (place.project / ".compactor").mkdir()
    for name in ("compactor.db", STATE_FILE):
        (place.project / ".compactor" / name).write_bytes(b"this is no database, and never was one\n" * 100)
    for event, word in (("PostToolUse", "post-tool-use"), ("PreCompact", "pre-compact"), ("Stop", "stop")):
        ran = place.run(word, talk.said(event, trigger="auto", tool_name="Bash"))
        assert (ran.returncode, ran.stdout) == (0, b"")
        assert b"Traceback" not in ran.stderr
    assert any("database" in str(line.get("problem")) for line in place.hook_log())


def test_a_project_that_cannot_be_written_stops_nobody(place: Place, talk: Talk):
    worked(talk)
    (place.project / ".compactor").write_text("a file where a folder should be")
    ran = place.run("pre-compact", talk.said("PreCompact", trigger="auto"))
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert b"Traceback" not in ran.stderr


def test_turned_off_means_that_no_hook_does_anything(place: Place, talk: Talk):
    worked(talk)
    for event, word in (("PreCompact", "pre-compact"), ("SessionStart", "session-start"), ("Stop", "stop")):
        said = talk.said(event, source="compact", trigger="auto")
        assert place.call(word, said, COMPACTOR_ENABLED="false") == ""
    assert not (place.project / ".compactor/compactor.db").exists()


def test_a_hook_uses_no_network_though_a_model_is_set(place: Place, talk: Talk):
    worked(talk, 30)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        model = f"http://127.0.0.1:{server.getsockname()[1]}/v1#small"
        for event, word in (("PreCompact", "pre-compact"), ("Stop", "stop"), ("SessionEnd", "session-end")):
            place.call(word, talk.said(event, trigger="auto"), COMPACTOR_SUMMARIZER=model)
        talk.compact("It goes on.")
        place.call("session-start", talk.said("SessionStart", source="compact"), COMPACTOR_SUMMARIZER=model)
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_hook_with_nothing_to_do_loads_next_to_nothing(place: Place, talk: Talk):
    worked(talk)
    talk.hook("SessionStart", "session-start", source="startup")
    loads = (
        "import sys; from context_compactor.agents.hooks.entry import main; "
        "main(['post-tool-use']); print(*sys.modules)"
    )
    said = json.dumps(talk.said("PostToolUse", tool_name="Bash", tool_response="ok")).encode()
    ran = subprocess.run([sys.executable, "-c", loads], input=said, capture_output=True, check=True, env=place.env)
    names = set(ran.stdout.decode().split())
    assert not names & {"msgspec", "typing", "pathlib", "typer", "sqlite3", "contextlib", "datetime"}
    assert {name for name in names if name.startswith("context_compactor.")} == {
        "context_compactor.agents",
        "context_compactor.agents.hook_log",
        "context_compactor.agents.paths",
        "context_compactor.agents.hook_state",
        "context_compactor.agents.transcript_tail",
        "context_compactor.agents.hooks",
        "context_compactor.agents.hooks.entry",
    }
    assert place.rows()[talk.id].calls == 1


def mutated(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """A real call with some of its fields changed, gone, or of another kind."""
    said = dict(draw(st.sampled_from(_CALLS)))
    for name in draw(st.lists(st.sampled_from(sorted(said)), max_size=4)):
        if draw(st.booleans()):
            said.pop(name, None)
        else:
            said[name] = draw(_VALUES)
    return said


@given(data=st.data(), event=st.sampled_from(entry.EVENTS))
def test_no_call_of_any_shape_breaks_an_agent(data: st.DataObject, event: str):
    said = mutated(data.draw)
    here = Path.cwd()
    with TemporaryDirectory() as folder:
        said["cwd"] = folder
        out, err = io.StringIO(), io.StringIO()
        given = io.TextIOWrapper(io.BytesIO(json.dumps(said).encode("utf-8", "surrogatepass")))
        env = {"PATH": os.environ["PATH"], "HOME": folder, "CLAUDE_PROJECT_DIR": folder}
        try:
            with (
                patch.object(sys, "stdin", given),
                patch.object(sys, "stdout", out),
                patch.object(sys, "stderr", err),
                patch.dict(os.environ, env, clear=True),
            ):
                assert entry.main([event]) == 0
        finally:
            os.chdir(here)
    if event in ("pre-compact", "stop"):
        assert out.getvalue() == ""
    elif out.getvalue():
        json.loads(out.getvalue())
