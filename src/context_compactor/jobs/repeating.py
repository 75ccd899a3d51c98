"""A thread beside an engine's hands: it does something, rests, and does it again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread


class Repeating:
    """Calls `look` again and again, from `start` to `stop`; what it returns is how many seconds to rest."""

    def __init__(self, name: str, look: Callable[[], float]) -> None:
        self._look = look
        self._over = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, with a look at once."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; what is being done is finished."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            self._over.wait(self._look())
