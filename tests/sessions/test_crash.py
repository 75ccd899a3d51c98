"""A process is killed at any moment: what it had accepted is there, and nothing is half done.

One session lives through many kills. Each time a child does some operations and says after each that it is done; the
parent kills it somewhere in the next one, does the same on a copy, undisturbed, and compares.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from context_compactor.errors import BadSetting
from context_compactor.sessions.session import Session
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import Raw, illegal, messages, opened, references
from tests.store.children import Child

KILLS = 40
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3)))
# Seconds within which each operation is killed: about as long as it takes.
OPERATIONS = {"append": 0.003, "batch": 0.004, "compact": 0.03, "undo": 0.003, "redo": 0.003, "restore": 0.01}
WEIGHTS = (10, 3, 4, 3, 1, 1)
CUT = {"max_output_tokens": 400}


@dataclass
class Plan:
    """What is done to a session, beginning with so many messages."""

    first: int
    operations: list[str]
    sizes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = [{"append": 1, "batch": 5}.get(operation, 0) for operation in self.operations]

    def messages_after(self, done: int) -> int:
        """How many messages there are after so many operations."""
        return self.first + sum(self.sizes[:done])

    def said(self, at: int) -> list[Raw]:
        """The messages that the operation at a place appends."""
        first = self.messages_after(at)
        return messages(first, first + self.sizes[at])

    def do(self, session: Session, at: int) -> None:
        """The operation at a place."""
        operation = self.operations[at]
        if self.sizes[at]:
            session.append(self.said(at))
        elif operation == "restore":
            _restore(session)
        else:
            {"compact": session.compact, "undo": session.undo, "redo": session.redo}[operation]()


def _restore(session: Session) -> None:
    shown = [ref for ref in references(session.context()) if not ref.startswith("turn")]
    try:
        session.restore(shown[len(shown) // 2] if shown else "turn_001")
    except BadSetting:
        return  # there is nothing to restore yet, or no room


def contexts_of(plan: Plan, folder: Path, done: int) -> list[list[Raw]]:
    """The contexts before and after the operation behind so many others.

    An append that compacts is two steps: the messages are there before the compaction is.
    """
    with opened(folder, **CUT, archive_dir=None) as session:
        for at in range(done):
            plan.do(session, at)
        found = [_as_it_is(session)]
        if done == len(plan.operations):
            return found
        if plan.sizes[done]:
            watched = session.record(plan.said(done))
            found.append(_as_it_is(session))
            session.answer(watched)
        else:
            plan.do(session, done)
        return [*found, _as_it_is(session)]


def _as_it_is(session: Session) -> list[Raw]:
    """The context without the check that comes before a first request."""
    return session.context(at=len(session.history()))


def kill_one(plan: Plan, store: Path | str, dice: Random, patience: float = 1.0) -> int:
    """Start a child, kill it in a random operation, and answer with how many it had said were done.

    With more `patience` operations are thought to take so much longer.
    """
    victim = dice.randrange(len(plan.operations))

    def work(child: Child) -> None:
        session = opened(store, **CUT)
        for at in range(len(plan.operations)):
            plan.do(session, at)
            child.say()
        child.hear()

    with Child(work) as child:
        done = 0
        while done < victim:
            done += len(child.hear())
        time.sleep(dice.uniform(0, patience * OPERATIONS[plan.operations[victim]]))
        child.kill()
        assert child.wait() == -9
        return done + child.rest()


def check(plan: Plan, folder: Path, done: int, allowed: list[list[Raw]]) -> int:
    """Open what is left and look at everything; how many messages there are."""
    with opened(folder, **CUT, automatic=False) as session:
        history = session.history()
        assert plan.messages_after(done) <= len(history) <= plan.messages_after(done + 1)
        assert history == messages(0, len(history))
        context = session.context()
        assert context in allowed
        assert illegal(context) == []
        for ref in references(context):
            assert session.recall(ref)
        for report in session.compactions()[-1:]:
            assert all(session.recall(archived.id) for archived in report.archived)
    with closing(SqliteStore(str(folder / "sessions.db"))) as store:
        assert list(store.verify()) == []
    for file in folder.rglob("*.json"):
        for line in file.read_text().splitlines() if file.parent.name == "logs" else [file.read_text()]:
            json.loads(line)
    return len(history)


def copied(source: Path, target: Path) -> Path:
    """The store of one folder in another, which holds nothing else."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    if (source / "sessions.db").exists():
        shutil.copy(source / "sessions.db", target)
    return target


@pytest.mark.parametrize("seed", SEEDS)
def test_whenever_a_process_is_killed_the_session_is_as_before_or_as_after(seed: int, tmp_path: Path):
    dice, live, first = Random(seed), tmp_path / "live", 0
    for _ in range(KILLS):
        plan = Plan(first, dice.choices(list(OPERATIONS), WEIGHTS, k=dice.randint(2, 6)))
        copy = copied(live, tmp_path / "copy")
        done = kill_one(plan, live, dice)
        first = check(plan, live, done, contexts_of(plan, copy, done))
    assert first > KILLS


# Killed at every border between two steps


def until_killed(plan: Plan, folder: Path, border: int) -> bool:
    """Do a plan in a child that kills itself at a border of its transactions; whether it came that far."""

    def work(child: Child) -> None:
        left = [border]

        def at_border(statement: str) -> None:
            if statement.startswith(("BEGIN", "COMMIT")):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        store = SqliteStore(str(folder / "sessions.db"))
        session = opened(store, **CUT)
        store._database._live().set_trace_callback(at_border)
        for at in range(len(plan.operations)):
            plan.do(session, at)

    with Child(work) as child:
        return child.wait() == -signal.SIGKILL


def until_full() -> list[str]:
    """As many appends as it takes until the next one is followed by a compaction."""
    plan = Plan(0, ["append"] * 500)
    with closing(SqliteStore()) as store, opened(store, **CUT) as session:
        for at in range(len(plan.operations)):
            plan.do(session, at)
            if session.compactions():
                return ["append"] * at
    raise AssertionError("it never compacts")


BEFORE = {
    "append": until_full,
    "batch": lambda: ["batch"] * 4,
    "compact": lambda: ["batch"] * 4,
    "undo": lambda: ["batch"] * 4 + ["compact"],
    "redo": lambda: ["batch"] * 4 + ["compact", "undo"],
    "restore": lambda: ["batch"] * 4 + ["compact"],
}


@pytest.mark.parametrize("operation", list(BEFORE))
def test_between_any_two_steps_of_an_operation_the_session_is_as_before_or_as_after(operation: str, tmp_path: Path):
    before = BEFORE[operation]()
    ready = tmp_path / "ready"
    made = Plan(0, before)
    with opened(ready, **CUT) as session:
        for at in range(len(before)):
            made.do(session, at)
    plan = Plan(made.messages_after(len(before)), [operation])
    allowed = contexts_of(plan, copied(ready, tmp_path / "copy"), 0)
    borders = 0
    while until_killed(plan, live := copied(ready, tmp_path / "live"), borders):
        check(plan, live, 0, allowed)
        borders += 1
    check(plan, live, 1, allowed[-1:])
    assert borders >= (6 if operation in ("append", "compact") else 2)
