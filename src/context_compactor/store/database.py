"""What a store needs of a database: transactions, statements, migrations, a word index, and a pause while the process
forks."""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Any
from weakref import WeakSet

from msgspec import Struct

from context_compactor.errors import StoreError


class Forkable:
    """What pauses while its process forks."""

    def before_fork(self) -> None:
        """Let go of everything that must not be inherited."""

    def after_fork(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Go on in the new process."""


_forkables: WeakSet[Forkable] = WeakSet()
_inherited: list[object] = []


def pause_at_fork(each: Forkable) -> None:
    """From now on this pauses whenever the process forks, for as long as it lives."""
    _forkables.add(each)


def never_close(inherited: object) -> None:
    """Never end this in the present process: it is its parent's."""
    _inherited.append(inherited)


def _each_forkable(step: str) -> None:
    for each in tuple(_forkables):
        getattr(each, step)()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(
        before=lambda: _each_forkable("before_fork"),
        after_in_parent=lambda: _each_forkable("after_fork"),
        after_in_child=lambda: _each_forkable("after_fork_in_child"),
    )


class Migrated(Struct, frozen=True):
    """The version of a database's tables when it was opened, 0 for none, and since."""

    before: int
    now: int


@cache
def scripts(folder: str) -> tuple[str, ...]:
    """The migrations of one kind of database in order: the first makes version 1."""
    found = sorted((files(__package__) / "sql" / folder).iterdir(), key=lambda each: each.name)
    return tuple(script.read_text(encoding="utf-8") for script in found if script.name.endswith(".sql"))


def refuse_newer(name: str, version: int, known: int) -> None:
    """Leave alone what a later version of the program has made."""
    if version > known:
        raise StoreError(
            f"{name} was made by a newer version of this program (its schema is {version}, this one knows {known}). "
            "Try: update context-compactor."
        )


# What the index takes for one word. Half a character is none: no database takes what UTF-8 cannot write.
_WORD = re.compile(r"[0-9A-Za-z\x80-\ud7ff\ue000-\U0010ffff]{1,200}")


TermsOf = Callable[[bytes], str]
"""The terms by which the passages in a run's body are found. An index may not know them any more."""


class WordQuery(Struct, frozen=True):
    """Runs between two numbers of one session that hold a term of each group."""

    groups: tuple[tuple[str, ...], ...]
    first: int
    last: int


class WordIndex(ABC):
    """The terms of each run, under its number."""

    column: str
    where: str
    """What finds the runs of a query by the values of `_values`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @abstractmethod
    def add(self, runs: Iterable[tuple[int, str]]) -> None:
        """Note the terms of runs, with spaces between them."""

    @abstractmethod
    def remove(self, runs: Iterable[tuple[int, str]]) -> None:
        """Forget runs, which are given with the terms that were noted for them."""

    def purge(self) -> None:  # noqa: B027  a server does so by itself
        """Rewrite the index, in steps, without what was forgotten."""

    @abstractmethod
    def numbers(self, wanted: WordQuery) -> list[int]:
        """The numbers of all that are wanted, in one value: taking them row by row takes longer than finding them."""

    def count(self, wanted: WordQuery, most: int) -> int:
        """How many runs are wanted; `most` when there are more."""
        statement = f"SELECT count(*) FROM (SELECT 1 {self.where} LIMIT ?) AS found"
        return int(self._database.row(statement, [*self._values(wanted), most])[0])

    def newest(self, wanted: WordQuery, limit: int, skip: int = 0) -> list[int]:
        """The highest numbers of those that are wanted, from the last one backwards."""
        statement = f"SELECT {self.column} {self.where} ORDER BY {self.column} DESC LIMIT ? OFFSET ?"
        return [number for (number,) in self._database.rows(statement, [*self._values(wanted), limit, skip])]

    @abstractmethod
    def _values(self, wanted: WordQuery) -> list[object]: ...


def is_word(term: str) -> bool:
    """Whether a term can stand in an index."""
    return _WORD.fullmatch(term) is not None


def kind_word(kind: str) -> str:
    """The word by which runs of originals of a kind are found. No term is one, since none holds a colon."""
    return f"kind:{kind.encode().hex()}"


_IN_ONE_STATEMENT = 500
_LONGEST_PAUSE = 0.5
NO_LIMIT = 1 << 62
"""More rows than there will ever be, for a `LIMIT` that is none."""


class OpenTransaction:
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
            raise StoreError(f"{path}: a statement of this transaction failed, so nothing was written.")


class NestedTransaction:
    """A block of a transaction that is under way. When it raises, the transaction cannot be kept."""

    def __init__(self, writing: OpenTransaction) -> None:
        self._writing = writing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._writing.has_failed = True


class ExplainedErrors:
    """Within it an error of the database's library becomes one that says what to do."""

    def __init__(self, kind: type[Exception], explain: Callable[[Any], StoreError]) -> None:
        self._kind = kind
        self._explain = explain

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, self._kind):
            raise self._explain(error) from error


class Database(ABC):
    """Tables that any thread may read and write. In a statement `?` stands for a value.

    `path` is what messages call it; `schema` says what opening it did to its tables. `row_lock` ends a query whose row
    nobody else may change until the transaction ends. The runs of a session have numbers below `passages_per_session`.
    """

    path: str
    row_lock: str
    passages_per_session: int
    schema: Migrated
    words: WordIndex
    _errors: ExplainedErrors

    @abstractmethod
    def close(self) -> None:
        """Give back what is held; a second time does nothing."""

    # Transactions

    @property
    @abstractmethod
    def current(self) -> OpenTransaction | None:
        """The transaction of this thread that is under way."""

    def writing(self) -> AbstractContextManager[None]:
        """A transaction: all of it happens, or nothing of it. One within another is that one."""
        current = self.current
        return self._transaction() if current is None else NestedTransaction(current)

    def savepoint(self) -> AbstractContextManager[None]:
        """A part of the transaction under way, of which all or nothing happens, while the rest goes on."""
        current = self.current
        return self._transaction() if current is None else self._savepoint(current)

    def alone(self) -> AbstractContextManager[None]:
        """A transaction during which nobody else writes anything. It cannot be within another one."""
        if self.current is not None:  # it would wait for whoever waits for it
            raise StoreError(
                f"{self.path}: this needs a transaction of its own, and cannot be done within another one."
            )
        return self._transaction(alone=True)

    @abstractmethod
    def _transaction(self, *, alone: bool = False) -> AbstractContextManager[None]: ...

    @contextmanager
    def _savepoint(self, current: OpenTransaction) -> Iterator[None]:
        with self._errors:
            current.refuse_failed(self.path)
            self._control("SAVEPOINT part")
            try:
                yield
                if self.current is current:  # else this is a forked process: it is the parent's
                    current.refuse_failed(self.path)
                    self._control("RELEASE part")
            except BaseException:
                if self.current is current and self._is_in_transaction():
                    self._control("ROLLBACK TO part")
                    self._control("RELEASE part")
                current.forget()
                raise

    @abstractmethod
    def _control(self, statement: str) -> None:
        """Run a statement that controls the transaction under way."""

    @abstractmethod
    def _is_in_transaction(self) -> bool:
        """Whether the database still has the transaction under way."""

    # Statements

    @abstractmethod
    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement."""

    @abstractmethod
    def row(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a statement, or None."""

    @abstractmethod
    def write(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Change something."""

    @abstractmethod
    def write_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """The same change for every row."""

    @abstractmethod
    def probe(self, statement: str, seconds: float) -> None:
        """Run a statement over a connection of its own, which waits for a lock no longer than that."""

    # What not every database needs

    def erasing(self) -> AbstractContextManager[None]:
        """Within it, what is deleted is overwritten as far as the database can do so."""
        return nullcontext()

    def shrink(self) -> None:  # noqa: B027  a server does so by itself
        """Give the room of what was deleted back, without holding others up for long."""

    def by_index(self, name: str) -> str:  # noqa: ARG002  where the planner chooses by itself
        """What stands behind a table so that an index of it is used, where that must be said."""
        return ""


@contextmanager
def short_transaction(transaction: AbstractContextManager[object]) -> Iterator[None]:
    """A transaction of many that follow one another: behind it others have as much time to write as it took."""
    with transaction:
        began = time.monotonic()
        yield
    time.sleep(min(time.monotonic() - began, _LONGEST_PAUSE))


def where_given(clauses: Mapping[str, Any], lists: Mapping[str, Collection[Any]]) -> tuple[str, list[Any]]:
    """The conditions of a query whose values are given (not None, not empty), and these values."""
    given = {clause: value for clause, value in clauses.items() if value is not None}
    wanted = {column: values for column, values in lists.items() if values}
    conditions = [*given, *(f"{column} IN ({', '.join('?' * len(values))})" for column, values in wanted.items())]
    return " AND ".join(conditions) or "1 = 1", [
        *given.values(),
        *(each for values in wanted.values() for each in values),
    ]


def rows_in(database: Database, statement: str, values: Sequence[Any], fixed: Sequence[Any] = ()) -> Iterator[Any]:
    """The rows of a query whose `{}` stands for a list of values, however long."""
    for at in range(0, len(values), _IN_ONE_STATEMENT):
        some = values[at : at + _IN_ONE_STATEMENT]
        yield from database.rows(statement.format(",".join("?" * len(some))), [*fixed, *some])
