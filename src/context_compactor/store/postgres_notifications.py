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
_LOOK_SECONDS = 0.5
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0


class PostgresEventListener:
    """Listens on one connection of its own, which is made anew whenever it is lost.

    `told` is called, in a thread, with the type of each event; and with "" whenever listening begins, since nobody
    knows what was said before. `is_listening` says whether somebody could be heard now.
    """

    def __init__(self, address: PostgresAddress, told: Callable[[str], None]) -> None:
        self.is_listening = False
        self._address = address
        self._told = told
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
                _log.info("notices cannot be heard and are looked for instead: %s", error)
            self.is_listening = False
            self._stopped.wait(wait)
            wait = min(wait * 2, _LONGEST_WAIT)

    def _listen(self, connection: psycopg.Connection) -> None:
        connection.execute("LISTEN context_compactor")
        self.is_listening = True
        self._told("")
        while not self._stopped.is_set():
            for notice in connection.notifies(timeout=_LOOK_SECONDS):
                schema, _, kind = notice.payload.partition(" ")
                if schema == self._address.schema:
                    self._told(kind)
