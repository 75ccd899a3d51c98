"""The index of words in PostgreSQL: a GIN index over the terms of each run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING

from context_compactor.store.words import Wanted, is_word, kind_word

if TYPE_CHECKING:
    from context_compactor.store.postgres_database import PostgresDatabase

_TERM = re.compile(r"[0-9A-Za-z:\x80-\U0010ffff]+")
_KIND = kind_word("")
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
# Adding 0 keeps the planner from reading all runs in the range instead of those under the terms.
_WHERE = "FROM words WHERE terms @@ ?::tsquery AND number + 0 BETWEEN ? AND ?"


class PostgresWords:
    """The terms of each run; see `words.Words`. All letters of ASCII are small, as in SQLite's index."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def add(self, runs: Iterable[tuple[int, str]]) -> None:
        """Note the terms of runs."""
        self._database.write_many(
            "INSERT INTO words (number, terms) VALUES (?, array_to_tsvector(?::text[]))",
            [(number, self._lexemes(number, terms)) for number, terms in runs],
        )

    def remove(self, runs: Iterable[tuple[int, str]]) -> None:
        """Forget runs."""
        self._database.write_many("DELETE FROM words WHERE number = ?", [(number,) for number, _ in runs])

    def purge(self) -> None:
        """Nothing: the server vacuums by itself."""

    def count(self, wanted: Wanted, most: int) -> int:
        """How many runs are wanted; `most` when there are more."""
        statement = f"SELECT count(*) FROM (SELECT 1 {_WHERE} LIMIT ?) AS found"
        return int(self._database.row(statement, [*self._values(wanted), most])[0])

    def numbers(self, wanted: Wanted) -> list[int]:
        """The numbers of all that are wanted."""
        return self._database.row(f"SELECT array_agg(number) {_WHERE}", self._values(wanted))[0] or []

    def newest(self, wanted: Wanted, limit: int, skip: int = 0) -> list[int]:
        """The highest numbers, from the last one backwards."""
        statement = f"SELECT number {_WHERE} ORDER BY number DESC LIMIT ? OFFSET ?"
        return [number for (number,) in self._database.rows(statement, [*self._values(wanted), limit, skip])]

    def _lexemes(self, number: int, terms: str) -> list[str]:
        """A word that is too long to be asked for is left out, since PostgreSQL would refuse it."""
        words = dict.fromkeys(_TERM.findall(terms.translate(_LOWER)))
        return [self._lexeme(number, word) for word in words if is_word(word) or word.startswith(_KIND)]

    def _lexeme(self, number: int, word: str) -> str:
        return f"{number // self._database.passages_per_session}/{word}"

    def _values(self, wanted: Wanted) -> list[object]:
        groups = (
            "(" + " | ".join(f"'{self._lexeme(wanted.first, term.translate(_LOWER))}'" for term in group) + ")"
            for group in wanted.groups
        )
        return [" & ".join(groups), wanted.first, wanted.last]
