from __future__ import annotations

import os

import pytest

from context_compactor.errors import BadInput, CompactorError
from context_compactor.evaluation.pool import cores, spread


def add(shared, task):
    return shared + task


def fail(shared, task):
    raise BadInput(f"task {task}")


def end(shared, task):
    os._exit(9)


@pytest.mark.parametrize("jobs", [1, 3])
def test_results_come_in_order(jobs):
    assert list(spread(add, 10, range(20), jobs)) == list(range(10, 30))


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_a_worker_is_the_callers(jobs):
    with pytest.raises(BadInput, match="task 0"):
        list(spread(fail, None, range(4), jobs))


def test_a_worker_that_is_ended_from_outside_is_told_not_waited_for():
    with pytest.raises(CompactorError, match="--jobs 1"):
        list(spread(end, None, range(4), 2))


def test_work_that_nobody_waits_for_is_ended():
    results = spread(add, 1, range(100), 2)
    assert next(results) == 1
    results.close()


def test_there_is_at_least_one_core():
    assert cores() >= 1
