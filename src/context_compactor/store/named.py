"""Which contents a session needs: those of its entries and originals, and those that its records speak of."""

from __future__ import annotations

import re
from collections.abc import Iterable

from context_compactor.store.contents import LIST, Contents, list_hashes
from context_compactor.store.database import Database, rows_in
from context_compactor.store.rows import MESSAGE, as_bytes

_HASH = re.compile(rb"[0-9a-f]{64}")


def named(database: Database, contents: Contents, session: int | None = None) -> set[str]:
    """The hashes of all contents that a session needs, or all sessions; those of lists without their parts."""
    where, values = ("", []) if session is None else (" WHERE t.session = ?", [session])
    held: set[str] = set()
    for table in ("entries", "originals"):
        statement = f"SELECT DISTINCT c.hash FROM {table} t JOIN contents c ON c.number = t.content{where}"
        held |= {name.hex() for (name,) in database.rows(statement, values)}
    return held | _told(database, contents, session)


def with_parts(database: Database, names: Iterable[str]) -> set[str]:
    """Contents, and all that the lists among them are made of."""
    waiting, found = set(names), set[str]()
    statement = f"SELECT bytes FROM contents WHERE codec = {LIST} AND hash IN ({{}})"
    while waiting:
        found |= waiting
        lists = rows_in(database, statement, [bytes.fromhex(name) for name in waiting])
        waiting = {part for (joined,) in lists for part in list_hashes(joined)} - found
    return found


def _told(database: Database, contents: Contents, session: int | None) -> set[str]:
    """Contents that states, compactions and revisions speak of, and those that these speak of in turn."""
    of_entries, of_sessions, values = (
        ("", "", []) if session is None else (" AND e.session = ?", " WHERE number = ?", [session])
    )
    rows = database.rows(
        "SELECT DISTINCT c.hash FROM entries e JOIN contents c ON c.number = e.content "
        f"WHERE e.kind <> '{MESSAGE}'{of_entries}",
        values,
    )
    states = database.rows(f"SELECT state FROM sessions{of_sessions}", values)
    told = _hashes(b"\n".join(as_bytes(state) for (state,) in states))
    told = _known(database, told | _named_in(contents, [name.hex() for (name,) in rows]))
    return told | _known(database, _named_in(contents, told))


def _named_in(contents: Contents, names: Iterable[str]) -> set[str]:
    return set().union(*map(_hashes, contents.get(names).values()))


def _hashes(content: bytes) -> set[str]:
    return {found.decode() for found in _HASH.findall(content)}


def _known(database: Database, names: Iterable[str]) -> set[str]:
    """What looks like a hash in a text may be none of ours."""
    rows = rows_in(database, "SELECT hash FROM contents WHERE hash IN ({})", [bytes.fromhex(name) for name in names])
    return {name.hex() for (name,) in rows}
