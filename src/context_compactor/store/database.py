"""What a store needs of a database. `sqlite_file.py` and `postgres_database.py` are the two there are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Protocol

from context_compactor.errors import StoreError
from context_compactor.store.migrate import Migrated
from context_compactor.store.words import Words

_IN_ONE_STATEMENT = 500
_LONGEST_PAUSE = 0.5
NO_LIMIT = 1 << 62
"""More rows than there will ever be, for a `LIMIT` that is none."""


class Writing:
    """A transaction that is under way: what it knows of the sessions it has locked, and whether a block of it failed.

    `numbers` are those of the sessions; `ends` are the last positions of their logs and the chains up to them.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.ends: dict[int, tuple[int, bytes]] = {}
        self.has_failed = False

    def forget(self) -> None:
        """A part of it was taken back: nothing is known, and nothing of what failed is left."""
        self.numbers.clear()
        self.ends.clear()
        self.has_failed = False

    def forget_session(self, session_id: str) -> None:
        """A session was deleted: what is known of it is no longer so."""
        self.ends.pop(self.numbers.pop(session_id, 0), None)

    def refuse_failed(self, path: str) -> None:
        """Raise `StoreError` when it must not be kept, since a block of it failed and what it wrote is still there."""
        if self.has_failed:
            raise StoreError(f"{path}: a part of this transaction failed, so nothing of it was written.")


class Joined:
    """A block of a transaction that is under way. When it raises, the transaction cannot be kept."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._writing.has_failed = True


def refuse_within(current: Writing | None, path: str) -> None:
    """Raise `StoreError` within a transaction, for what would wait for whoever waits for it."""
    if current is not None:
        raise StoreError(f"{path}: this needs a transaction of its own, and cannot be done within another one.")


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
    def current(self) -> Writing | None:
        """The transaction of this thread that is under way."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """A transaction: all of it happens, or nothing of it. One within another is that one."""
        ...

    def part(self) -> AbstractContextManager[None]:
        """A part of the transaction under way, of which all or nothing happens, while the rest goes on."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """A transaction during which nobody else writes anything. It cannot be within another one."""
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

    def erasing(self) -> AbstractContextManager[None]:
        """Within it, what is deleted is overwritten as far as the database can do so."""
        ...

    def shrink(self) -> None:
        """Give the room of what was deleted back, without holding others up for long."""
        ...

    def probe(self, statement: str, seconds: float) -> None:
        """Run a statement over a connection of its own, which waits for a lock no longer than that."""
        ...

    def by_index(self, name: str) -> str:
        """What stands behind a table so that an index of it is used, where that must be said."""
        ...


@contextmanager
def one_of_many(transaction: AbstractContextManager[object]) -> Iterator[None]:
    """A transaction of many that follow one another: behind it others have as much time to write as it took."""
    with transaction:
        began = time.monotonic()
        yield
    time.sleep(min(time.monotonic() - began, _LONGEST_PAUSE))


def rows_in(database: Database, statement: str, values: Sequence[Any], fixed: Sequence[Any] = ()) -> Iterator[Any]:
    """The rows of a query whose `{}` stands for a list of values, however long."""
    for at in range(0, len(values), _IN_ONE_STATEMENT):
        some = values[at : at + _IN_ONE_STATEMENT]
        yield from database.rows(statement.format(",".join("?" * len(some))), [*fixed, *some])
