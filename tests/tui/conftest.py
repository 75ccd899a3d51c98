"""Each test has a folder of its own, and pictures of screens are compared with those that are kept."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.places import SHOWN, screen_text

_KEPT = Path(__file__).parent / "snapshots"
_NAMES = re.compile(r"terminal-\d+")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The folder that the test works in, with no settings around."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "COMPACTOR_WINDOW", "COMPACTOR_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_unexpected() -> Iterator[None]:
    """An app lives on after an error that nobody expected, so the test has to ask for them."""
    SHOWN.clear()
    yield
    for error in (error for app in SHOWN for error in app.unexpected):
        raise AssertionError("something unexpected went wrong in the app") from error


@pytest.fixture
def picture() -> Callable[[Pilot[None], str], None]:
    """Compares the screen with the picture of this name."""

    def compare(pilot: Pilot[None], name: str) -> None:
        width, height = pilot.app.size
        same_picture(pilot, _KEPT / f"{name}-{width}x{height}.svg")

    return compare


def same_picture(pilot: Pilot[None], file: Path) -> None:
    """The screen is what this file shows. `RENEW=1` writes it anew; look at it before it is kept."""
    now = _NAMES.sub("terminal", pilot.app.export_screenshot(simplify=True))
    if os.environ.get("RENEW"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(now, encoding="utf-8")
    assert file.exists(), f"there is no picture {file.name}. Try: RENEW=1, and look at it."
    kept = file.read_text(encoding="utf-8")
    assert now == kept, f"{file.name} is another now; RENEW=1 writes it anew. The screen:\n{screen_text(pilot)}"
