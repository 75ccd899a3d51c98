"""Which session a tool sees: that of the agent that asks, in every way it took, and no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from context_compactor.agents.hook_state import open_hook_state
from context_compactor.agents.project import ancestor_processes
from context_compactor.errors import BadSetting, UnknownReference, UnknownSession
from context_compactor.mcp.tools import ToolContext
from context_compactor.sessions.session import Session
from tests.mcp.agent import NEEDLE, Agent, asking, compacted, replied, said, talk
from tests.mcp.test_wire import Talk

SECRET = "the other agent found 99887766"


@pytest.fixture
def other(agent: Agent) -> Agent:
    """Another agent that works in the same project at the same time, and did so last."""
    other = Agent(agent.root, "radio")
    other.write(talk(SECRET))
    other.follow()
    other.is_run_by("1:1")
    return other


def test_of_two_agents_in_one_project_each_sees_its_own_session(agent: Agent, other: Agent):
    assert asking(agent.root, "recall", id="file_002", lines="601").text == f"lamp: {NEEDLE}"
    assert SECRET not in asking(agent.root, "search_archive", text="the other agent found").render()
    assert asking(agent.root, "context_status").session == "lamp"
    other.is_run_by(*ancestor_processes())
    agent.is_run_by("1:1")
    assert asking(agent.root, "recall", id="file_002", lines="601").text == f"lamp: {SECRET}"


AGENT = """
import os, subprocess, sys
begin = "import os, sys; root, key = sys.argv[1:]; os.chdir(root); "
hook = begin + "from context_compactor.agents.project import ancestor_processes; "
hook += "from context_compactor.agents.sync import AgentLog, update_hook_state; "
hook += "update_hook_state(AgentLog(root, key, '', ''), processes=' '.join(ancestor_processes()))"
tool = begin + "from context_compactor.mcp.tools import ToolContext; "
tool += "from context_compactor.mcp.session_scope import opened_session; "
tool += "print(opened_session(ToolContext(root)).__enter__().core.id)"
subprocess.run([sys.executable, "-c", hook, *sys.argv[1:]], check=True)
print("ready", flush=True)
sys.stdin.readline()
subprocess.run([sys.executable, "-c", tool, *sys.argv[1:]], check=True)
"""


def test_of_two_agents_in_one_terminal_each_is_known_by_its_own_process(agent: Agent, other: Agent):
    """Programs that start hooks and tools as agents do. Everything above them is the same: the program of the test."""
    running = []
    for key in ("lamp", "radio"):
        command = [sys.executable, "-c", AGENT, str(agent.root), key]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert running[-1].stdout is not None
        assert running[-1].stdout.readline() == "ready\n"
    assert [each.communicate("\n")[0].strip() for each in running] == ["lamp", "radio"]


def test_a_session_of_the_same_project_can_be_asked_for_by_its_name(agent: Agent, other: Agent):
    assert asking(agent.root, "recall", id="file_002", lines="601", session="radio").text == f"lamp: {SECRET}"


def test_a_server_of_one_session_gives_no_other(agent: Agent, other: Agent):
    place = ToolContext(str(agent.root), agent.store, "radio")
    assert asking(place, "context_status").session == "radio"
    with pytest.raises(UnknownSession):
        asking(place, "context_status", session="lamp")


def test_a_name_that_is_not_known_tells_no_name_that_is(agent: Agent, other: Agent):
    with pytest.raises(UnknownSession) as refused:
        asking(agent.root, "facts", session="lam")
    assert "radio" not in str(refused.value)
    assert "'lamp'" not in str(refused.value)


def test_in_a_store_of_many_projects_only_sessions_of_this_one_are_seen(tmp_path, monkeypatch):
    shared = f"sqlite:///{tmp_path}/all.db"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Session.open("elsewhere", store=shared, window=200_000) as session:
        session.append([{"role": "user", "content": SECRET}])
    for given in ({}, {"session": "elsewhere"}):
        with pytest.raises(UnknownSession) as refused:
            asking(ToolContext(str(tmp_path / "here"), shared), "facts", **given)
        assert SECRET not in str(refused.value)
    assert asking(ToolContext(str(tmp_path / "here"), shared, "elsewhere"), "facts").session == "elsewhere"


def test_an_original_of_a_way_that_was_left_is_still_found(agent: Agent):
    """The user goes back to the beginning and takes another way: the log's tree gets a second branch."""
    first = agent.path.read_text().splitlines()[0]
    agent.path.write_text(first.replace("green", "blue") + "\n")
    agent.write([replied("I shall paint it.", 50), said("Go on."), replied("Painted.", 51), said("And now?")])
    agent.follow()
    status = asking(agent.root, "context_status")
    assert status.session == "lamp~2"
    found = asking(agent.root, "recall", id="file_002", lines="601")
    assert (found.session, found.text) == ("lamp", f"lamp: {NEEDLE}")
    assert "another way" in found.note
    with pytest.raises(UnknownReference):
        asking(agent.root, "recall", id="tool_777")


def test_what_the_summary_of_the_agent_lost_is_recalled_and_found(agent: Agent):
    agent.write([*compacted("We worked on a lamp."), said("Which port was it?")])
    status = asking(agent.root, "context_status")
    assert status.compactions == 1
    assert status.last_compaction.tokens_before == 150_000
    found = asking(agent.root, "search_archive", text="port of the lamp")
    assert NEEDLE in found.render()
    hit = next(hit for hit in found.hits if NEEDLE in hit.text)
    assert NEEDLE in asking(agent.root, "recall", id=hit.id, lines=hit.lines).text


@pytest.mark.parametrize("ruin", ["gone", "garbage", "folder"])
def test_a_log_that_cannot_be_read_does_not_keep_originals_away(agent: Agent, ruin):
    agent.path.unlink()
    if ruin == "garbage":
        agent.path.write_text("this is no log\n" * 5)
    elif ruin == "folder":
        agent.path.mkdir()
    found = asking(agent.root, "recall", id="file_002", lines="601")
    assert found.text == f"lamp: {NEEDLE}"
    assert "could not be read" in found.note


def test_a_session_that_hooks_have_only_seen_begin_is_followed_when_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = Agent(tmp_path, "new")
    agent.write(talk())
    agent.is_run_by(*ancestor_processes())
    assert asking(tmp_path, "recall", id="tool_001").text.endswith("1 failed")


def test_a_log_that_has_not_grown_is_not_read_again(agent: Agent):
    asking(agent.root, "facts")
    size = agent.path.stat().st_size
    agent.path.write_bytes(b"x" * size)  # would be no log
    assert asking(agent.root, "facts").note == ""


def test_without_hooks_the_session_used_last_is_given_with_a_word_about_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Session.open("by-hand", window=200_000) as session:
        session.append([{"role": "user", "content": "Never push to main."}])
    answer = asking(tmp_path, "facts")
    assert answer.session == "by-hand"
    assert "used last" in answer.note


def test_looking_makes_neither_a_store_nor_a_session(agent: Agent):
    with pytest.raises(UnknownSession):
        asking(agent.root, "facts", session="nobody")
    with pytest.raises(BadSetting):
        asking(agent.root, "facts", session="two\nlines")
    state = open_hook_state(str(agent.root / ".compactor"))
    assert state is not None
    assert [row.key for row in state.rows()] == ["lamp"]
    state.close()


def test_a_call_that_says_which_session_it_comes_from_is_answered_from_that_one(agent: Agent, other: Agent):
    """All sessions of Codex in a terminal have one process above them."""
    agent.is_run_by("1:1")
    other.is_run_by("1:1")
    with Talk(agent) as talk:
        for mine in (agent, other):
            params = {"name": "context_status", "arguments": {}, "_meta": {"sessionId": mine.key, "threadId": "t"}}
            assert talk.request("tools/call", params)["result"]["structuredContent"]["session"] == mine.key
