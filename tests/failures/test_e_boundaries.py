"""E, row 79: a soft compaction comes at a task boundary and not in the midst of a step, as long as there is room."""

from __future__ import annotations

import pytest

from context_compactor import Session, Settings
from tests.engine.talks import DIALECT_NAMES, Call, Talk, bash, talk_in
from tests.failures.scenarios import listing

WINDOW = 16_000
TODO = [{"content": "Look into all folders", "status": "completed"}]
ENDS = {
    "tests passed": lambda talk: talk.step(bash("pytest -q", "12 passed in 0.3s")),
    "a commit was made": lambda talk: talk.step(bash("git commit -am 'Look'", "[main 1a2b3c4] Look\n 1 file changed")),
    "a point of the to-do list is done": lambda talk: talk.step(Call("TodoWrite", {"todos": TODO}, "ok")),
    "the user's new request": lambda talk: talk.answer("That was all.").user("And what about the docs?"),
}


def count(text: str) -> int:
    return len(text) // 4 + 1


def opened(store: str = "memory:", **more: object) -> Session:
    settings = Settings(idle_seconds=0, promote_to_memory=False, **more)
    return Session.open("run", window=WINDOW, store=store, settings=settings, count_tokens=count)


def take_step(session: Session, talk: Talk, number: int):
    """One more small step of the agent; the report, if that compacted."""
    known = len(talk.messages)
    talk.step(bash(f"ls folder_{number}", listing(4)), text=f"Looking around, part {number}. " + "So it goes on. " * 12)
    return session.append(talk.messages[known:])


def fill_to(session: Session, talk: Talk, share: float) -> list[object]:
    """Steps until the context is so full; what they compacted."""
    known = len(talk.messages)
    if not known:
        session.append(talk.system("Be brief.").user("Look into all folders.").messages)
    reports = []
    while session.usage().share < share and not any(reports):
        reports.append(take_step(session, talk, len(reports)))
    return [report for report in reports if report]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_soft_compaction_waits_for_the_end_of_a_step(dialect, end):
    """Row 79."""
    talk, heard = talk_in(dialect), []
    with opened() as session:
        session.bus.subscribe(heard.append, types=("threshold.crossed", "session.compacted"))
        assert fill_to(session, talk, 0.805) == []
        assert [event.type for event in heard] == ["threshold.crossed"]  # told at once
        assert take_step(session, talk, 900) is None
        known = len(talk.messages)
        ENDS[end](talk)
        reports = [session.append(message) for message in talk.messages[known:]]
        report = next(report for report in reports if report)
        assert report.level == "soft"
        assert report.reason.startswith(f"at a boundary: {end}")
        assert report.changed
        assert [event.type for event in heard] == ["threshold.crossed", "session.compacted"]


def test_it_waits_no_longer_than_up_to_the_aggressive_level():
    """Row 79: the hard limit."""
    with opened() as session:
        (report,) = fill_to(session, talk_in("anthropic"), 0.99)
        assert report.level == "soft"  # the last step that still fits below the aggressive level
        assert 0.83 * session.usage().budget_tokens < report.tokens_before < 0.85 * session.usage().budget_tokens
        assert "boundary" not in report.reason


def test_a_step_that_reaches_the_aggressive_level_is_compacted_at_once():
    """Row 79: no waiting where it would be too late."""
    talk = talk_in("anthropic")
    with opened() as session:
        fill_to(session, talk, 0.805)
        known = len(talk.messages)
        talk.step(bash("ls -R", listing(120)))
        report = session.append(talk.messages[known:])
        assert report.level in ("aggressive", "soft")
        assert session.usage().share < 0.8


def test_who_does_not_want_to_wait_does_not():
    """Row 79: the setting."""
    with opened(wait_for_boundary=False) as session:
        (report,) = fill_to(session, talk_in("anthropic"), 0.99)
        assert report.tokens_before < 0.82 * session.usage().budget_tokens


def test_the_wait_survives_a_restart_and_opening_again_is_a_boundary(tmp_path):
    """Row 79, and row 76: the first request after a resume is checked."""
    store, talk = f"sqlite:///{tmp_path}/.compactor/compactor.db", talk_in("anthropic")
    with opened(store) as session:
        assert fill_to(session, talk, 0.805) == []
    with opened(store) as session:
        assert take_step(session, talk, 900) is None  # the agent goes on amid its step
        assert not session.compactions()
    with opened(store) as session:
        session.context()
        (report,) = session.compactions()
        assert "opened again" in report.reason


def test_a_chat_is_compacted_when_the_user_speaks():
    """Row 79: where there is nothing but talk, nobody waits for long."""
    with opened() as session:
        spoken = 0
        while not session.compactions():
            report = session.append({"role": "user", "content": f"Question {spoken}: why? " + "I wonder. " * 40})
            if report is None:
                session.append({"role": "assistant", "content": f"Answer {spoken}: because. " + "It is so. " * 40})
            spoken += 1
        (report,) = session.compactions()
        assert "at a boundary: the user's new request" in report.reason
        assert report.tokens_before < 0.83 * session.usage().budget_tokens


def test_when_nothing_is_compacted_by_itself_nothing_waits():
    """Row 79: events tell of the level, and whoever asks is served at once."""
    talk, heard = talk_in("anthropic"), []
    with opened(automatic=False) as session:
        session.bus.subscribe(heard.append, types=("threshold.crossed",))
        fill_to(session, talk, 0.81)
        assert len(heard) == 1
        assert session.compact().changed
