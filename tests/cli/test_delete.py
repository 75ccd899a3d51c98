"""`compactor delete`: asked on a terminal, sure with `--yes`, and nothing else is touched."""

from __future__ import annotations

import os
import pty
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from context_compactor.agents.log_import import LOGS_NOTE
from context_compactor.sessions.session import Session
from context_compactor.store.connect import connect
from context_compactor.store.sqlite import SqliteStore
from tests.cli.conftest import Stored, conversation
from tests.hooks.conftest import place, talk
from tests.hooks.place import Place, Talk, worked
from tests.hooks.test_children import AGENT, at_work, child_of
from tests.install.conftest import start

__all__ = ["place", "talk"]

STORE = "sqlite:///.compactor/compactor.db"


def add(name: str, store: str = STORE) -> None:
    with Session.open(name, window=20_000, store=store) as session:
        session.append(conversation(4))


def names(store: str = STORE) -> list[str]:
    with closing(connect(store)) as kept:
        return [row.id for row in kept.sessions()]


def test_with_yes_a_session_is_deleted_and_the_others_and_the_store_are_whole(run, stored: Stored):
    add("other")
    before = run("history", "other").out
    ran = run("delete", "run-42", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"Deleted run-42: {len(stored.messages)} messages\n"
    assert run("sessions", "--json").json["sessions"][0]["id"] == "other"
    assert run("history", "other").out == before
    verified = run("verify")
    assert (verified.code, "Everything is as it was stored" in verified.out) == (0, True)


def test_without_a_terminal_and_without_yes_nothing_is_deleted(run, stored: Stored):
    ran = run("delete", "run-42")
    assert (ran.code, ran.out) == (2, "")
    assert "run-42: " in ran.err
    assert "nothing was changed, since there is no terminal to ask for confirmation. Try: --yes." in ran.err
    assert names() == ["run-42"]


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 1), (b"\n", 1, 1), (b"y\n", 0, 0)])
def test_on_a_terminal_the_user_is_asked_with_the_name_of_the_session(stored: Stored, answer, code, left):
    ours, theirs = pty.openpty()
    running = start("delete", "run-42", stdin=theirs)
    os.write(ours, answer)
    _, err = running.communicate()
    os.close(ours)
    os.close(theirs)
    assert running.returncode == code
    assert b"Delete the session 'run-42' from " in err
    assert len(names()) == left


def test_several_sessions_are_deleted_at_once_or_none_when_one_is_unknown(run, stored: Stored):
    add("second")
    add("third")
    ran = run("delete", "run-42", "nobody", "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert "no session 'nobody'" in ran.err
    assert names() == ["run-42", "second", "third"]
    said = run("delete", "run-42", "third", "run-42", "--yes", "--json").json
    assert [each["id"] for each in said["deleted"]] == ["run-42", "third"]
    assert names() == ["second"]


def test_deleting_twice_says_that_there_is_no_such_session(run, stored: Stored):
    assert run("delete", "run-42", "--yes").code == 0
    again = run("delete", "run-42", "--yes")
    assert (again.code, again.out) == (2, "")
    assert "no session 'run-42' in " in again.err


def test_a_store_that_is_not_there_is_told_and_not_made(run, tmp_path: Path):
    ran = run("delete", "run-42", "--yes")
    assert ran.code == 2
    assert "there is no store at" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_what_an_interrupted_deletion_has_left_goes_with_the_next_command(run, stored: Stored):
    with closing(SqliteStore(str(stored.store))) as store:
        store.delete("run-42")  # and killed here
    assert run("delete", "run-42", "--yes").code == 2
    with closing(SqliteStore(str(stored.store))) as store:
        assert not store._database.rows("SELECT 1 FROM contents")


# Sub-agents


def test_sub_agents_that_a_session_called_go_with_it_and_hooks_forget_all_of_them(run, talk: Talk, place: Place):
    worked(talk)
    child = child_of(talk)
    at_work(child)
    said = {"agent_id": AGENT, "agent_type": "Explore", "last_assistant_message": "X"}
    talk.hook("SubagentStop", "subagent-stop", **said, agent_transcript_path=str(child.path))
    url = f"sqlite:///{place.project}/.compactor/compactor.db"
    add(f"{talk.id}/of-a-namespace", url)
    add("other", url)
    said = run("delete", talk.id, "--yes", "--json", "--store", url).json
    assert [each["id"] for each in said["deleted"]] == [talk.id, f"{talk.id}/{AGENT}"]
    assert names(url) == sorted(["other", f"{talk.id}/of-a-namespace"])
    assert place.rows() == {}
    talk.hook("Stop", "stop")  # the agent goes on, and so does its session, from its log
    assert talk.id in names(url)


def test_imported_sub_agents_go_with_the_session_they_were_imported_with(run, stored: Stored):
    add("run-42/a")
    with Session.open("run-42", store=STORE) as session:
        session._core.note(LOGS_NOTE, {})
    run("delete", "run-42", "--yes")
    assert names() == []


def test_the_folder_of_the_project_is_left_as_if_the_session_had_never_been(run, stored: Stored):
    run("checkpoint", "run-42")
    assert Path(".tmp/context-archive/run-42/manifest.json").exists()
    run("delete", "run-42", "--yes")
    assert not Path(".tmp/context-archive/run-42").exists()
    assert not Path(".compactor/progress-checkpoint.md").exists()
    assert Path(".compactor/logs/compaction.json").read_bytes() == b""
    shutil.rmtree(".compactor")
