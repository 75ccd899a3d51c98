"""`compactor` as a process of its own, copied from one that has imported everything and read the vocabulary.

These two take ten times as long as most commands. Whoever asks about the start itself, or needs a terminal that
controls the command, starts the real one instead.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

COMMAND = str(Path(sys.executable).with_name("compactor"))
_ROOT = Path(__file__).parents[1]
_SDKS = ("openai",)  # what a command imports when it asks a model, which takes as long as all the rest
_USED = (
    "context_compactor.agents.hooks",
    "context_compactor.agents.install",
    "context_compactor.agents",
    "context_compactor.cli",
)
_ONE_AT_A_TIME = Lock()
_LONGEST_SECONDS = 300


class Started:
    """A command at work."""

    def __init__(self, line: socket.socket) -> None:
        line.settimeout(_LONGEST_SECONDS)
        self._line = line.makefile("r")
        line.close()
        self.pid = int(self._line.readline())

    def wait(self) -> int:
        """Its exit code when it has ended."""
        with self._line:
            return int(self._line.readline())


def start(*arguments: str, cwd: Path, env: Mapping[str, str], streams: Sequence[int]) -> Started:
    """Start `compactor` in a folder with an environment and with these as standard input, output and error."""
    asked = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": dict(env)}).encode()
    with TemporaryFile() as order:
        order.write(asked)
        order.seek(0)
        ours, theirs = socket.socketpair()
        with theirs, _ONE_AT_A_TIME:
            socket.send_fds(_started(), [b"!"], [order.fileno(), theirs.fileno(), *streams])
        return Started(ours)


def run(*arguments: str, cwd: Path, env: Mapping[str, str], said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `compactor` in a folder with an environment and with something on standard input, until it ends."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(said)
        given.seek(0)
        streams = [each.fileno() for each in (given, out, err)]
        code = start(*arguments, cwd=cwd, env=env, streams=streams).wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([COMMAND, *arguments], code, out.read(), err.read())


@cache
def _started() -> socket.socket:
    """A line to the process that is copied, which ends when the line does."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[theirs.fileno()], **silent)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _copied(line: socket.socket) -> bool:
    """Make a copy for each that is asked for, and one that waits for it. Returns True in a copy that is to work."""
    waiting: set[int] = set()
    while True:
        called, given, _, _ = socket.recv_fds(line, 1, 5)
        if not called:
            return False
        if not (waits := os.fork()):
            line.close()
            if works := os.fork():
                for each in given[2:]:
                    os.close(each)  # who reads what the command writes waits for the end of its own copy alone
                os.write(given[1], f"{works}\n".encode())
                code = os.waitstatus_to_exitcode(os.waitpid(works, 0)[1])
                os.write(given[1], f"{code}\n".encode())
                os._exit(0)
            _become(*given)
            return True
        for each in given:
            os.close(each)
        waiting = {each for each in waiting | {waits} if os.waitpid(each, os.WNOHANG) == (0, 0)}


def _become(order: int, reply: int, *streams: int) -> None:
    os.close(reply)
    with open(order, encoding="utf-8") as file:
        asked: dict[str, Any] = json.load(file)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = [COMMAND, *asked["arguments"]]


if __name__ == "__main__":
    for package in map(import_module, _USED):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(found.name)
    for name in _SDKS:
        import_module(name)
    from context_compactor.start import main
    from context_compactor.tokens.counting import counter_for

    counter_for(None).count("qzxjkwvy")  # the first word that is no token by itself takes longest
    gc.collect()
    gc.freeze()
    if _copied(socket.socket(fileno=int(sys.argv[1]))):
        main()
