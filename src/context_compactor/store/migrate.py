"""Numbered migrations: `sql/sqlite/0001_….sql` and so on, each applied once and whole; the same numbers everywhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from msgspec import Struct

from context_compactor.errors import StoreError


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
