"""The archive's shelf: originals by their ids, and the words by which they are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from context_compactor.store.contents import Contents
from context_compactor.store.database import Database
from context_compactor.store.rows import Found, Item, Shelved
from context_compactor.store.runs import Filter, Runs

_COLUMNS = (
    "o.number, o.ref, o.kind, o.summary, o.tokens, o.recovery, o.hint, o.target, o.same_as, o.created_at, "
    "(SELECT lower(hex(hash)) FROM contents WHERE number = o.content)"
)


class Shelf:
    """Originals of all sessions in one database; every question is about one session."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._runs = Runs(database)

    def add(self, session: int, items: Sequence[Item], now: str) -> list[str]:
        """Put originals on the shelf; the ids of those that were not there. The first under an id stays for ever.

        An original whose value is archived under another id already refers to that one and is not found twice.
        """
        with self._database.writing():
            return [item.ref for item in items if self._add(session, item, now)]

    def _add(self, session: int, item: Item, now: str) -> bool:
        if self._database.row("SELECT 1 FROM originals WHERE session = ? AND ref = ?", [session, item.ref]):
            return False
        content = self._contents.number(item.content)
        twin = self._database.row(
            "SELECT ref FROM originals WHERE session = ? AND content = ? ORDER BY number LIMIT 1", [session, content]
        )
        runs = () if twin else item.runs
        first = self._runs.end(session)
        number = self._database.write(
            "INSERT INTO originals (session, ref, kind, summary, tokens, recovery, hint, target, same_as, created_at, "
            "content, first, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                *(session, *_fields(item), twin[0] if twin else "", now, content),
                *(first, first + sum(run.count for run in runs)),
            ],
        )
        self._runs.add(number, item.kind, first, runs)
        return True

    def find(self, session: int, ref: str) -> Shelved | None:
        """The original under an id."""
        row = self._database.row(
            f"SELECT {_COLUMNS} FROM originals o WHERE o.session = ? AND o.ref = ?", [session, ref]
        )
        return Shelved(*row) if row else None

    def all(
        self, session: int, kind: str = "", since: str = "", until: str = "", after: int = 0, newest: int = 0
    ) -> list[Shelved]:
        """The originals of a session in the order in which they were archived; only the `newest` of them, if given."""
        where, values = Filter(kind, since, until).clauses()
        order, limit = ("DESC", newest) if newest else ("ASC", -1)
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM originals o WHERE o.session = ? AND o.number > ?{where} "
            f"ORDER BY o.number {order} LIMIT ?",
            [session, after, *values, limit],
        )
        return [Shelved(*row) for row in (reversed(rows) if newest else rows)]

    def search(self, session: int, terms: Mapping[str, float], most: int, wanted: Filter) -> list[Found]:
        """The runs of passages that hold the terms which tell most, in their order."""
        return self._runs.search(session, terms, most, wanted)


def _fields(item: Item) -> list[object]:
    return [item.ref, item.kind, item.summary, item.tokens, item.recovery, item.hint, item.target]
