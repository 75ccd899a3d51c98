"""Deleting sessions that nobody has used for long: only when a setting asks for it, and all of a session or nothing."""

from __future__ import annotations

import re
from collections.abc import Collection

from context_compactor.store.contents import Contents, list_hashes
from context_compactor.store.database import Database

_TABLES = ("entries", "originals", "facts", "holders")
_HASH = re.compile(rb"[0-9a-f]{64}")
_KNOWN = "SELECT lower(hex(hash)) FROM contents WHERE hash IN ({})"


def expire(database: Database, contents: Contents, before: str, spare: Collection[str]) -> list[str]:
    """Delete the sessions last used before a time, with every content that no other session needs; their ids."""
    with database.writing():
        rows = database.rows("SELECT number, id FROM sessions WHERE updated_at < ? ORDER BY id", [before])
        old = [(number, session_id) for number, session_id in rows if session_id not in spare]
        for number, _ in old:
            database.write(
                "DELETE FROM passages WHERE original IN (SELECT number FROM originals WHERE session = ?)", [number]
            )
            for table in _TABLES:
                database.write(f"DELETE FROM {table} WHERE session = ?", [number])
            database.write("DELETE FROM sessions WHERE number = ?", [number])
        if old:
            _sweep(database, contents)
    return [session_id for _, session_id in old]


def _sweep(database: Database, contents: Contents) -> None:
    """Delete the contents that nothing refers to: no entry, no original, no list, and no compaction or state."""
    needed = _needed(database, contents)
    gone = [(number,) for (number,) in database.rows("SELECT number FROM contents") if number not in needed]
    database.write_many("DELETE FROM contents WHERE number = ?", gone)


def _needed(database: Database, contents: Contents) -> set[int]:
    rows = database.rows("SELECT content FROM entries UNION SELECT content FROM originals")
    waiting = {number for (number,) in rows} | _numbers(database, _told(database, contents))
    needed: set[int] = set()
    while waiting:
        needed |= waiting
        lists = database.rows_in("SELECT bytes FROM contents WHERE codec = 2 AND number IN ({})", list(waiting))
        parts = {part for (joined,) in lists for part in list_hashes(joined)}
        waiting = _numbers(database, parts) - needed
    return needed


def _told(database: Database, contents: Contents) -> set[str]:
    """Contents that states, compactions and revisions speak of, and those that these speak of in turn."""
    rows = database.rows(
        "SELECT lower(hex(c.hash)) FROM entries e JOIN contents c ON c.number = e.content WHERE e.kind <> 'message'"
    )
    states = b"\n".join(row[0] for row in database.rows("SELECT CAST(state AS BLOB) FROM sessions"))
    told = _hashes(states) | _named_in(contents, [name for (name,) in rows])
    known = [name for (name,) in database.rows_in(_KNOWN, [bytes.fromhex(name) for name in told])]
    return told | _named_in(contents, known)


def _named_in(contents: Contents, names: list[str]) -> set[str]:
    return set().union(*map(_hashes, contents.get(names).values())) if names else set()


def _hashes(content: bytes) -> set[str]:
    return {found.decode() for found in _HASH.findall(content)}


def _numbers(database: Database, names: set[str]) -> set[int]:
    statement = "SELECT number FROM contents WHERE hash IN ({})"
    return {number for (number,) in database.rows_in(statement, [bytes.fromhex(name) for name in names])}
