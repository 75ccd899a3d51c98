"""Originals that are archived before they are in the index: what is missing is known until it is there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from context_compactor.archive.storage import terms_of
from context_compactor.errors import UnknownSession
from context_compactor.protocols import Store
from context_compactor.store.copy import copy_sessions
from context_compactor.store.postgres import PostgresStore
from context_compactor.store.rows import IndexPart, NewOriginal, PassageRun
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite import SqliteStore
from tests.store.rows import AT, LATER, LATEST, item, put_list


@pytest.fixture
def store(store: Store) -> Store:
    """So much is in it that not all of it is taken for an answer."""
    store.archive("a", [item(store, f"file_{at:03}", f'"{at}"', terms="filler") for at in range(30)], AT)
    return store


def unindexed(store: Store, ref: str, value: str, *first: str) -> NewOriginal:
    """An original of which the index gets these runs at once, and others later."""
    return structs.replace(item(store, ref, value), runs=[run(term) for term in first], is_indexed=False)


def run(term: str, count: int = 1) -> PassageRun:
    return PassageRun(count, 10, term, f'[["code",1,"{term}"]]'.encode())


def missing(store: Store, session_id: str = "a") -> list[tuple[str, int]]:
    return [(each.original.ref, each.done) for each in store.unindexed(session_id)]


def number(store: Store, ref: str) -> int:
    original = store.original("a", ref)
    assert original is not None
    return original.number


def add(store: Store, ref: str, done: int, *terms: str, is_last: bool = False) -> dict[int, int]:
    part = IndexPart(number(store, ref), done, [run(term) for term in terms], is_last)
    return store.index("a", [part])


def found(store: Store, term: str, session_id: str = "a", **wanted: str) -> list[str]:
    """The runs that hold a term, of those that the index finds."""
    hits = store.search(session_id, {term: 1.0}, most=100, **wanted)
    return [hit.ref for hit in hits if term in hit.body.decode()]


def test_what_is_archived_without_its_runs_is_missing_in_the_index_until_they_are_added(store: Store):
    store.archive("a", [unindexed(store, "tool_001", "1"), item(store, "tool_002", "2", terms="other")], AT)
    assert missing(store) == [("tool_001", 0)]
    assert found(store, "first") == []
    assert add(store, "tool_001", 0, "first", "second", "third") == {number(store, "tool_001"): 3}
    assert missing(store) == [("tool_001", 3)]
    assert add(store, "tool_001", 3, "last", is_last=True) == {}
    assert missing(store) == []
    for term in ("first", "second", "third", "last"):
        assert found(store, term) == ["tool_001"]
    assert missing(store, "b") == []


def test_what_was_added_with_an_original_counts(store: Store):
    store.archive("a", [unindexed(store, "tool_001", "1", "first", "second")], AT)
    assert missing(store) == [("tool_001", 2)]
    add(store, "tool_001", 2, "third", is_last=True)
    assert found(store, "first") == found(store, "third") == ["tool_001"]


def test_runs_that_do_not_follow_what_is_there_are_left_out(store: Store):
    store.archive("a", [unindexed(store, "tool_001", "1")], AT)
    add(store, "tool_001", 0, "first", "second")
    assert add(store, "tool_001", 0, "again", is_last=True) == {number(store, "tool_001"): 2}
    assert add(store, "tool_001", 7, "later", is_last=True) == {number(store, "tool_001"): 2}
    assert found(store, "again") == found(store, "later") == []
    add(store, "tool_001", 2, is_last=True)
    assert add(store, "tool_001", 2, "never") == {}
    assert found(store, "never") == []


def test_several_originals_are_indexed_in_one_go(store: Store):
    store.archive("a", [unindexed(store, f"tool_00{at}", f"{at}") for at in (1, 2, 3)], AT)
    parts = [
        IndexPart(each.original.number, 0, [run(f"word{each.original.ref[-1]}")], True) for each in store.unindexed("a")
    ]
    assert store.index("a", parts) == {}
    assert [found(store, f"word{at}") for at in (1, 2, 3)] == [["tool_001"], ["tool_002"], ["tool_003"]]


def test_an_original_that_is_archived_twice_is_indexed_once(store: Store):
    same = [unindexed(store, "tool_001", '"same"'), unindexed(store, "tool_002", '"same"')]
    store.archive("a", same, AT)
    store.archive("a", [unindexed(store, "tool_001", '"other"'), unindexed(store, "tool_003", '"same"')], LATER)
    assert missing(store) == [("tool_001", 0)]


def test_an_original_without_a_passage_is_only_marked_as_done(store: Store):
    store.archive("a", [unindexed(store, "tool_001", "1")], AT)
    assert add(store, "tool_001", 0, is_last=True) == {}
    assert missing(store) == []


def test_what_is_indexed_later_is_found_by_the_time_of_its_archiving(store: Store):
    store.archive("a", [unindexed(store, "tool_001", "1")], AT)
    store.archive("a", [item(store, "tool_002", "2", terms="token middle")], LATER)
    store.archive("a", [item(store, "tool_003", "3", terms="token young")], LATEST)
    store.archive("b", [item(store, "tool_009", "9", terms="token of b")], AT)
    assert found(store, "token", until=LATER) == []
    add(store, "tool_001", 0, "token", is_last=True)
    assert found(store, "token", until=LATER) == ["tool_001"]
    assert found(store, "token", since=LATEST) == ["tool_003"]
    assert set(found(store, "token", since=AT, until=LATEST)) <= {"tool_001", "tool_002"}


def test_what_is_written_in_a_transaction_that_fails_is_still_missing(store: Store):
    store.archive("a", [unindexed(store, "tool_001", "1")], AT)

    def fail() -> None:
        with store.writing("a"):
            add(store, "tool_001", 0, "first", is_last=True)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert missing(store) == [("tool_001", 0)]
    assert found(store, "first") == []


def test_a_session_that_is_deleted_leaves_nothing_to_index(store: Store):
    store.archive("a", [unindexed(store, "tool_001", "1")], AT)
    part = IndexPart(number(store, "tool_001"), 0, [run("first")], True)
    assert store.expire(LATER) == ["a", "b"]
    with pytest.raises(UnknownSession):
        store.index("a", [part])
    store.open_session("a", b"{}", LATEST)
    assert missing(store) == []
    assert store.index("a", [part]) == {}
    assert found(store, "first") == []


def test_a_copy_goes_on_where_the_index_of_its_source_ends(store: Store, tmp_path: Path):
    store.archive("b", [unindexed(store, "tool_001", "1", "first")], AT)
    assert isinstance(store, SqlStore)
    with closing(SqliteStore(str(tmp_path / "copy.db"))) as target:
        list(copy_sessions(store, target, lambda body: terms_of(body) if body.startswith(b"[") else "filler"))
        (half,) = target.unindexed("b")
        assert (half.original.ref, half.done) == ("tool_001", 1)
        target.index("b", [IndexPart(half.original.number, 1, [run("second")], is_last=True)])
        assert found(target, "first", "b") == found(target, "second", "b") == ["tool_001"]


def test_contents_that_were_made_ready_are_kept_and_appended_as_they_are(store: Store):
    long = b"some words, again and again, " * 20
    ready = store.ready([long, b"short", long])
    assert store.put(ready) == [each.hash for each in ready] == store.put([long, b"short", long])
    *_, whole = store.put(store.ready_list([b"1", long]))
    assert store.get([whole])[whole] == b"[1," + long + b"]"
    assert whole == put_list(store, [b"1", long])
    store.append("a", "message", [*ready, b"plain"], AT)
    assert [entry.body for entry in store.entries("a")] == [long, b"short", long, b"plain"]
    assert list(store.verify()) == []


# Stores that were made before

_NEW_TABLES = (
    "unindexed",
    "deleted_sessions",
    "unneeded_contents",
    "lineage",
    "proxied_requests",
    "proxied_links",
)
"""Those of later versions."""


def test_what_an_older_version_has_indexed_is_found_and_not_indexed_again(tmp_path: Path):
    path = str(tmp_path / "sessions.db")
    with closing(SqliteStore(path)) as store:
        store.open_session("a", b"{}", AT)
        store.archive("a", [item(store, "tool_001", "1", terms="needle")], AT)
    with closing(sqlite3.connect(path)) as database:
        for table in _NEW_TABLES:
            database.execute(f"DROP TABLE {table}")
        database.execute("PRAGMA user_version = 2")
        database.commit()
    with closing(SqliteStore(path)) as store:
        assert (store.schema.before, store.schema.now > 2) == (2, True)
        assert missing(store) == []
        assert found(store, "needle") == ["tool_001"]
        store.archive("a", [unindexed(store, "tool_002", "2")], AT)
        assert missing(store) == [("tool_002", 0)]


def test_the_same_on_postgresql(postgres_url: str):
    with closing(PostgresStore(postgres_url)) as store:
        store.open_session("a", b"{}", AT)
        store.archive("a", [item(store, "tool_001", "1", terms="needle")], AT)
        for table in _NEW_TABLES:
            store._database.write(f"DROP TABLE {table}")
        store._database.write("UPDATE schema_version SET version = 2")
    with closing(PostgresStore(postgres_url)) as store:
        assert (store.schema.before, store.schema.now > 2) == (2, True)
        assert missing(store) == []
        assert found(store, "needle") == ["tool_001"]
        store.archive("a", [unindexed(store, "tool_002", "2")], AT)
        assert missing(store) == [("tool_002", 0)]
