"""Deleting sessions: each is gone in one short transaction, and what it leaves behind is removed in steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from context_compactor.errors import DamagedContent
from context_compactor.store.contents import ContentTable, needed_hashes, with_parts
from context_compactor.store.database import Database, TermsOf, rows_in, short_transaction
from context_compactor.store.event_log import EventTable
from context_compactor.store.idempotency import IdempotencyTable
from context_compactor.store.jobs import JobTable
from context_compactor.store.originals import PassageRuns
from context_compactor.store.proxied import ProxyTable

# As many rows in one transaction.
_AT_ONCE = 1_000
_LISTED_AT_ONCE = 10_000
# The key of the rows of a session, by table. Passages are removed before the originals they are of.
_KEYS = {
    "unindexed": "original",
    "originals": "number",
    "entries": "position",
    "facts": "kind, turn, hash",
    "lineage": "number",
}


def delete(database: Database, number: int, session_id: str) -> None:
    """Make a session unknown, with all that goes by its id. Its row must be locked by the transaction under way."""
    database.write("INSERT INTO deleted_sessions (number) VALUES (?)", [number])
    database.write("DELETE FROM sessions WHERE number = ?", [number])
    database.write("DELETE FROM holders WHERE session = ?", [number])
    EventTable(database).remove(session_id)
    JobTable(database).remove(session_id)
    IdempotencyTable(database).remove(session_id)
    ProxyTable(database).remove(session_id)
    if database.current is not None:
        database.current.forget_session(session_id)


def old_sessions(database: Database, before: str, spare: Collection[str]) -> list[str]:
    """The sessions last used before a time, without those that are spared."""
    rows = database.rows("SELECT id FROM sessions WHERE updated_at < ? ORDER BY id", [before])
    return [session_id for (session_id,) in rows if session_id not in spare]


def clear(database: Database, contents: ContentTable, terms_of: TermsOf, *, thorough: bool) -> None:
    """Remove what deleted sessions have left behind. A `thorough` one also rewrites the index of words."""
    numbers = [number for (number,) in database.rows("SELECT number FROM deleted_sessions ORDER BY number")]
    if not numbers:
        return
    with database.erasing():
        for number in numbers:
            PassageRuns(database).remove(number, terms_of)
            _remove_rows(database, number)
        _remove_contents(database, contents)
        if thorough:
            database.words.purge()
        database.write_many("DELETE FROM deleted_sessions WHERE number = ?", [(number,) for number in numbers])
    database.shrink()


def _remove_rows(database: Database, session: int) -> None:
    for table, key in _KEYS.items():
        some = f"SELECT {key} FROM {table} WHERE session = ? LIMIT {_AT_ONCE}"
        statement = f"DELETE FROM {table} WHERE session = ? AND ({key}) IN ({some}) RETURNING 1"
        is_left = True
        while is_left:
            with short_transaction(database.writing()):
                is_left = bool(database.rows(statement, [session, session]))


def _remove_contents(database: Database, contents: ContentTable) -> None:
    _list(database, _not(needed(database, contents), _numbers(database)))
    listed = dict(database.rows("SELECT content, number FROM unneeded_contents"))
    if not listed:
        return
    wanted = needed(database, contents)
    spared = [listed[content] for content in listed if wanted[content]]
    for some in _batches(spared):
        database.write_many("DELETE FROM unneeded_contents WHERE number = ?", [(number,) for number in some])
    for some in _batches(list(_not(wanted, listed))):
        with short_transaction(database.alone()):  # so that nobody is about to use what is removed
            gone = rows_in(
                database,
                "DELETE FROM unneeded_contents WHERE number IN ({}) RETURNING content",
                [listed[content] for content in some],
            )
            database.write_many("DELETE FROM contents WHERE number = ?", list(gone))


def needed(database: Database, contents: ContentTable) -> bytearray:
    """For every number of a content up to the last one there is now, 1 when a session needs it, else 0."""
    last = database.row("SELECT coalesce(max(number), 0) FROM contents")[0]
    marks = bytearray(last + 1)
    for (session,) in database.rows("SELECT number FROM sessions ORDER BY number"):
        names = [bytes.fromhex(name) for name in _needed_by(database, contents, session)]
        for (number,) in rows_in(database, "SELECT number FROM contents WHERE hash IN ({})", names):
            if number <= last:
                marks[number] = 1
    return marks


def _needed_by(database: Database, contents: ContentTable, session: int) -> Collection[str]:
    try:
        return with_parts(database, needed_hashes(database, contents, session))
    except DamagedContent:
        if database.row("SELECT 1 FROM sessions WHERE number = ?", [session]) is None:
            return ()  # it was deleted while it was looked at
        raise


def _numbers(database: Database) -> Iterator[int]:
    """The numbers of all contents."""
    after = 0
    statement = "SELECT number FROM contents WHERE number > ? ORDER BY number LIMIT ?"
    while rows := database.rows(statement, [after, _LISTED_AT_ONCE]):
        yield from (number for (number,) in rows)
        after = rows[-1][0]


def _not(marks: bytearray, numbers: Collection[int] | Iterator[int]) -> Iterator[int]:
    return (number for number in numbers if number < len(marks) and not marks[number])


def _list(database: Database, unneeded: Iterator[int]) -> None:
    for some in _batches(list(unneeded)):
        with short_transaction(
            database.alone()
        ):  # whoever has put one of these is done, and whoever puts one later sees the list
            database.write_many(
                "INSERT INTO unneeded_contents (content) VALUES (?) ON CONFLICT (content) DO NOTHING",
                [(number,) for number in some],
            )


def _batches(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE))
