"""`compactor serve --demo`: a real coding session, sent again as if it happened now, in a store that goes with it.

The same session runs in windows of several sizes side by side, so that compactions happen within seconds and one sees
what a window is worth.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from msgspec import Struct

from context_compactor.client import Client
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.errors import BadSetting, ServerError
from context_compactor.settings import ENV_PREFIX

_SESSION = "demo_session.jsonl.gz"
_FINISHED_SESSION, _FINISHED_WINDOW, _FINISHED_BATCH = "demo-finished", 32_000, 2


class DemoPace(Struct, frozen=True):
    """How a session is sent: in which window, and how long after each message."""

    window: int
    seconds: float


DEMO_PACES = (DemoPace(16_000, 0.2), DemoPace(24_000, 0.3), DemoPace(48_000, 0.4))
_PAUSE_SECONDS = 20.0
# Somebody who leaves it running finds a list that can still be read.
_ROUNDS = 3


@contextmanager
def demo_store() -> Iterator[str]:
    """The address of a store in a folder that is removed afterwards. Meanwhile no setting of the user's counts."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="compactor-demo-", ignore_cleanup_errors=True))
        stack.callback(os.chdir, Path.cwd())
        stack.callback(os.environ.update, {name: os.environ[name] for name in list(os.environ) if _is_setting(name)})
        for name in [name for name in os.environ if _is_setting(name)]:
            del os.environ[name]
        os.chdir(folder)
        yield f"sqlite:///{folder}/compactor.db"


def _is_setting(name: str) -> bool:
    return name.startswith(ENV_PREFIX)


class DemoReplay:
    """Sends the session to a server, in one thread for each pace, until it is stopped or the server is."""

    def __init__(self, paces: tuple[DemoPace, ...] = DEMO_PACES) -> None:
        self._transcript = read_transcript(demo_file())
        self._stopped = Flag()
        self._paces = paces
        self._threads: list[Thread] = []

    def start(self, address: str) -> None:
        """Begin to send to a server that listens there."""
        work = [Thread(target=self._finish_one, args=(address,), name="demo", daemon=True)]
        work += [Thread(target=self._send_all, args=(address, pace), name="demo", daemon=True) for pace in self._paces]
        self._threads = work
        for thread in work:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait until nothing more is sent."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send_all(self, address: str, pace: DemoPace) -> None:
        with Client(address, retry_seconds=0) as client:
            for number in range(1, _ROUNDS + 1):
                name = f"demo-{pace.window // 1000}k" + (f"-{number}" if number > 1 else "")
                if not self._replay(client, name, pace.window, 1, pace.seconds) or self._stopped.wait(_PAUSE_SECONDS):
                    return

    def _finish_one(self, address: str) -> None:
        """One session that is over, for whoever does not want to wait."""
        with Client(address, retry_seconds=0) as client:
            self._replay(client, _FINISHED_SESSION, _FINISHED_WINDOW, _FINISHED_BATCH, 0.0)

    def _replay(self, client: Client, name: str, window: int, at_once: int, seconds: float) -> bool:
        """Send a session; whether all of it was sent."""
        transcript = self._transcript
        try:
            client.create(name, window=window, dialect=transcript.dialect)
            for at in range(0, len(transcript.messages), at_once):
                client.append(name, transcript.messages[at : at + at_once])
                if self._stopped.wait(seconds):
                    return False
        except ServerError:  # it stops, or has stopped
            return False
        return True


def demo_file() -> Path:
    """The session: in the package that was installed, or among the examples of a checkout."""
    package = Path(str(files("context_compactor")))
    candidates = (package / _SESSION, package.parent.parent / "examples" / _SESSION)
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise BadSetting(f"--demo: the recorded session {_SESSION} is missing. Try: reinstall context-compactor.")
    return found
