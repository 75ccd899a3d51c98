"""How long something takes: the best of several times, since whatever else runs only makes it slower."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """The shortest time that some work took."""
    best = float("inf")
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
