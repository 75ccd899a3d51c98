"""Servers and workers in processes of their own, as an operator starts them: for benches that load them."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

_COMPACTOR = ("-c", "from context_compactor.cli.main import main; main()")
_ADDRESS = re.compile(r"(?:127\.0\.0\.1:|ready at )(\d+)")
_WORKS = re.compile(r"working on ()")
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.02
_SPARE_FILES = 200
_SHOWN = 4_000


class Program(Struct, frozen=True):
    """A program that runs: its process, where it listens, and what it has written."""

    pid: int
    port: int
    log: Path

    def memory(self) -> int:
        """The bytes that it has in memory now (Linux)."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def complaints(self) -> list[str]:
        """Warnings and errors that it has logged."""
        return [line for line in self.log.read_text().splitlines() if " WARNING " in line or " ERROR " in line]


@contextmanager
def new_store() -> Iterator[str]:
    """The address of a store in a file that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/compactor.db"


@contextmanager
def serving(store: str, *, workers: int = 2) -> Iterator[Program]:
    """`compactor serve` on a free port."""
    given = ("serve", "--port", "0", "--store", store, "--workers", str(workers))
    with _running((*_COMPACTOR, *given), _ADDRESS) as program:
        yield program


@contextmanager
def working(store: str, count: int, concurrency: int = 2) -> Iterator[list[Program]]:
    """So many times `compactor worker`."""
    given = ("worker", "--store", store, "--concurrency", str(concurrency))
    with ExitStack() as stack:
        yield [stack.enter_context(_running((*_COMPACTOR, *given), _WORKS)) for _ in range(count)]


@contextmanager
def module(name: str, *arguments: str) -> Iterator[Program]:
    """A module that says `ready at PORT`."""
    with _running(("-m", name, *arguments), _ADDRESS) as program:
        yield program


@contextmanager
def _running(arguments: Sequence[str], ready: re.Pattern[str]) -> Iterator[Program]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as out:
            child = subprocess.Popen([sys.executable, *arguments], stdout=out, stderr=out, env=environment)
        try:
            yield Program(child.pid, int(_awaited(child, log, ready) or 0), log)
        except BaseException:
            print(log.read_text()[-_SHOWN:], file=sys.stderr)  # it often says why
            raise
        finally:
            child.terminate()
            _end(child)


def _awaited(child: subprocess.Popen[bytes], log: Path, ready: re.Pattern[str]) -> str:
    """What the log says once the program is ready."""
    give_up = time.monotonic() + _START_SECONDS
    while (found := ready.search(log.read_text())) is None:
        if child.poll() is not None or time.monotonic() > give_up:
            raise RuntimeError(f"{child.args!r:.200} did not start")
        time.sleep(_LOOK_SECONDS)
    return found[1]


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def files_allowed(connections: int) -> int:
    """How many of these connections one process may have here, since each is an open file.

    The limit is raised as far as it goes; the programs that are started from now on have it too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = connections if soft == resource.RLIM_INFINITY else min(connections, soft - _SPARE_FILES)
    if allowed < connections:
        print(f"only {soft:,} files may be open here: {allowed:,} connections, not {connections:,}. Try: ulimit -n")
    return allowed
