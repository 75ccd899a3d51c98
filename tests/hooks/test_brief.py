"""The brief beside an agent's own summary: what that lost, the changed files first, within 4,000 bytes."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from context_compactor.agents.hooks.brief import MOST_BYTES, notes_text, untold_facts
from context_compactor.dialects.detection import find_dialect
from context_compactor.engine.classify import parse_context
from context_compactor.facts.fact import Fact
from context_compactor.facts.outcomes import is_check
from context_compactor.handoff.writer import HandoffMaterial, material_of
from tests.agents.test_steering import WORDS, facts
from tests.engine.sessions import Session, sessions
from tests.hooks.place import Talk, worked

NOTHING = HandoffMaterial()
CHECKS = ("pytest tests/test_jwt.py", "npm test -- refresh", "go test ./... 2>&1", "make lint", "cargo build")


def told_of(session: Session) -> HandoffMaterial:
    dialect = find_dialect(session.dialect, session.messages)
    return material_of(parse_context(dialect.parse(session.messages), dialect))


def failure(command: str, status: str, outcome: str = "", detail: str = "Error: it broke") -> Fact:
    return Fact("failure", command, 3, "tool", detail, status, 1, 3, "tool_003", outcome=outcome)


def changed(path: str, status: str = "uncommitted", turn: int = 5) -> Fact:
    return Fact("file_state", path, turn, "assistant", "~ verify", status, 1, turn, f"file_{turn:03d}")


def after_compaction(talk: Talk, summary: str) -> str:
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    talk.compact(summary)
    answer = talk.hook("SessionStart", "session-start", source="compact")
    text: str = answer["hookSpecificOutput"]["additionalContext"]
    return text


@given(st.lists(facts(WORDS), max_size=60), WORDS, st.lists(WORDS, max_size=8), st.integers(1_000, MOST_BYTES))
def test_the_notes_never_take_more_than_their_bytes_whatever_is_known(known, summary, running, most):
    text = notes_text(known, NOTHING, summary, most, running)
    assert len(text.encode("utf-8", "replace")) <= most


@given(sessions("anthropic"), WORDS, st.integers(1_000, MOST_BYTES))
def test_nor_whatever_has_happened(session, summary, most):
    assert len(notes_text((), told_of(session), summary, most).encode("utf-8", "replace")) <= most


@given(
    st.sampled_from(CHECKS), st.sampled_from(["", "open", "given up", "denied"]), st.sampled_from(["", 'user: "no"'])
)
def test_a_test_command_is_never_called_something_not_to_repeat(command, status, outcome):
    assume(is_check(command))
    text = notes_text([failure(command, status, outcome)], NOTHING, "", 3_000)
    assert f"`{command}`" in text
    assert "do not repeat" not in text
    assert "run it again" in text


def test_only_what_somebody_decided_against_is_not_to_be_repeated():
    decided = failure("git reset --hard", "denied")
    left = failure("git fetch origin", "given up", "not tried again", "error: Unable to create index.lock")
    still = failure("curl localhost:4000", "open", "", "Connection refused")
    text = notes_text([decided, left, still], NOTHING, "", 3_000)
    assert "- given up, do not repeat: `git reset --hard` → denied by the user (tool_003)" in text
    assert "- given up: `git fetch origin` → error: Unable to create index.lock → not tried again (tool_003)" in text
    assert "- open: `curl localhost:4000` → Connection refused (tool_003)" in text


def test_changed_files_come_first_by_what_became_of_them_and_below_one_folder():
    known = [
        Fact("constraint", "Never touch legacy/.", 1, "user", status="active", ref="turn_001"),
        changed("/srv/team/app/src/auth/jwt.py", turn=4),
        changed("/srv/team/app/src/auth/login.py", turn=6),
        changed("/srv/team/app/docs/auth.md", "committed", 7),
        changed("/srv/team/app/docs/old.md", "committed", 2),
    ]
    lines = notes_text(known, NOTHING, "We changed login.py, and committed old.md.", 3_000).split("\n")
    assert lines[1] == ("Changed, not committed (below /srv/team/app/): in src/auth: login.py, jwt.py (~ verify)")
    assert lines[2] == "Committed (below /srv/team/app/): docs/auth.md (~ verify)"
    assert lines[3] == "## Rules and corrections by the user"


def test_what_the_summary_says_is_not_said_again():
    summary = "Never touch config/secrets.yaml.\n`pytest tests/test_jwt.py` failed with KeyError: 'exp'."
    known = [
        Fact("constraint", "Never touch config/secrets.yaml.", 1, "user", status="active", ref="turn_001"),
        failure("pytest tests/test_jwt.py", "open", "", "KeyError: 'exp'"),
        Fact("decision", "Tokens without `exp` are rejected.", 4, "assistant", ref="turn_004"),
    ]
    assert [fact.kind for fact in untold_facts(summary, known)] == ["decision"]
    assert [fact.kind for fact in untold_facts("", known)] == ["constraint", "failure", "decision"]


def test_sub_agents_that_run_are_named_once():
    running = Fact("subagent", "Explore: callers", 4, "assistant", status="running", ref="agent_001")
    text = notes_text([running], NOTHING, "", 3_000, ["Explore: callers"])
    assert text.count("Explore: callers") == 1


@given(sessions("anthropic"))
def test_a_summary_in_our_format_gets_only_the_facts_that_it_lost(session):
    steered = "## Task\n> Fix it.\n\n## Where things stand\n- next: run it\n\n## Findings and decisions\n- none"
    rule = Fact("constraint", "Never touch legacy/.", 1, "user", status="active", ref="turn_001")
    text = notes_text([rule], told_of(session), steered, MOST_BYTES)
    assert "Never touch legacy/." in text
    assert "## What happened" not in text


def test_after_a_compaction_the_brief_tells_what_the_summary_lost_and_how_to_recall(talk: Talk):
    worked(talk)
    brief = after_compaction(talk, "The user wants a login in src/auth/jwt.py.")
    assert len(brief.encode()) <= MOST_BYTES
    assert "beside your summary" in brief
    assert '- "Never touch the file config/secrets.yaml."' in brief
    assert "- open, run it again: `pytest tests/test_jwt.py` → E KeyError: 'exp'" in brief
    assert "recall(" in brief
    assert talk.id in brief


def test_a_summary_that_tells_everything_leaves_little_to_say(talk: Talk):
    worked(talk)
    brief = after_compaction(
        talk,
        "Fix the login in src/auth/jwt.py. Never touch the file config/secrets.yaml.\n"
        "`pytest tests/test_jwt.py` failed with E KeyError: 'exp' 1 failed in 0.10s\n"
        "The token has no `exp`. I decided to reject such tokens instead of giving them a default.",
    )
    assert not re.search(r"^## (?:Rules|Failed|Findings|Task)", brief, re.MULTILINE)


def test_the_summary_of_an_earlier_compaction_is_not_taken_for_the_new_one(talk: Talk):
    worked(talk)
    talk.compact("Never touch the file config/secrets.yaml. KeyError: 'exp' in pytest tests/test_jwt.py.")
    talk.user("Now the logout.")
    talk.run("pytest tests/test_logout.py", "E   NameError: name 'logout'\n1 failed in 0.10s", is_error=True)
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    answer = talk.hook("SessionStart", "session-start", source="compact")  # before the log has the second one
    brief = answer["hookSpecificOutput"]["additionalContext"]
    assert "on the session up to here" in brief
    assert "pytest tests/test_logout.py" in brief
    assert "pytest tests/test_jwt.py" in brief
