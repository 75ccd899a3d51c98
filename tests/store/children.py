"""Forked children for tests: each does its work, ends with a status, and never outlives its test."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn, Self


class Child:
    """A forked process that does some work. Both sides may say a byte and hear what the other one says."""

    def __init__(self, work: Callable[[Child], object]) -> None:
        self._ends = (os.pipe(), os.pipe())
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._do(work)

    def _do(self, work: Callable[[Child], object]) -> NoReturn:
        """Do it and end, whatever happens: a child must never go on with its parent's test."""
        try:
            work(self)
        except BaseException:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
        os._exit(0)

    def say(self, words: bytes = b".") -> None:
        """Tell the other side."""
        os.write(self._ends[self.pid == 0][1], words)

    def hear(self) -> bytes:
        """What the other side has said since; waits for it."""
        return os.read(self._ends[self.pid != 0][0], 1 << 16)

    def rest(self) -> int:
        """How many bytes a child that has ended had said and nobody has heard."""
        end = self._ends[1][0]
        os.set_blocking(end, False)
        try:
            return len(os.read(end, 1 << 16))
        except BlockingIOError:
            return 0

    def kill(self) -> None:
        """End it at once."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running():
            self.kill()
            self.wait()
        for end in (*self._ends[0], *self._ends[1]):
            os.close(end)


@contextmanager
def started(work: Callable[[Any], object], parts: Iterable[Any]) -> Iterator[list[Child]]:
    """A child for each part of the work, all let go at the same moment."""
    children: list[Child] = []

    def wait_and_work(part: Any) -> Callable[[Child], object]:
        def both(child: Child) -> None:
            child.hear()
            work(part)

        return both

    try:
        children += (Child(wait_and_work(part)) for part in parts)
        for child in children:
            child.say()
        yield children
    finally:
        for child in children:
            child.__exit__(None, None, None)
