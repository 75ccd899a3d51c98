"""What a store needs of a database: transactions, statements, migrations, a word index, and rest while the process
forks."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakSet

from msgspec import Struct

from context_compactor.errors import StoreError


class Forkable(Protocol):
    """What rests while its process forks."""

    def before_fork(self) -> None:
        """Let go of everything that must not be inherited."""
        ...

    def after_fork(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Go on in the new process."""
        ...


_forkables: WeakSet[Forkable] = WeakSet()
_inherited: list[object] = []


def pause_at_fork(each: Forkable) -> None:
    """From now on this rests whenever the process forks, for as long as it lives."""
    _forkables.add(each)


def never_close(inherited: object) -> None:
    """Never end this in the present process: it is its parent's."""
    _inherited.append(inherited)


def _before() -> None:
    for each in tuple(_forkables):
        each.before_fork()


def _after() -> None:
    for each in tuple(_forkables):
        each.after_fork()


def _after_in_child() -> None:
    for each in tuple(_forkables):
        each.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


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


class WordIndex(Protocol):
    """The terms of each run, under its number."""

    def add(self, runs: Iterable[tuple[int, str]]) -> None:
        """Note the terms of runs, with spaces between them."""
        ...

    def remove(self, runs: Iterable[tuple[int, str]]) -> None:
        """Forget runs, which are given with the terms that were noted for them."""
        ...

    def purge(self) -> None:
        """Rewrite the index, in steps, without what was forgotten."""
        ...

    def count(self, wanted: WordQuery, most: int) -> int:
        """How many runs are wanted; `most` when there are more."""
        ...

    def numbers(self, wanted: WordQuery) -> list[int]:
        """The numbers of all that are wanted."""
        ...

    def newest(self, wanted: WordQuery, limit: int, skip: int = 0) -> list[int]:
        """The highest numbers of those that are wanted, from the last one backwards."""
        ...


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


def refuse_nested(current: OpenTransaction | None, path: str) -> None:
    """Raise `StoreError` within a transaction, for what would wait for whoever waits for it."""
    if current is not None:
        raise StoreError(f"{path}: this cannot run inside another transaction.")


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
    def words(self) -> WordIndex:
        """The index by which runs of passages are found."""
        ...

    def close(self) -> None:
        """Give back what is held; a second time does nothing."""
        ...

    @property
    def current(self) -> OpenTransaction | None:
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
def short_transaction(transaction: AbstractContextManager[object]) -> Iterator[None]:
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
