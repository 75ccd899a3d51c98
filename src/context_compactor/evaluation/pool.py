"""Work spread over processes that share what was loaded before they began."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from context_compactor.errors import CompactorError

Task = TypeVar("Task")
Shared = TypeVar("Shared")
Result = TypeVar("Result")

_ENDS = (signal.SIGINT, signal.SIGTERM)
_shared: list[Any] = []


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    work: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task], jobs: int
) -> Iterator[Result]:
    """`work(shared, task)` for each task, in order. `shared` is inherited by a fork, not copied through a pipe."""
    if jobs < 2 or not tasks:
        yield from (work(shared, task) for task in tasks)
        return
    before, finished, answer = set(active_children()), False, _answer_ends()
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), get_context(_start()), _remember, (work, shared))
    try:
        with _ends_held_back():
            results = pool.map(_work, tasks)
        yield from results
        finished = True
    except BrokenProcessPool:
        raise CompactorError("a worker process was killed, perhaps because memory ran out. Try: --jobs 1.") from None
    finally:
        if not finished:  # an error or Ctrl-C: what is still running is of no use to anybody
            for child in set(active_children()) - before:
                child.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        if answer is not None:
            signal.signal(signal.SIGTERM, answer)


def _answer_ends() -> Any:
    """Be ended like an error, so that no worker outlives us. What answered before; None outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


@contextmanager
def _ends_held_back() -> Iterator[None]:
    """While workers begin, an end from outside waits: amid a fork it would be lost, or leave a worker nobody knows."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start() -> str:
    """How workers begin: a tokenizer that has worked here has threads, and its copy in a fork would wait for them."""
    return "fork" if hasattr(os, "fork") and "splintr" not in sys.modules else "spawn"


def _remember(*things: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of us; the parent alone answers it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)  # what came since this worker began
    _shared[:] = things


def _work(task: object) -> Any:
    work, shared = _shared
    return work(shared, task)
