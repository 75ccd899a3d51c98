"""The extensions for pi and OpenCode are installed, removed and checked as the hooks of other agents are."""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from context_compactor.agents.coding_agents import AGENTS
from context_compactor.agents.hook_log import log_hook
from context_compactor.agents.install.targets import extension_command, extension_text
from context_compactor.agents.sync import hook_state_of

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "compactor")
FILES = {"pi": ".pi/agent/extensions/compactor.js", "opencode": ".config/opencode/plugins/compactor.js"}
PROJECT_FILES = {"pi": ".pi/extensions/compactor.js", "opencode": ".opencode/plugins/compactor.js"}


@pytest.fixture(autouse=True)
def _own_folders(place, monkeypatch):
    for name in ("PI_CODING_AGENT_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = place.home / "bin"
    found.mkdir()
    for agent in FILES:
        place.write(found / agent, "#!/bin/sh\necho 1.0.0\n", 0o755)
    (found / "compactor").symlink_to(PROGRAM)
    monkeypatch.setenv("PATH", f"{found}:{os.environ['PATH']}")


def findings(run, agent: str) -> dict[str, list[tuple[str, str]]]:
    """What the doctor found, by area: states and words."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(run("doctor", agent, "--json").out)["findings"]:
        found.setdefault(each["area"], []).append((each["state"], each["what"]))
    return found


@pytest.mark.parametrize("agent", FILES)
@pytest.mark.parametrize("scope", ["--user", "--project"])
def test_an_uninstall_leaves_every_file_as_it_was_before_the_install(place, run, agent, scope):
    before = place.tree()
    assert run("install", agent, scope, "--yes").code == 0
    path = place.home / FILES[agent] if scope == "--user" else place.project / PROJECT_FILES[agent]
    command = (PROGRAM,) if scope == "--user" else ("compactor",)
    assert path.read_text() == extension_text(AGENTS[agent], command)
    assert extension_command(path.read_text()) == command
    ran = run("install", agent, scope)
    assert "already; nothing was changed" in ran.out
    assert run("uninstall", agent, scope, "--yes").code == 0
    assert place.tree() == before


@pytest.mark.parametrize("agent", FILES)
def test_an_older_one_is_brought_up_to_date_and_one_of_somebody_else_is_refused(place, run, agent):
    path = place.home / FILES[agent]
    place.write(path, extension_text(AGENTS[agent], ("/old/place/compactor",)).replace("const SECONDS = 20;", ""))
    assert run("install", agent, "--yes").code == 0
    assert path.read_text() == extension_text(AGENTS[agent], (PROGRAM,))
    place.write(path, "export default () => {}\n")
    ran = run("install", agent, "--yes")
    assert ran.code == 2
    assert "was not written by compactor" in ran.err
    assert path.read_text() == "export default () => {}\n"


def test_the_folders_that_an_agent_is_told_are_used(place, run, monkeypatch):
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(place.home / "elsewhere"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.home / "conf"))
    run("install", "pi", "--yes")
    run("install", "opencode", "--yes")
    assert (place.home / "elsewhere/extensions/compactor.js").is_file()
    assert (place.home / "conf/opencode/plugins/compactor.js").is_file()


@pytest.mark.parametrize(
    "command", [("/a b/compactor",), ("/usr/bin/python3", "-P", "-m", "context_compactor"), ('/"\\ü/x',)]
)
def test_any_command_comes_back_out_of_an_extension(command):
    for agent in FILES:
        assert extension_command(extension_text(AGENTS[agent], command)) == command
    assert extension_command("const COMMAND = [1];\n") is None
    assert extension_command("const COMMAND = [;];\n") is None
    assert extension_command("") is None


@pytest.mark.parametrize("agent", FILES)
def test_the_doctor_says_what_is_registered_who_compacts_and_whether_it_was_ever_asked(place, run, agent):
    assert findings(run, agent)["hooks"][0][0] == "wrong"
    run("install", agent, "--yes")
    found = findings(run, agent)
    assert found["hooks"] == [("ok", f"{AGENTS[agent].title}: 2 of 2 hooks in {place.home / FILES[agent]} (user)")]
    assert ("ok", f"{AGENTS[agent].title} calls {PROGRAM} (user), which is this program") in found["versions"]
    assert "which answers with" in found["mcp"][0][1]
    assert 'agent_compaction is "ours"' in found["compaction"][0][1]
    assert "has not asked" in found["compaction"][1][1]
    with hook_state_of(str(place.project)) as state:
        state.change("s1", 1.0, {"agent": agent})
    log_hook(str(place.project), "compact", "passed", key="s1", reason="there is no log")
    assert findings(run, agent)["compaction"][1] == ("look", findings(run, agent)["compaction"][1][1])
    log_hook(str(place.project), "compact", "record given", key="s1")
    state, words = findings(run, agent)["compaction"][1]
    assert (state, "asked 2×" in words, words.endswith("record given")) == ("ok", True, True)


@pytest.mark.parametrize("agent", FILES)
def test_the_doctor_finds_a_command_that_is_gone_an_old_extension_and_one_that_is_there_twice(place, run, agent):
    run("install", agent, "--yes")
    path = place.home / FILES[agent]
    place.write(path, extension_text(AGENTS[agent], ("/gone/compactor",)))
    assert any("/gone/compactor" in words and state == "wrong" for state, words in findings(run, agent)["versions"])
    place.write(path, path.read_text().replace("/gone/compactor", PROGRAM).replace("const SECONDS = 20;", ""))
    assert ("look", f"{path} has our hooks as an older version wrote them") in findings(run, agent)["hooks"]
    run("install", agent, "--yes")
    ran = run("install", agent, "--project", "--yes")
    assert "would run twice" in " ".join(ran.out.split())
    assert any("more than once" in words for state, words in findings(run, agent)["hooks"] if state == "wrong")
    shutil.rmtree(place.project / PROJECT_FILES[agent].split("/")[0])
    assert all(state == "ok" for state, _ in findings(run, agent)["hooks"])
