"""A place and a session for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hooks.place import Place, Talk


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def talk(place: Place) -> Talk:
    return Talk(place)
