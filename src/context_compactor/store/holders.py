"""Which processes have a session open."""

from __future__ import annotations

from context_compactor.store.database import Database


class Holders:
    """The holders of all sessions in one database, each under the number of its session."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, session: int, holder: str, now: str) -> None:
        """Note that somebody has the session open."""
        self._database.write(
            "INSERT INTO holders (session, holder, opened_at) VALUES (?, ?, ?) "
            "ON CONFLICT (session, holder) DO UPDATE SET opened_at = excluded.opened_at",
            [session, holder, now],
        )

    def remove(self, session: int, holder: str) -> None:
        """Note that somebody has closed it."""
        self._database.write("DELETE FROM holders WHERE session = ? AND holder = ?", [session, holder])

    def of(self, session: int) -> dict[str, str]:
        """Who has the session open, and since when."""
        statement = "SELECT holder, opened_at FROM holders WHERE session = ? ORDER BY opened_at, holder"
        return dict(self._database.rows(statement, [session]))

    def all(self) -> list[tuple[str, str, str]]:
        """Who has which session open: session, holder, and since when."""
        return self._database.rows(
            "SELECT s.id, h.holder, h.opened_at FROM holders h JOIN sessions s ON s.number = h.session "
            "ORDER BY h.opened_at, s.id"
        )
