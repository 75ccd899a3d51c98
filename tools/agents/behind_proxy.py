"""An agent of a live check behind `compactor proxy`, with a tap on both sides of it, and what the store has of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor import Session
from context_compactor.store.connect import connect
from context_compactor.store.proxied import ProxiedRequest
from context_compactor.store.service_store import service_store_of
from tools.agents.home import Home
from tools.agents.scripted import Lane, Request, ScriptedModel
from tools.agents.tap import Exchange, Tap, tapped

_ADDRESS = re.compile(r"listening at (http://[^,\s]+)")
_START_SECONDS, _END_SECONDS, _LOOK_SECONDS = 30, 60, 0.05


class ProxyCommand:
    """`compactor proxy` in the project of a home, at the same port each time it is started."""

    def __init__(self, home: Home, upstream: str, *options: str) -> None:
        self._home = home
        self._options = ("--upstream", upstream, *options)
        self._port = "0"
        self._running: subprocess.Popen[bytes] | None = None
        self._log = home.folder / "proxy.log"
        self._log.touch()
        self.address = ""
        self.start()

    @property
    def said(self) -> str:
        """What it has printed, all the times that it ran."""
        return self._log.read_text()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [*self._home.ours("proxy"), "--port", self._port, *self._options]
        before = len(self.said)
        with self._log.open("a") as log:
            self._running = subprocess.Popen(
                command, cwd=self._home.project, env=self._home.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        give_up = time.monotonic() + _START_SECONDS
        while (found := _ADDRESS.search(self.said, before)) is None:
            if self._running.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"the proxy does not start: {self.said[before:]}")
            time.sleep(_LOOK_SECONDS)
        self.address = found[1]
        self._port = self.address.rpartition(":")[2]

    def stop(self) -> int:
        """End it as its user does; its exit code. Everything is recorded then."""
        assert self._running is not None
        self._running.send_signal(signal.SIGTERM)
        return self._running.wait(_END_SECONDS)

    def kill(self, *, recorder: bool) -> None:
        """Kill it in the middle of its work, with its recorder or without."""
        assert self._running is not None
        found = running_with(str(self._home.folder), "context_compactor.proxy.recorder") if recorder else []
        for pid in (self._running.pid, *found):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._running.wait()


def running_with(*words: str) -> list[int]:
    """The ids of what runs on this machine with all these words in its command or in the folder that it works in."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and int(folder.name) != os.getpid():
                command = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                text = f"{command} {folder.joinpath('cwd').readlink()}"
                found += [int(folder.name)] * all(word in text for word in words)
    return found


class Recorded(Struct, frozen=True):
    """What a store has of what passed: every request, and the histories of all sessions by their ids."""

    rows: list[ProxiedRequest]
    histories: dict[str, list[dict[str, Any]]]

    def of_kind(self, kind: str) -> list[ProxiedRequest]:
        """The requests of a kind."""
        return [row for row in self.rows if row.kind == kind]


def recorded(home: Home) -> Recorded:
    """What the store of the project has."""
    url = f"sqlite:///{home.project}/.compactor/compactor.db"
    with closing(connect(url)) as store:
        rows = list(service_store_of(store).proxied.requests())
        histories = {}
        for row in list(store.sessions()):
            with Session.open(row.id, store=url, branch=row.id) as session:
                histories[row.id] = list(session.history())
    return Recorded(rows, histories)


class Behind:
    """A proxy with a tap on the agent's side, where the agent calls, and one on the model's side."""

    def __init__(self, home: Home, command: ProxyCommand, front: Tap, back: Tap, model: ScriptedModel) -> None:
        self.home = home
        self.command = command
        self.front = front
        self.back = back
        self.model = model
        self.ends: list[subprocess.CompletedProcess[str]] = []
        self.deaths = 0
        self._is_there = threading.Event()
        self._is_there.set()

    @property
    def address(self) -> str:
        """Where the agent calls."""
        return self.front.address

    @property
    def main(self) -> list[Request]:
        """What the model was asked by the agent itself."""
        return [request for request in self.model.requests if request.lane == "main"]

    @property
    def lanes(self) -> list[Lane]:
        """Who has asked the model, in order."""
        return [request.lane for request in self.model.requests]

    def restart(self) -> None:
        """Stop the proxy, and start it again on the same port and store."""
        self.command.stop()
        self.command.start()

    def dies_at(self, number: int, *, recorder: bool) -> None:
        """Kill the proxy when so many requests have reached the model's side, and start it again at once."""

        def before(posted: int) -> bool:
            if posted != number:
                return True
            self._is_there.clear()
            self.command.kill(recorder=recorder)
            self.command.start()
            self.deaths += 1
            self._is_there.set()
            return False

        self.back.before = before

    def wait(self) -> None:
        """Wait until a proxy that was killed is there again."""
        self._is_there.wait(_START_SECONDS)

    def report(self) -> dict[str, Any]:
        """What `compactor proxy report` says, both sides together."""
        return dict(json.loads(self.home.compactor("proxy", "report", "--json").stdout)["total"])


@contextmanager
def behind_proxy(home: Home, address: str, model: ScriptedModel, *options: str) -> Iterator[Behind]:
    """A proxy before a scripted model for the length of the block; `options` are the proxy's."""
    with tapped(address) as back:
        command = ProxyCommand(home, back.address, *options)
        try:
            with tapped(command.address) as front:
                yield Behind(home, command, front, back, model)
        finally:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                command.stop()


def not_passed_on(front: Sequence[Exchange], back: Sequence[Exchange]) -> list[Exchange]:
    """What was sent to a proxy and did not come out on its other side with the same bytes, both ways."""
    left = [exchange.sent for exchange in back]
    missing = []
    for exchange in front:
        if exchange.sent in left:
            left.remove(exchange.sent)
        else:
            missing.append(exchange)
    return missing
