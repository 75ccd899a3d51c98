"""How property tests are run: the same examples each time, without a clock or a search for the smallest one.

`HYPOTHESIS_PROFILE=more` takes some more examples of each property, `deep` takes many.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from tests.postgres import Given, Server, new_schema

# A shell that runs tests in the background has them ignore Ctrl-C, and so would every program that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

FAST = [Phase.explicit, Phase.reuse, Phase.generate]

for profile, examples in (("ci", 6), ("more", 30)):
    settings.register_profile(
        profile, deadline=None, max_examples=examples, derandomize=True, suppress_health_check=CALM, phases=FAST
    )
settings.register_profile("deep", deadline=None, max_examples=400, suppress_health_check=CALM)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
settings.load_profile(PROFILE)
if PROFILE != "deep":
    # Else examples are also made of constants in the modules that happen to be loaded, so that they are others whenever
    # the tests are shared out in another way.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_finish() -> None:
    """What was collected is there to the end: no search for garbage looks through it again, nor in a fork of this.
    And whoever makes many small things is not interrupted after every seven hundred of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture
def locked() -> Iterator[Path]:
    """A folder `locked` that cannot be opened nor written, for root neither: it becomes nobody for the test."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    (place / "locked").mkdir(mode=0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield place / "locked"
    finally:
        if is_root:
            os.seteuid(0)
        rmtree(place)


@pytest.fixture(scope="session")
def started_postgres() -> Iterator[Server]:
    """A PostgreSQL of our own, for all tests of this process."""
    server = Server()
    yield server
    server.remove()


@pytest.fixture
def own_postgres(started_postgres: Server) -> Iterator[Server]:
    """A PostgreSQL that a test may stop and start; it serves again for the next test, also when this one fails."""
    yield started_postgres
    if not started_postgres.is_running():
        started_postgres.start()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Server | Given]:
    """A PostgreSQL to work with; one for all tests."""
    given = os.environ.get("TEST_DATABASE_URL")
    server = Given(given) if given else request.getfixturevalue("started_postgres")
    yield server
    if isinstance(server, Given):
        server.remove()


@pytest.fixture
def postgres_url(postgres: Server | Given) -> str:
    """The address of a store that is not there yet, for one test."""
    return postgres.url(schema=new_schema())
