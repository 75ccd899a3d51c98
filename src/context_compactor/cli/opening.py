"""Which session a command means, and opening it. A command that reads never makes a store or a session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from context_compactor.cli.output import Paper
from context_compactor.errors import UnknownSession

if TYPE_CHECKING:
    from context_compactor.session.session import Session
    from context_compactor.store.rows import SessionRow
    from context_compactor.store.sql_store import SqlStore

_MOST_NAMED = 3


def store_url(store: str | None) -> str:
    """The address of the store: what was given, else the setting."""
    from context_compactor.settings import load_settings

    return load_settings({"store": store}).settings.store


@contextmanager
def open_store(store: str | None) -> Iterator[SqlStore]:
    """The store, which must be there."""
    from context_compactor.store.connect import connect

    with closing(connect(store_url(store), create=False)) as kept:
        yield kept


@contextmanager
def open_session(session_id: str | None, store: str | None) -> Iterator[Session]:
    """The session of this id, or the one used last; it must be there."""
    found = find_session(session_id, store)
    from context_compactor.session.session import Session

    with Session.open(found.id, store=store_url(store)) as session:
        yield session


def find_session(session_id: str | None, store: str | None) -> SessionRow:
    """The session of this id as the store knows it, or the one used last, which is then told beside the output."""
    with open_store(store) as kept:
        if session_id is not None:
            return kept.session(session_id)
        rows = sorted(kept.sessions(), key=lambda row: row.updated_at, reverse=True)
        _refuse_unclear(rows, kept.path)
    which = f"the one used last of {len(rows):,}; --session chooses" if len(rows) > 1 else "the only one"
    Paper(sys.stderr).print(f"session {rows[0].id!r}: {which}", style="dim")
    return rows[0]


def _refuse_unclear(rows: list[SessionRow], path: str) -> None:
    if not rows:
        raise UnknownSession(f"there is no session in {path} yet. Try: `compactor compact FILE --session ID`.")
    newest = [row.id for row in rows if row.updated_at == rows[0].updated_at]
    if len(newest) > 1:
        names = ", ".join(map(repr, newest[:_MOST_NAMED])) + (", …" if len(newest) > _MOST_NAMED else "")
        raise UnknownSession(f"several sessions of {path} were used last: {names}. Try: --session {newest[0]!r}.")
