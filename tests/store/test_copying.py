"""Copying a store: everything arrives, every hash is checked, and nothing is ever there by half."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import pytest

from context_compactor.archive.storage import terms_of
from context_compactor.errors import BadInput, DamagedContent
from context_compactor.store.copy import NotCopied, copy_sessions, copy_webhooks, count_messages, left_behind
from context_compactor.store.events import make_event
from context_compactor.store.postgres import PostgresStore
from context_compactor.store.rows import FactRow, NewOriginal, PassageRun, Webhook
from context_compactor.store.service_store import SqlServiceStore
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite import SqliteStore
from tests.postgres import Given, Server, new_schema
from tests.store.children import Child
from tests.store.conftest import SqlHand
from tests.store.rows import AT, LATER, LATEST, bodies, put_list

DIRECTIONS = list(itertools.product(("sqlite", "postgres"), repeat=2))


@pytest.fixture
def make(postgres: Server | Given) -> Iterator[Callable[[str], SqlStore]]:
    """Makes an empty store of a kind."""
    made: list[SqlStore] = []

    def make_one(kind: str) -> SqlStore:
        made.append(SqliteStore() if kind == "sqlite" else PostgresStore(postgres.url(schema=new_schema())))
        return made[-1]

    yield make_one
    for store in made:
        store.close()


def fill(store: SqlStore, session_id: str) -> None:
    """A session with something of everything: several times, lists, what is only spoken of, an original twice."""
    store.open_session(session_id, b'{"window":1000}', AT)
    store.append(session_id, "message", bodies("shared", f"one of {session_id}", "\0 strange \x01"), AT)
    store.append(session_id, "message", [b"x" * 5_000], LATER)
    hidden = put_list(store, [b'"only spoken of"', f'"in {session_id}"'.encode()])
    store.append(session_id, "compaction", [json.dumps({"items": hidden}).encode()], LATER)
    store.append(session_id, "message", bodies("last"), LATEST)
    for at, now in enumerate((AT, LATER, LATER)):
        body = json.dumps([["code", 1, f"needle number{at}"], ["code", 2, "hay"]]).encode()
        run = PassageRun(2, 30, terms_of(body), body)
        (content,) = store.put([f'"value {at % 2}"'.encode()])
        store.archive(session_id, [NewOriginal(f"tool_{at:03}", "code", "s\0", 3, "r", "h", "t", content, (run,))], now)
    store.put_facts(session_id, [FactRow("error", 1, b"early", "pattern")], AT)
    store.put_facts(session_id, [FactRow("decision", 2, b"late")], LATER)
    store.save_state(session_id, json.dumps({"keeps": store.put([b'"of the state"'])[0]}).encode())
    store.hold(session_id, "somebody", AT)


def seen(store: SqlStore, session_id: str) -> list[object]:
    """All that one can see of a session."""
    return [
        store.session(session_id),
        store.entries(session_id),
        [(each.ref, each.kind, each.summary, each.same_as, each.created_at) for each in store.originals(session_id)],
        store.get([each.content for each in store.originals(session_id)]),
        store.facts(session_id),
        store.search(session_id, {"number2": 1.0}, most=40),
        store.search(session_id, {}, most=10_000),
    ]


def copy(source: SqlStore, target: SqlStore) -> list[tuple[str, bool]]:
    return [(each.session_id, each.was_there) for each in copy_sessions(source, target, terms_of)]


@pytest.mark.parametrize(("kind", "other"), DIRECTIONS)
def test_everything_arrives_as_it_was(make: Callable[[str], SqlStore], kind: str, other: str):
    source, target = make(kind), make(other)
    for session_id in ("a", "b", "日本/x"):
        fill(source, session_id)
    source.open_session("empty", b"{}", AT)
    assert copy(source, target) == [("a", False), ("b", False), ("empty", False), ("日本/x", False)]
    for row in source.sessions():
        assert seen(target, row.id) == seen(source, row.id)
    assert list(target.verify()) == []
    spoken_of = put_list(source, [b'"only spoken of"', b'"in a"'])
    assert target.get([spoken_of]) == source.get([spoken_of])
    assert (target.holders("a"), source.holders("a")) == ({}, {"somebody": AT})
    assert target.append("a", "message", bodies("goes on"), LATEST) == 7


def test_a_content_is_kept_once_in_the_copy_and_lists_stay_lists(make: Callable[[str], SqlStore]):
    source, target = make("sqlite"), make("postgres")
    fill(source, "a")
    fill(source, "b")
    copy(source, target)
    count = "SELECT codec, count(*), count(DISTINCT hash) FROM contents GROUP BY codec ORDER BY codec"
    assert target._database.rows(count) == source._database.rows(count)


@pytest.mark.parametrize(("kind", "other"), DIRECTIONS[1:3])
def test_a_second_copy_passes_over_what_is_there_and_adds_what_is_new(
    make: Callable[[str], SqlStore], kind: str, other: str
):
    source, target = make(kind), make(other)
    fill(source, "a")
    copy(source, target)
    fill(source, "b")
    target.open_session("only here", b"{}", AT)
    assert copy(source, target) == [("a", True), ("b", False)]
    assert copy(source, target) == [("a", True), ("b", True)]
    assert [row.id for row in target.sessions()] == ["a", "b", "only here"]


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.append("b", "message", bodies("more"), LATEST),
        lambda store: store.save_state("b", b"{}"),
        lambda store: store.put_facts("b", [FactRow("error", 9, b"new")], LATEST),
        lambda store: store.drop_facts("b", 1),
    ],
    ids=["message", "state", "fact", "no fact"],
)
@pytest.mark.parametrize("side", [0, 1])
def test_a_session_that_differs_stops_the_copy_before_anything_is_written(
    make: Callable[[str], SqlStore], change: Callable[[SqlStore], object], side: int
):
    source, target = make("sqlite"), make("postgres")
    fill(source, "b")
    copy(source, target)
    change((source, target)[side])
    fill(source, "a")
    before = seen(target, "b")
    with pytest.raises(BadInput, match=r"differ: 'b'; nothing was copied"):
        copy(source, target)
    assert [row.id for row in target.sessions()] == ["b"]
    assert seen(target, "b") == before


@pytest.mark.parametrize("harm", ["change_content", "swap_entries", "cut_log", "forge_log"])
def test_what_was_changed_behind_the_stores_back_is_not_copied(make: Callable[[str], SqlStore], harm: str):
    source, target = make("sqlite"), make("postgres")
    fill(source, "a")
    fill(source, "b")
    arguments = {
        "change_content": (source.put([b'"in b"'])[0],),
        "swap_entries": ("b", 1, 2),
        "cut_log": ("b", 3),
        "forge_log": ("b", 3),
    }[harm]
    getattr(SqlHand(source), harm)(*arguments)
    with pytest.raises(DamagedContent):
        copy(source, target)
    assert [row.id for row in target.sessions()] == ["a"]
    assert list(target.verify()) == []


# What a service keeps beside sessions


@pytest.mark.parametrize(("kind", "other"), DIRECTIONS)
def test_work_that_waits_or_runs_waits_in_the_copy(make: Callable[[str], SqlStore], kind: str, other: str):
    source, target = make(kind), make(other)
    fill(source, "a")
    ours, theirs = SqlServiceStore(source._database).jobs, SqlServiceStore(target._database).jobs
    ours.queue_level("a", "soft", AT)
    assert ours.claim("w1", AT, LATEST) is not None
    ours.queue("a", "extract", now=AT, due_at=LATER)
    copy(source, target)
    known = [(job.kind, job.level, job.state, job.attempts, job.due_at, job.created_at) for job in theirs.open("a")]
    assert known == [("compact", "soft", "waiting", 0, AT, AT), ("extract", "", "waiting", 0, LATER, AT)]
    assert [job.state for job in ours.open("a")] == ["running", "waiting"]
    copy(source, target)
    assert len(theirs.newest()) == 2


@pytest.mark.parametrize(("kind", "other"), DIRECTIONS[1:3])
def test_a_request_that_was_answered_is_answered_alike_after_the_copy(
    make: Callable[[str], SqlStore], kind: str, other: str
):
    source, target = make(kind), make(other)
    fill(source, "a")
    ours, theirs = SqlServiceStore(source._database).answers, SqlServiceStore(target._database).answers
    for key in ("done", "only written"):
        ours.take("a", key, "hash", LATER)
    ours.keep("a", "done", '{"appended":1}')
    copy(source, target)
    for key in ("done", "only written"):
        assert theirs.find("a", key, "hash") == ours.find("a", key, "hash") is not None


def test_webhooks_are_copied_once_with_their_secrets(make: Callable[[str], SqlStore]):
    source, target = make("sqlite"), make("postgres")
    ours, theirs = SqlServiceStore(source._database).webhooks, SqlServiceStore(target._database).webhooks
    ours.add(Webhook("h1", "team", "https://example.com/hook", "secret", ("job.dropped",), AT, 2, LATER, "410"))
    assert copy_webhooks(source, target) == 1
    assert theirs.all() == ours.all()
    assert copy_webhooks(source, target) == 0


def test_what_stays_behind_is_counted(make: Callable[[str], SqlStore]):
    for kind in ("sqlite", "postgres"):
        source = make(kind)
        assert left_behind(source) == NotCopied(0, 0, 0)
        service_store = SqlServiceStore(source._database)
        service_store.webhooks.add(Webhook("h1", "", "https://example.com/hook", "secret", (), AT))
        service_store.record_event(make_event("job.queued", "a", {}, datetime(2026, 3, 1, tzinfo=UTC)))
        for level in ("soft", "aggressive"):
            service_store.jobs.queue_level("a", level, AT)
        assert left_behind(source) == NotCopied(events=1, deliveries=1, jobs=1)  # what waits is copied


def test_messages_are_counted_without_reading_them(make: Callable[[str], SqlStore]):
    for kind in ("sqlite", "postgres"):
        source = make(kind)
        assert count_messages(source) == 0
        fill(source, "a")
        fill(source, "b")
        assert count_messages(source) == sum(row.messages for row in source.sessions()) == 10


@contextmanager
def stopped_amid_the_second(source: SqlStore, target: SqlStore) -> Iterator[Child]:
    """A child that copies and stops when half of the second session is written."""

    def work(child: Child) -> None:
        calls = itertools.count()

        def slow(body: bytes) -> str:
            if next(calls) == 3:
                child.say()
                child.hear()
            return terms_of(body)

        list(copy_sessions(source, target, slow))

    with Child(work) as child:
        child.hear()
        yield child


@pytest.mark.parametrize(("kind", "other"), [("sqlite", "postgres"), ("postgres", "sqlite")])
def test_a_copy_that_is_killed_leaves_whole_sessions_and_can_be_begun_again(
    tmp_path, postgres: Server | Given, kind: str, other: str
):
    urls = {"sqlite": str(tmp_path / "sessions.db"), "postgres": postgres.url(schema=new_schema())}
    kinds = {"sqlite": SqliteStore, "postgres": PostgresStore}
    with closing(kinds[kind](urls[kind])) as source, closing(kinds[other](urls[other])) as target:
        for session_id in ("a", "b", "c"):
            fill(source, session_id)
        with stopped_amid_the_second(source, target) as child:
            child.kill()
            child.wait()
        assert [row.id for row in target.sessions()] == ["a"]
        assert seen(target, "a") == seen(source, "a")
        assert list(target.verify()) == []
        count = "SELECT count(*) FROM contents"
        assert target._database.row(count) < source._database.row(count)
        assert copy(source, target) == [("a", True), ("b", False), ("c", False)]
        assert list(target.verify()) == []
        assert target._database.row(count) == source._database.row(count)
