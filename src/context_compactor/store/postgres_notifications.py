"""PostgreSQL says when an event was committed, by whichever server or worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event as Flag
from threading import Thread

import psycopg

from context_compactor.errors import CompactorError
from context_compactor.store.postgres_connection import PostgresAddress, opened

_log = logging.getLogger("context_compactor")
_POLL_SECONDS = 0.5
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0


class PostgresEventListener:
    """Listens on one connection of its own, which is made anew whenever it is lost.

    `on_event` is called, in a thread, with the type of each event; and with "" whenever listening begins, since nobody
    knows what came before. `is_listening` says whether there is a connection now.
    """

    def __init__(self, address: PostgresAddress, on_event: Callable[[str], None]) -> None:
        self.is_listening = False
        self._address = address
        self._on_event = on_event
        self._stopped = Flag()
        self._thread = Thread(target=self._run, name="context-compactor notices", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait = _FIRST_WAIT
        while not self._stopped.is_set():
            try:
                with opened(self._address, 0.0) as connection:
                    wait = _FIRST_WAIT
                    self._listen(connection)
            except (psycopg.Error, CompactorError) as error:
                _log.info("notifications cannot be received, and events are polled instead: %s", error)
            self.is_listening = False
            self._stopped.wait(wait)
            wait = min(wait * 2, _LONGEST_WAIT)

    def _listen(self, connection: psycopg.Connection) -> None:
        connection.execute("LISTEN context_compactor")
        self.is_listening = True
        self._on_event("")
        while not self._stopped.is_set():
            for notice in connection.notifies(timeout=_POLL_SECONDS):
                schema, _, kind = notice.payload.partition(" ")
                if schema == self._address.schema:
                    self._on_event(kind)
