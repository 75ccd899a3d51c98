"""Sessions in PostgreSQL: many processes at once, killed in the middle, with the server restarted under them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from context_compactor import compact
from context_compactor.errors import StoreError
from context_compactor.sessions.session import Session
from context_compactor.store.postgres import PostgresStore
from tests.postgres import Server, new_schema
from tests.sessions.talk import WINDOW, Raw, count, illegal, messages, opened, references
from tests.sessions.test_concurrency import check_whole, said_by, words
from tests.sessions.test_crash import CUT, OPERATIONS, WEIGHTS, Plan, kill_one
from tests.store.children import Child

EACH = 16
KILLS = 12


def test_a_session_is_opened_by_its_address_and_leaves_no_file(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with Session.open("run", window=WINDOW, store=postgres_url, count_tokens=count) as session:
        session.append(messages(0, 80))
        (report,) = session.compactions()
        ref = next(each.id for each in report.archived if not each.id.startswith("turn"))
        assert session.recall(ref)
        assert session.search("compute_3")
        assert session.facts()
        session.undo()
        session.redo()
        session.restore(ref)
        assert session.diff()
        assert session.checkpoint()
        assert session.handoff(phase="write")
        assert illegal(session.context()) == []
    with Session.open("run", store=postgres_url, count_tokens=count) as session:
        assert session.history() == messages(0, 80)
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_messages_is_compacted_with_its_originals_in_postgresql(postgres_url: str):
    result = compact(messages(0, 80), window=WINDOW, level="soft", store=postgres_url)
    with closing(PostgresStore(postgres_url)) as store:
        assert {each.ref for each in store.originals(result.report.session_id)} >= {
            each.id for each in result.report.archived
        }


def test_an_open_session_lives_through_a_fork_on_both_sides(postgres_url: str):
    with opened(postgres_url) as session:
        session.append(words(0, 0))

        def work(child: Child) -> None:
            for number in range(EACH):
                session.append(words(1, number))
            session.close()

        with Child(work) as child:
            for number in range(1, EACH):
                session.append(words(0, number))
            assert child.wait() == 0
        check_whole(session, 2, each=EACH)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_whenever_a_process_is_killed_everything_it_had_done_is_there_and_nothing_by_half(postgres_url: str, seed: int):
    dice, first = Random(seed), 0
    for _ in range(KILLS):
        plan = Plan(first, dice.choices(list(OPERATIONS), WEIGHTS, k=dice.randint(2, 6)))
        done = kill_one(plan, postgres_url, dice, patience=3.0)
        with opened(postgres_url, **CUT, automatic=False) as session:
            history = session.history()
            assert plan.messages_after(done) <= len(history) <= plan.messages_after(done + 1)
            assert history == messages(0, len(history))
            check_context(session, session.context())
        first = len(history)
    with closing(PostgresStore(postgres_url)) as store:
        assert list(store.verify()) == []


def check_context(session: Session, context: list[Raw]) -> None:
    assert illegal(context) == []
    for ref in references(context):
        assert session.recall(ref)


def test_processes_go_on_while_the_server_is_restarted_under_them(own_postgres: Server):
    url = own_postgres.url(schema=new_schema())

    def work(child: Child) -> None:
        with opened(url) as session:
            for number in range(EACH * 2):
                write_until_done(session, number)
                child.say()

    with opened(url) as session:
        session.append(words("first", 0))
    with Child(work) as child:
        for mode in ("fast", "immediate"):
            heard = 0
            while heard < EACH // 2:
                heard += len(child.hear())
            own_postgres.restart(mode)
        assert child.wait() == 0
    with opened(url) as session:
        check_context(session, session.context())
        assert said_by("writer", session.history()) == list(range(EACH * 2))
    with closing(PostgresStore(url)) as store:
        assert list(store.verify()) == []


def write_until_done(session: Session, number: int) -> None:
    """Append, and try again when the server went away; what raises has written nothing."""
    while True:
        try:
            session.append(words("writer", number))
            return
        except StoreError as error:
            assert "nothing was written" in str(error)
