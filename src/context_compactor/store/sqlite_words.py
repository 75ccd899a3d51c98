"""The index of words in SQLite: an FTS5 table that holds no texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from context_compactor.store.database import one_of_many
from context_compactor.store.words import Wanted

if TYPE_CHECKING:
    from context_compactor.store.sqlite_file import SqliteFile

# As many pages of the index are merged in one transaction.
_PAGES = 200
# As many are merged whenever something is added. Left to itself, FTS5 merges so much now and then that others wait.
_PAGES_WITH_NEW = 32
_WHERE = "FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?"


class SqliteWords:
    """The terms of each run; see `words.Words`."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database

    def add(self, runs: Iterable[tuple[int, str]]) -> None:
        """Note the terms of runs."""
        with self._database.writing():
            self._database.write_many("INSERT INTO words (rowid, terms) VALUES (?, ?)", runs)
            self._database.write("INSERT INTO words (words, rank) VALUES ('merge', ?)", [_PAGES_WITH_NEW])

    def remove(self, runs: Iterable[tuple[int, str]]) -> None:
        """Forget runs. A table without texts must be told which terms a run had."""
        self._database.write_many("INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)", runs)

    def purge(self) -> None:
        """Merge all parts of the index into one: until then what was forgotten stands in the older ones."""
        pages = -_PAGES
        while self._merge(pages) > 1:  # a step that finds nothing to do changes one row
            pages = _PAGES

    def _merge(self, pages: int) -> int:
        """Merge some pages; how many rows that changed. A negative number begins with all parts there are."""
        with one_of_many(self._database.writing()):
            before = self._changes()
            self._database.write("INSERT INTO words (words, rank) VALUES ('merge', ?)", [pages])
            return self._changes() - before

    def _changes(self) -> int:
        return int(self._database.row("SELECT total_changes()")[0])

    def count(self, wanted: Wanted, most: int) -> int:
        """How many runs are wanted; `most` when there are more."""
        row = self._database.row(f"SELECT count(*) FROM (SELECT 1 {_WHERE} LIMIT ?)", [*_values(wanted), most])
        return int(row[0])

    def numbers(self, wanted: Wanted) -> list[int]:
        """All numbers in one value: taking them row by row takes longer than finding them."""
        row = self._database.row(f"SELECT json_group_array(rowid) {_WHERE}", _values(wanted))
        return msgspec.json.decode(row[0], type=list[int])

    def newest(self, wanted: Wanted, limit: int, skip: int = 0) -> list[int]:
        """The highest numbers, from the last one backwards."""
        statement = f"SELECT rowid {_WHERE} ORDER BY rowid DESC LIMIT ? OFFSET ?"
        return [number for (number,) in self._database.rows(statement, [*_values(wanted), limit, skip])]


def _values(wanted: Wanted) -> list[object]:
    groups = ("(" + " OR ".join(f'"{term}"' for term in group) + ")" for group in wanted.groups)
    return [" AND ".join(groups), wanted.first, wanted.last]
