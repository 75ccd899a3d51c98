"""Where a server looks."""

from __future__ import annotations

from msgspec import Struct


class Place(Struct, frozen=True):
    """The project's folder, and a store and a session when these were given."""

    root: str
    store: str | None = None
    session: str | None = None
