"""`compactor set-tier` and `compactor plan SESSION`: the user's own tiers on the command line."""

from __future__ import annotations

import pytest


@pytest.fixture
def with_turns(run, stored):
    """The session as it was before it was compacted: all of its turns stand in the context."""
    assert run("undo").code == 0
    return stored


def test_what_is_decided_about_turns_is_shown_kept_and_taken_back(run, with_turns):
    assert run("set-tier", "run-42", "--keep", "5,7", "--drop", "9-10", "--json").json == {
        "session_id": "run-42",
        "tiers": {"5": "keep", "7": "keep", "9": "drop", "10": "drop"},
    }
    assert run("set-tier").out.split() == "turn 5 keep turn 7 keep turn 9 drop turn 10 drop".split()
    assert run("set-tier", "run-42", "--free", "5,9-10", "--json").json["tiers"] == {"7": "keep"}
    assert run("set-tier", "run-42", "--free", "all", "--summarize", "3", "--json").json["tiers"] == {"3": "summarize"}
    assert "No tier is set" in run("set-tier", "run-42", "--free", "all").out


def test_a_plan_of_a_session_shows_what_tiers_would_do_and_leaves_it_as_it_is(run, with_turns):
    plan = run("plan", "run-42", "--target", "25%", "--keep", "5", "--drop", "9", "--json").json
    found = {each["turn"]: (each["tier"], each["reason"]) for each in plan["decisions"]}
    assert found[5] == ("keep", "kept by you")
    assert found[9] == ("drop", "lowered by you")
    assert run("set-tier", "--json").json["tiers"] == {}
    assert "kept by you" in run("plan", "run-42", "--target", "25%", "--keep", "5").out


def test_a_plan_of_a_session_follows_what_was_decided(run, with_turns):
    run("set-tier", "run-42", "--keep", "5")
    plan = run("plan", "run-42", "--target", "25%", "--json").json
    assert "kept by you" in {each["reason"] for each in plan["decisions"]}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["set-tier", "run-42", "--keep", "five"], "--keep: 'five' is not a turn"),
        (["set-tier", "run-42", "--drop", "9-3"], "--drop: '9-3' is not a turn"),
        (["set-tier", "run-42", "--keep", "5", "--drop", "4-6"], "turn 5 is already given to --keep"),
        (["set-tier", "run-42", "--drop", "0"], "instructions"),
        (["set-tier", "run-42", "--keep", "5", "--drop", "999"], "there is no such turn"),
        (["set-tier", "nobody", "--keep", "5"], "no session 'nobody'"),
        (["plan", "run-42", "--drop", "35"], "not answered yet"),
        (["plan", "run-42", "--window", "9000"], "already has these"),
        (["plan", "agent.json", "--keep", "5"], "this is a file"),
        (["plan", "nobody"], "there is no file 'nobody'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_set_is_refused_and_nothing_is_decided(run, with_turns, arguments, why):
    ran = run(*arguments)
    assert ran.code == 2
    assert why in ran.err
    assert run("set-tier", "run-42", "--json").json["tiers"] == {}


def test_the_old_name_of_the_command_works_and_names_the_new_one(run, with_turns):
    ran = run("steer", "run-42", "--keep", "5", "--json")
    assert ran.json["tiers"] == {"5": "keep"}
    assert "deprecated. Try: `compactor set-tier`" in ran.err
