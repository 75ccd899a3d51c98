"""Retention: sessions that nobody has used for long go, whole, and nothing goes with them that another one needs."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from context_compactor.errors import DamagedContent, UnknownSession
from context_compactor.protocols import Store
from context_compactor.store.rows import FactRow, hash_of
from context_compactor.store.sqlite import SqliteStore
from tests.store.rows import AT, LATER, LATEST, bodies, item, put_list, texts_of


def fill(store: Store, session_id: str, now: str) -> None:
    """Something of everything, some of it the same in every session."""
    store.open_session(session_id, b"{}", now)
    store.append(session_id, "message", bodies("shared", f"only {session_id}"), now)
    hidden = [f"items of {session_id}".encode(), b"shared items"]
    names = store.put(hidden)
    store.append(session_id, "compaction", [json.dumps({"items": names}).encode()], now)
    store.archive(session_id, [item(store, "tool_001", f'"value {session_id}"', terms=f"needle word{session_id}")], now)
    store.put_facts(session_id, [FactRow("error", 1, b"{}", "pattern")], now)
    store.hold(session_id, "me", now)


@pytest.fixture
def two(store: Store) -> Store:
    """A store with the sessions `old` and `new`."""
    store.expire(LATEST)
    fill(store, "old", AT)
    fill(store, "new", LATEST)
    return store


def test_sessions_last_used_before_a_time_are_deleted_and_named(two: Store):
    assert two.expire(AT) == []
    assert two.expire(LATER) == ["old"]
    assert [row.id for row in two.sessions()] == ["new"]
    with pytest.raises(UnknownSession):
        two.entries("old")
    assert two.sessions_with(["pattern"]) == {"pattern": {"new"}}
    assert two.expire(LATER) == []


def test_what_another_session_needs_stays_and_what_nobody_needs_goes(two: Store):
    two.expire(LATER)
    two.clear_deleted(bytes.decode)
    assert texts_of(two, "new", kinds=("message",)) == ["shared", "only new"]
    kept = [b"items of new", b"shared items", b'"value new"', b"shared"]
    assert list(two.get([hash_of(content) for content in kept]).values()) == kept
    for content in (b"items of old", b'"value old"', b"only old"):
        with pytest.raises(DamagedContent):
            two.get([hash_of(content)])
    assert list(two.verify()) == []


def test_a_list_within_a_list_stays_whole(two: Store):
    put_list(two, [b'"a"', b'"b"'])
    outer = put_list(two, [b'["a","b"]', b'"c"'])
    two.append("new", "revision", [json.dumps({"hash": outer}).encode()], LATEST)
    two.expire(LATER)
    two.clear_deleted(bytes.decode)
    assert two.get([outer]) == {outer: b'[["a","b"],"c"]'}
    assert list(two.verify()) == []


def test_a_session_of_the_same_name_begins_anew(two: Store):
    two.expire(LATER)
    two.open_session("old", b"{}", LATEST)
    assert (two.session("old").head, two.originals("old"), two.facts("old"), two.holders("old")) == (0, [], [], {})
    assert two.append("old", "message", bodies("first"), LATEST) == 1


def test_words_of_a_deleted_session_are_not_found_in_those_that_come_after_it(two: Store):
    two.expire("2027-01-01T00:00:00.000+00:00")
    two.clear_deleted(bytes.decode)
    for name in ("a", "b", "c"):
        two.open_session(name, b"{}", LATEST)
        two.archive(name, [item(two, f"tool_00{n}", f'"{name}{n}"', terms=f"fresh {n}") for n in range(4)], LATEST)
        assert two.search(name, dict.fromkeys(["wordold", "wordnew", "needle"], 1.0), most=20) == []
        assert [each.body for each in two.search(name, {"fresh": 1.0}, most=40)] == bodies(
            *(f"fresh {n}" for n in range(4))
        )


def test_somebody_who_still_has_a_deleted_session_open_does_not_write_into_another(tmp_path: Path):
    path = str(tmp_path / "sessions.db")
    with closing(SqliteStore(path)) as mine, closing(SqliteStore(path)) as other:
        fill(mine, "old", AT)
        other.expire(LATER)
        other.clear_deleted(bytes.decode)
        other.open_session("new", b"{}", LATEST)
        for verb in (
            lambda: mine.append("old", "message", bodies("to nobody"), LATEST),
            lambda: mine.archive("old", [item(mine, "tool_009", "9")], LATEST),
            lambda: mine.put_facts("old", [FactRow("error", 1, b"{}")], LATEST),
            lambda: mine.save_state("old", b'{"of":"old"}'),
            lambda: mine.hold("old", "me", LATEST),
            lambda: mine.entries("old"),
        ):
            with pytest.raises(UnknownSession):
                verb()
        row = other.session("new")
        assert (row.head, row.state) == (0, b"{}")
        assert (other.originals("new"), other.facts("new"), other.holders("new")) == ([], [], {})
        assert list(other.verify()) == []
