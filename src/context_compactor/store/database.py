"""What a store needs of a database. `sqlite_file.py` and `postgres_database.py` are the two there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from context_compactor.store.migrate import Migrated
from context_compactor.store.words import Words

_IN_ONE_STATEMENT = 500
NO_LIMIT = 1 << 62
"""More rows than there will ever be, for a `LIMIT` that is none."""


class Database(Protocol):
    """Tables that any thread may read and write. In a statement `?` stands for a value.

    `path` is what messages call it; `schema` says what opening it did to its tables. `row_lock` ends a query whose row
    nobody else may change until the transaction ends. The runs of a session have numbers below `passages_per_session`.
    """

    path: str
    row_lock: str
    passages_per_session: int
    schema: Migrated

    @property
    def words(self) -> Words:
        """The index by which runs of passages are found."""
        ...

    def close(self) -> None:
        """Give back what is held; a second time does nothing."""
        ...

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is under way."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """A transaction: all of it happens, or nothing of it. One within another is a part of it."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """A transaction during which nobody else writes anything."""
        ...

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement."""
        ...

    def row(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a statement, or None."""
        ...

    def write(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Change something."""
        ...

    def write_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """The same change for every row."""
        ...

    def by_index(self, name: str) -> str:
        """What stands behind a table so that an index of it is used, where that must be said."""
        ...


def rows_in(database: Database, statement: str, values: Sequence[Any], fixed: Sequence[Any] = ()) -> Iterator[Any]:
    """The rows of a query whose `{}` stands for a list of values, however long."""
    for at in range(0, len(values), _IN_ONE_STATEMENT):
        some = values[at : at + _IN_ONE_STATEMENT]
        yield from database.rows(statement.format(",".join("?" * len(some))), [*fixed, *some])
