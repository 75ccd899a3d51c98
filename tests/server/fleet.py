"""Servers and workers as real processes on one store: started, stopped in the middle of anything, killed, counted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from context_compactor.store.jobs import JobTable
from context_compactor.store.rows import Job
from tests.waiting import PATIENCE, wait_for

_COMMAND = [sys.executable, "-c", "from context_compactor.cli.main import main; main()"]
_PAUSE = 0.02
# As long as a commit that was on its way may still take to arrive.
_ON_ITS_WAY = 0.1


class Machine:
    """One process of the program. What it says goes to a file, so that nobody has to listen."""

    def __init__(self, name: str, arguments: list[str], folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self._log.touch()
        self._arguments = arguments
        self._folder = folder
        self._said_before = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def said(self) -> str:
        """Everything it has said, before it was killed too."""
        return self._log.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_there(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended: {self.said}"
        return self._process

    def start(self) -> Self:
        """Begin, without waiting for it."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
        self._said_before = len(self.said)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, *self._arguments], cwd=self._folder, env=own, stdout=log, stderr=log
            )
        return self

    def wait_until_ready(self) -> None:
        """It takes requests, or looks for jobs."""
        wait_for(lambda: self._running and "Ctrl-C stops" in self.said[self._said_before :], lambda: self.said)

    def pause(self) -> None:
        """Nothing of it goes on until `go_on`."""
        self._running.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self._running.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        process = self._running
        process.kill()
        assert process.wait() == -signal.SIGKILL

    def stop(self) -> None:
        """Have it finish what it has begun."""
        process = self._running
        process.terminate()
        assert process.wait(PATIENCE) == 0, self.said

    def remove(self) -> None:
        """Whatever it does, it does no longer."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Fleet:
    """Machines on one store; none of them outlives the test."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self.servers: list[Machine] = []
        self.workers: list[Machine] = []
        self.urls: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in (*self.servers, *self.workers):
            machine.remove()

    def start(self, *, servers: int, workers: int, workers_in_server: int = 0) -> None:
        """Begin with so many of each; all of them are there when this returns."""
        for at in range(servers):
            port = _free_port()
            given = ["serve", "--port", str(port), "--workers", str(workers_in_server), "--store", self._store]
            self.servers.append(Machine(f"server-{at}", given, self._folder))
            self.urls.append(f"http://127.0.0.1:{port}")
        for at in range(workers):
            self.workers.append(Machine(f"worker-{at}", ["worker", "--store", self._store], self._folder))
        self.servers[0].start().wait_until_ready()  # it makes the tables, without which a worker does not begin
        for machine in (*self.servers[1:], *self.workers):
            machine.start()
        for machine in (*self.servers[1:], *self.workers):
            machine.wait_until_ready()

    def kill_one_at_work(self, jobs: JobTable, among: list[Machine]) -> Job:
        """Kill a process that is in the middle of a job; the job."""
        killed: list[Job] = []

        def kill() -> bool:
            for machine in among:
                killed.extend(_kill_if_at_work(jobs, machine))
                if killed:
                    return True
            return False

        wait_for(kill)
        return killed[0]

    def stop(self) -> None:
        """Have all of them end as they should, and look that nothing went wrong that nobody had foreseen."""
        for machine in (*self.workers, *self.servers):
            if machine.is_there:
                machine.stop()
            assert "Traceback" not in machine.said, machine.said


def _kill_if_at_work(jobs: JobTable, machine: Machine) -> list[Job]:
    """The jobs that a process was doing when it was killed; it is not when it does none."""
    if not machine.is_there or not _held_by(jobs, machine):
        return []
    machine.pause()
    time.sleep(_ON_ITS_WAY)
    held = _held_by(jobs, machine)
    if held:
        machine.kill()
    else:
        machine.go_on()
    return held


def _held_by(jobs: JobTable, machine: Machine) -> list[Job]:
    mine = f"{socket.gethostname()}:{machine.pid}:"
    return [job for job in jobs.newest(states=["running"]) if job.worker.startswith(mine)]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
