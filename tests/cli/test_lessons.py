"""`compactor lessons`: listing, claiming and removing what was learned."""

from __future__ import annotations

import json

import pytest

from context_compactor.facts.lesson_folders import list_lessons
from context_compactor.sessions.project import local_owner
from context_compactor.sessions.session import Session
from tests.cli.conftest import conversation

CHOICE = "We decided to keep sessions in PostgreSQL instead of SQLite because several machines write to it."
OLD = (
    "# Decisions\n\n- We chose Rust over Go for the parser.\n  by the agent · 2026-01-26 · 1 session · run-1 turn_017\n"
)


def compacted(run, tmp_path, session="run-42", choice=CHOICE):
    """A session that the command line made from a transcript, and compacted."""
    said = conversation()
    said.insert(2, {"role": "user", "content": choice})
    (tmp_path / "talk.json").write_text(json.dumps(said))
    assert run("compact", "talk.json", "--session", session, "--target", "25%", "-o", "out.json").code == 0


@pytest.fixture
def user(tmp_path):
    return local_owner(f"sqlite:///{tmp_path}/.compactor/compactor.db", tmp_path)


def lessons(run, *options, kind="decisions"):
    """What was learned, of a kind."""
    return [each for each in run("lessons", *options, "--json").json["lessons"] if each["kind"] == kind]


def test_what_the_command_line_learned_belongs_to_its_user_and_is_listed_with_its_session(run, tmp_path, user):
    compacted(run, tmp_path)
    (found,) = lessons(run)
    assert [each["text"] for each in lessons(run, kind="rules")] == ["Never touch legacy/."]
    assert (found["owner"], found["kind"], found["text"], found["is_read"]) == (user, "decisions", CHOICE, True)
    assert found["sources"][0].startswith("run-42 turn_")
    shown = run("lessons").out
    for part in (user, found["id"], "run-42 turn_"):
        assert part in shown
    assert lessons(run, "--owner", user) == [found]
    assert run("lessons", "--owner", "ann", "--json").json["lessons"] == []


def test_a_program_in_the_same_folder_does_not_learn_from_the_command_line(run, tmp_path):
    compacted(run, tmp_path)
    for options in ({}, {"owner": "ann"}):
        with Session.open(f"chat {options}", window=9_000, **options) as session:
            session.append({"role": "user", "content": "Hello."})
            assert session.context() == [{"role": "user", "content": "Hello."}]


def test_a_session_that_a_program_made_is_not_taken_over_by_the_command_line(run, tmp_path):
    with Session.open("chat", window=9_000) as session:
        session.append(conversation()[:2])
    said = [*conversation()[:2], {"role": "user", "content": CHOICE}, *conversation()[2:]]
    (tmp_path / "talk.json").write_text(json.dumps(said))
    assert run("compact", "talk.json", "--session", "chat", "--target", "25%", "-o", "out.json").code == 0
    assert run("compact", "chat", "--level", "emergency", "-o", "out.json").code == 0
    assert run("lessons", "--json").json["lessons"] == []


def test_a_lesson_is_removed_by_its_id(run, tmp_path):
    compacted(run, tmp_path)
    for found in run("lessons", "--json").json["lessons"]:
        ran = run("lessons", "remove", found["id"])
        assert (ran.code, ran.out.splitlines()[-1]) == (0, "1 lesson removed")
    assert run("lessons", "--json").json["lessons"] == []
    assert run("lessons").out.startswith("Nothing was learned in ")


def test_all_lessons_of_an_owner_are_removed(run, tmp_path, user):
    compacted(run, tmp_path)
    assert len(run("lessons", "remove", "--owner", user, "--json").json["removed"]) == 2
    assert run("lessons", "--json").json["lessons"] == []


def test_what_was_learned_before_there_were_owners_is_shown_and_can_be_claimed_or_removed(run, tmp_path, user):
    folder = tmp_path / ".compactor/learned"
    folder.mkdir(parents=True)
    (folder / "decisions.md").write_text(OLD)
    ran = run("lessons")
    assert "no owner, so no session reads these" in ran.out
    assert "run-1 turn_017" in ran.out
    assert run("lessons", "--unowned", "--json").json["lessons"][0]["owner"] is None
    claimed = run("lessons", "claim", "--json").json
    assert (claimed["owner"], len(claimed["claimed"])) == (user, 1)
    assert [each.owner for each in list_lessons(folder)] == [user]
    (folder / "decisions.md").write_text(OLD)
    assert len(run("lessons", "remove", "--unowned", "--json").json["removed"]) == 1
    assert [each.owner for each in list_lessons(folder)] == [user]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["remove", "ffff"], "there is no lesson 'ffff'"),
        (["remove", "../../etc"], "there is no lesson '../../etc'"),
        (["remove"], "no lesson is named"),
        (["remove", "ffff", "--unowned"], "no lesson is named"),
        (["remove", "--owner", "../.."], "'../..' has no lessons"),
        (["remove", "--owner", "a", "--unowned"], "exclude each other"),
        (["claim", "ffff"], "there is no lesson 'ffff'"),
        (["claim", "--owner", " "], "is not a valid name"),
        (["list", "ffff"], "list takes no id"),
        (["forget"], "Try: list, remove or claim"),
        (["--store", "memory:"], "need a store in a file on this machine"),
        (["claim", "--store", "sqlite:///elsewhere/x.db"], "belongs to another folder"),
    ],
)
def test_what_cannot_be_done_with_lessons_is_refused_with_a_reason(run, tmp_path, arguments, told):
    ran = run("lessons", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert list(tmp_path.iterdir()) == []
