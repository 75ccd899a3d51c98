"""Proxies that run: in this process on a loop of its own, or as a command in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil

from context_compactor import Session
from context_compactor.proxy.relay import ProxyConfig
from context_compactor.proxy.server import ProxyOptions, running_proxy
from context_compactor.store.connect import connect
from context_compactor.store.proxied import ProxiedRequest
from context_compactor.store.service_store import service_store_of
from tests.waiting import PATIENCE, wait_for

Raw = dict[str, Any]


class Recorded(msgspec.Struct, frozen=True):
    """What a store has of what passed: the histories of all sessions by their ids, and every exchange."""

    histories: dict[str, list[Raw]]
    rows: list[ProxiedRequest]

    @property
    def only(self) -> list[Raw]:
        """The history of the one session that there is."""
        (history,) = self.histories.values()
        return history


class Place:
    """A folder with a store in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / ".compactor"
        self.store = f"sqlite:///{self.home}/compactor.db"

    def recorded(self) -> Recorded:
        """What is in the store now."""
        with closing(connect(self.store)) as store:
            rows = list(service_store_of(store).proxied.requests())
            histories = {}
            for row in list(store.sessions()):
                with Session.open(row.id, store=self.store, branch=row.id) as session:
                    histories[row.id] = list(session.history())
        return Recorded(histories, rows)

    def rows(self) -> list[ProxiedRequest]:
        with closing(connect(self.store)) as store:
            return list(service_store_of(store).proxied.requests())

    def journal(self) -> list[Path]:
        """The files of exchanges that are not recorded yet."""
        return sorted(path for path in (self.home / "proxy").glob("*/*") if path.name != "lock")


@contextmanager
def proxied(upstream: str, place: Place, *, holdout: float = 0.0, **config: Any) -> Iterator[str]:
    """A proxy in this process; gives its address. At the end of the block everything is recorded."""
    options = ProxyOptions(config=ProxyConfig(upstream=upstream, **config), store=place.store, port=0, holdout=holdout)
    is_ready, address = threading.Event(), [""]
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    problems: list[BaseException] = []

    async def run() -> None:
        async with running_proxy(options) as address[0]:
            is_ready.set()
            await stop.wait()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        except BaseException as error:  # noqa: BLE001  the test shall know
            problems.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
            is_ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert is_ready.wait(PATIENCE)
        if problems:
            raise problems[0]
        yield address[0]
    finally:
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(stop.set)
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as place:
        return int(place.getsockname()[1])


class ProxyCommand:
    """`compactor proxy` in a process of its own, that can be killed and started again at the same address."""

    def __init__(
        self, upstream: str, place: Place, *options: str, env: Mapping[str, str] | None = None, prefix: str = ""
    ) -> None:
        self.place = place
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = place.folder / "proxy.log"
        given = ("--port", str(self.port), "--upstream", upstream, "--store", place.store, "--holdout", "0")
        run = f"{prefix}\nfrom context_compactor.cli.main import main; main()"
        self._command = [sys.executable, "-c", run, "proxy", *given, *options]
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
        self._env |= env or {}
        self._child: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def start(self) -> Self:
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start it, and do not wait until it listens."""
        self._starts = self.said.count("listening at") + 1
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(
                self._command, stdout=out, stderr=out, env=self._env, cwd=self.place.folder, stdin=subprocess.DEVNULL
            )

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self._child is not None
            assert self._child.poll() is None, self.said
            return self.said.count("listening at") >= self._starts

        try:
            wait_for(is_ready, lambda: self.said)
        except AssertionError:
            self.kill()
            raise

    def recorder(self) -> psutil.Process | None:
        """The process that records, when there is one."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children():
                with suppress(psutil.NoSuchProcess):
                    if "context_compactor.proxy.recorder" in child.cmdline() and child.status() != "zombie":
                        return child
        return None

    def kill_recorder(self) -> bool:
        recorder = self.recorder()
        if recorder is None:
            return False
        with suppress(psutil.NoSuchProcess):
            recorder.kill()
        return True

    def kill(self) -> None:
        """kill -9, as the kernel does it when memory is out."""
        if self._child is not None:
            self._child.kill()
            self._child.wait(PATIENCE)
            self._child = None

    def stop(self) -> None:
        """Ctrl-C: all that passed is recorded when it has ended."""
        if self._child is not None:
            self._child.send_signal(signal.SIGINT)
            try:
                self._child.wait(PATIENCE)
            finally:
                self.kill()
