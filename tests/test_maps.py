"""The maps from promises and complaints to tests lead to tests that are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MAPS = ["failures/README.md", "jobs/README.md"]


@cache
def defined() -> set[str]:
    """The names of all tests."""
    texts = (path.read_text(encoding="utf-8") for path in HERE.rglob("test_*.py"))
    return {name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE)}


@pytest.mark.parametrize("name", MAPS)
def test_every_test_that_a_map_names_is_there(name: str):
    text = (HERE / name).read_text(encoding="utf-8")
    named = {word for word in re.findall(r"`(test_\w+)`", text) if not (HERE / "failures" / f"{word}.py").exists()}
    assert len(named) > 20
    assert named <= defined()


@pytest.mark.parametrize("name", MAPS)
def test_every_file_that_a_map_names_is_there(name: str):
    text = (HERE / name).read_text(encoding="utf-8")
    files = re.findall(r"`((?:tests/)?[\w/]+\.py)`", text)
    folder = (HERE / name).parent
    assert not [each for each in files if not ((folder / each).exists() or (HERE.parent / each).exists())]
