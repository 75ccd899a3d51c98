"""The stores on which the engine must keep its promises. Another one joins by an entry in `KINDS` and in `STORES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.jobs.place import Place, Ticking
from tests.postgres import STORES

KINDS: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "sqlite": lambda request: f"sqlite:///{request.getfixturevalue('tmp_path') / 'sessions.db'}",
    "postgres": lambda request: request.getfixturevalue("postgres_url"),
}
"""The address of a new store of each kind."""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    return KINDS[request.param](request)


@pytest.fixture
def place(url: str) -> Iterator[Place]:
    """A new store, with the clock of the wall."""
    opened = Place(url)
    yield opened
    opened.close()


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def still(url: str, clock: Ticking) -> Iterator[Place]:
    """A new store whose clock a test moves."""
    opened = Place(url, clock)
    yield opened
    opened.close()
