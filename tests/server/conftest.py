"""A server for each test that asks for one, and one for all tests of a module that do not mind sharing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.running import Running, running


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[Running]:
    monkeypatch.chdir(tmp_path)
    with running(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("shared")) as made:
        yield made
