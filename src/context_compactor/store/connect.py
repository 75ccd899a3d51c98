"""From an address to a store: `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://host/db`, `memory:`."""

from __future__ import annotations

from pathlib import Path

from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite import SqliteStore
from context_compactor.store.sqlite_connection import MEMORY
from context_compactor.store_urls import is_postgres, without_password

_PREFIX = "sqlite:///"
_EXAMPLE = "sqlite:///.compactor/compactor.db"


def connect(url: str, *, create: bool = True) -> SqlStore:
    """Open the store at an address. Without `create` one that is not there is an error."""
    if is_postgres(url):
        return _connect_postgres(url, create)
    path = sqlite_path(url)
    if path is None:
        return SqliteStore(MEMORY)
    if not create and not path.is_file():
        raise BadSetting(
            f"there is no store at {path}. Try: another --store, or the folder where the sessions were made."
        )
    return SqliteStore(str(path))


def _connect_postgres(url: str, create: bool) -> SqlStore:
    try:
        from context_compactor.store.postgres import PostgresStore
    except ImportError as error:
        raise MissingExtra("a store in PostgreSQL", "postgres") from error
    return PostgresStore(url, create=create)


def sqlite_path(url: str) -> Path | None:
    """The file behind an address, or None for a store in memory."""
    if url in ("memory:", f"{_PREFIX}{MEMORY}", "sqlite://"):
        return None
    if not str(url).startswith(_PREFIX) or url == _PREFIX or "\0" in url:
        raise BadSetting(
            f"store: {without_password(str(url))!r:.120} is not a store URL. Try: {_EXAMPLE}, "
            "postgresql://user@host/database, or memory: for none."
        )
    return Path(url.removeprefix(_PREFIX)).expanduser()
