"""Work spread over forked processes that share what was loaded before the fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import Any, TypeVar

Task = TypeVar("Task")
Shared = TypeVar("Shared")
Result = TypeVar("Result")

_shared: list[Any] = []


def spread(
    work: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task], jobs: int
) -> Iterator[Result]:
    """`work(shared, task)` for each task, in order. `shared` is inherited, never copied through a pipe."""
    if jobs < 2 or len(tasks) < 2:
        yield from (work(shared, task) for task in tasks)
        return
    with get_context("fork").Pool(jobs, _remember, (work, shared)) as pool:
        yield from pool.imap(_work, tasks, chunksize=1)


def _remember(*things: object) -> None:
    _shared[:] = things


def _work(task: object) -> Any:
    work, shared = _shared
    return work(shared, task)
