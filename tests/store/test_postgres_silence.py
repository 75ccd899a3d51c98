"""A machine that vanishes or stops in the middle of a transaction does not keep the others for ever."""

from __future__ import annotations

from contextlib import closing

import pytest

from context_compactor.errors import StoreError
from context_compactor.store.postgres import PostgresStore
from context_compactor.store.postgres_connection import read_address

NOW = "2026-03-01T10:00:00.000+00:00"


def test_who_stops_in_the_middle_of_a_transaction_is_taken_its_locks_and_has_written_nothing(postgres_url: str):
    with closing(PostgresStore(postgres_url)) as stopped, closing(PostgresStore(postgres_url)) as other:
        stopped.open_session("a", b"{}", NOW)
        with pytest.raises(StoreError, match=r"idle-in-transaction|went away"), stopped.writing("a"):  # noqa: PT012
            stopped.append("a", "message", [b"never"], NOW)
            stopped._database.write("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            other.append("a", "message", [b"meanwhile"], NOW)  # it waits until the lock is free
        assert [entry.body for entry in other.entries("a")] == [b"meanwhile"]
        assert [entry.body for entry in stopped.entries("a")] == [b"meanwhile"]


def test_a_connection_is_asked_for_signs_of_life_from_both_ends(postgres_url: str):
    with closing(PostgresStore(postgres_url)) as store:
        shown = {
            name: store._database.row("SELECT current_setting(?)", [name])[0]
            for name in ("idle_in_transaction_session_timeout", "tcp_keepalives_idle", "tcp_keepalives_count")
        }
    assert shown == {
        "idle_in_transaction_session_timeout": "1min",
        "tcp_keepalives_idle": "15",
        "tcp_keepalives_count": "3",
    }
    assert "keepalives_idle=15" in read_address("postgresql://me@host/db").conninfo
    assert "keepalives_idle=99" in read_address("postgresql://me@host/db?keepalives_idle=99").conninfo
