"""The stores that must keep the contract. Another one joins by an entry in `KINDS`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from context_compactor.protocols import Store
from context_compactor.store.postgres import PostgresStore
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite import SqliteStore
from tests.store.rows import AT


class Hand(Protocol):
    """Somebody who changes what a store holds behind its back."""

    def change_content(self, name: str) -> None: ...

    def remove_content(self, name: str) -> None: ...

    def remove_entry(self, session_id: str, position: int) -> None: ...

    def swap_entries(self, session_id: str, one: int, other: int) -> None: ...

    def cut_log(self, session_id: str, after: int) -> None: ...

    def forge_log(self, session_id: str, after: int) -> None: ...


class SqlHand:
    """The same for a store whose tables are those of `sql/`."""

    def __init__(self, store: SqlStore) -> None:
        self._write = store._database.write
        self._row = store._database.row

    def change_content(self, name: str) -> None:
        """Turn one bit of the stored bytes."""
        stored = bytearray(self._row("SELECT bytes FROM contents WHERE hash = ?", [bytes.fromhex(name)])[0])
        stored[len(stored) // 2] ^= 1
        self._write("UPDATE contents SET bytes = ? WHERE hash = ?", [bytes(stored), bytes.fromhex(name)])

    def remove_content(self, name: str) -> None:
        self._write("DELETE FROM contents WHERE hash = ?", [bytes.fromhex(name)])

    def remove_entry(self, session_id: str, position: int) -> None:
        self._write("DELETE FROM entries WHERE session = ? AND position = ?", [self._number(session_id), position])

    def swap_entries(self, session_id: str, one: int, other: int) -> None:
        """Each at the place of the other, with all it has but the position."""
        number = self._number(session_id)
        for old, new in ((one, -1), (other, one), (-1, other)):
            self._write("UPDATE entries SET position = ? WHERE session = ? AND position = ?", [new, number, old])

    def cut_log(self, session_id: str, after: int) -> None:
        self._write("DELETE FROM entries WHERE session = ? AND position > ?", [self._number(session_id), after])

    def forge_log(self, session_id: str, after: int) -> None:
        """Cut the log and make the session's own count of it fit."""
        self.cut_log(session_id, after)
        self._write("UPDATE sessions SET head = ? WHERE id = ?", [after, session_id])

    def _number(self, session_id: str) -> int:
        return int(self._row("SELECT number FROM sessions WHERE id = ?", [session_id])[0])


def _in_memory(request: pytest.FixtureRequest) -> SqlStore:
    return SqliteStore()


def _in_a_file(request: pytest.FixtureRequest) -> SqlStore:
    return SqliteStore(str(request.getfixturevalue("tmp_path") / "sessions.db"))


def _in_postgres(request: pytest.FixtureRequest) -> SqlStore:
    return PostgresStore(request.getfixturevalue("postgres_url"))


KINDS = {"memory": (_in_memory, SqlHand), "sqlite": (_in_a_file, SqlHand), "postgres": (_in_postgres, SqlHand)}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def store(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An open store of each kind, with the sessions `a` and `b` in it."""
    opened = KINDS[kind][0](request)
    for session_id in ("a", "b"):
        opened.open_session(session_id, b'{"window":1000}', AT)
    yield opened
    opened.close()


@pytest.fixture
def hand(kind: str, store: SqlStore) -> Hand:
    return KINDS[kind][1](store)
