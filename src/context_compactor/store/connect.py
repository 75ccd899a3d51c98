"""From an address to a store: `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory:`."""

from __future__ import annotations

from pathlib import Path

from context_compactor.errors import BadSetting
from context_compactor.store.database import MEMORY
from context_compactor.store.sqlite import SqliteStore

_PREFIX = "sqlite:///"
_EXAMPLE = "sqlite:///.compactor/compactor.db"


def connect(url: str, *, create: bool = True) -> SqliteStore:
    """Open the store at an address. Without `create` a file that is not there is an error."""
    path = sqlite_path(url)
    if path is None:
        return SqliteStore(MEMORY)
    if not create and not path.is_file():
        raise BadSetting(
            f"there is no store at {path}. Try: another --store, or the folder where the sessions were made."
        )
    return SqliteStore(str(path))


def sqlite_path(url: str) -> Path | None:
    """The file behind an address, or None for a store in memory."""
    if url in ("memory:", f"{_PREFIX}{MEMORY}", "sqlite://"):
        return None
    if not str(url).startswith(_PREFIX) or url == _PREFIX or "\0" in url:
        hint = " PostgreSQL is not in this version." if str(url).startswith("postgres") else ""
        raise BadSetting(f"store: {url!r:.120} is no address of a store.{hint} Try: {_EXAMPLE}, or memory: for none.")
    return Path(url.removeprefix(_PREFIX)).expanduser()
