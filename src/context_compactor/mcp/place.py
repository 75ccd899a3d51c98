"""Where a server looks."""

from __future__ import annotations

from msgspec import Struct


class Place(Struct, frozen=True):
    """The project's folder, and a store and a session when these were given."""

    root: str
    store: str | None = None
    session: str | None = None
    asked_by: str = ""
    """The agent's session that a call comes from, where the agent says so: Codex does with each."""
