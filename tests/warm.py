"""`compactor` as a process of its own, copied from one that has imported everything and read the vocabulary.

These two take ten times as long as most commands. Whoever asks about the start itself, about signals or terminals
starts the real command instead.
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
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

COMMAND = str(Path(sys.executable).with_name("compactor"))
_ROOT = Path(__file__).parents[1]
_USED = (
    "context_compactor.agents.hooks",
    "context_compactor.agents.install",
    "context_compactor.agents",
    "context_compactor.cli",
)
_ONE_AT_A_TIME = Lock()
_LONGEST_SECONDS = 300


def run(*arguments: str, cwd: Path, env: Mapping[str, str], said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `compactor` in a folder with an environment and with something on standard input, until it ends."""
    asked = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": dict(env)}).encode()
    with TemporaryFile() as order, TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        for file, content in ((order, asked), (given, said)):
            file.write(content)
            file.seek(0)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, _ONE_AT_A_TIME:
                socket.send_fds(_started(), [b"!"], [each.fileno() for each in (order, theirs, given, out, err)])
            ours.settimeout(_LONGEST_SECONDS)
            code = int(ours.recv(10))
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
                code = os.waitstatus_to_exitcode(os.waitpid(works, 0)[1])
                os.write(given[1], str(code).encode())
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
    from context_compactor.start import main
    from context_compactor.tokens.counting import counter_for

    counter_for(None).count("qzxjkwvy")  # the first word that is no token by itself takes longest
    gc.collect()
    gc.freeze()
    if _copied(socket.socket(fileno=int(sys.argv[1]))):
        main()
