"""Deleting sessions that nobody has used for long: only when a setting asks for it, and all of a session or nothing."""

from __future__ import annotations

from collections.abc import Collection

from context_compactor.store.contents import Contents
from context_compactor.store.database import Database
from context_compactor.store.named import named, with_parts
from context_compactor.store.runs import Runs

_TABLES = ("entries", "originals", "facts", "holders", "unindexed")


def expire(database: Database, contents: Contents, before: str, spare: Collection[str]) -> list[str]:
    """Delete the sessions last used before a time, with every content that no other session needs; their ids."""
    if not _old(database, before, spare):  # so that nobody waits when there is nothing to do
        return []
    with database.alone():
        old = _old(database, before, spare)
        for number, _ in old:
            Runs(database).remove(number)
            for table in _TABLES:
                database.write(f"DELETE FROM {table} WHERE session = ?", [number])
            database.write("DELETE FROM sessions WHERE number = ?", [number])
        if old:
            _sweep(database, contents)
    return [session_id for _, session_id in old]


def _old(database: Database, before: str, spare: Collection[str]) -> list[tuple[int, str]]:
    rows = database.rows("SELECT number, id FROM sessions WHERE updated_at < ? ORDER BY id", [before])
    return [(number, session_id) for number, session_id in rows if session_id not in spare]


def _sweep(database: Database, contents: Contents) -> None:
    """Delete the contents that nothing refers to: no entry, no original, no list, and no compaction or state."""
    needed = with_parts(database, named(database, contents))
    rows = database.rows("SELECT number, hash FROM contents")
    database.write_many(
        "DELETE FROM contents WHERE number = ?", [(number,) for number, name in rows if name.hex() not in needed]
    )
