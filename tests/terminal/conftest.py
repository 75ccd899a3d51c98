"""Terminals for a test, each in a folder of its own with a short name: a socket's path may not be long."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from tests.llm.provider import Provider
from tests.terminal.terminal import COMPACTOR, Terminal

Open = Callable[..., Terminal]


@pytest.fixture
def open_terminal(tmp_path) -> Iterator[Open]:
    """Opens terminals in which `compactor tui` runs with these arguments, in the folder of the test."""
    opened: list[tuple[Terminal, Path]] = []

    def open_one(*arguments: object, command: tuple[object, ...] = (COMPACTOR, "tui"), **options: Any) -> Terminal:
        folder = Path(tempfile.mkdtemp(prefix="tui-"))
        terminal = Terminal(folder, options.pop("place", tmp_path), [*command, *arguments], **options)
        opened.append((terminal, folder))
        return terminal

    yield open_one
    for terminal, folder in opened:
        terminal.close()
        rmtree(folder, ignore_errors=True)


@pytest.fixture
def provider(tmp_path, monkeypatch) -> Iterator[Provider]:
    """A model to talk to, for a test that works in its own folder."""
    monkeypatch.chdir(tmp_path)
    serving = Provider()
    yield serving
    serving.close()
