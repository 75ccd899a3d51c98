"""The first thing a newcomer runs."""

from __future__ import annotations

import re
import runpy
import socket
from pathlib import Path

import pytest

from context_compactor.dialects.transcripts.reader import read_transcript

EXAMPLES = Path(__file__).parents[1] / "examples"


class Lines:
    """Where a demo writes to: a list."""

    def __init__(self) -> None:
        self.text = ""

    def print(self, text: str = "", /, *, style: str | None = None) -> None:
        self.text += text + "\n"


@pytest.fixture(scope="module")
def shown() -> str:
    out = Lines()
    runpy.run_path(str(EXAMPLES / "demo.py"))["tour"](out)
    return out.text


def test_the_demo_shows_usage_decisions_report_reference_recall_and_what_to_try_next(shown):
    assert shown.count("in all") == 2
    assert re.search(r"turn \d+ +(summarize|reference|drop)", shown)
    assert "Conversation compacted: " in shown
    assert "[Context record." in shown
    assert re.search(r'>>> result\.recall\("file_\d{3}"\)', shown)
    assert shown.count(".venv/bin/compactor ") == 4


def test_the_demo_saves_at_least_half_and_misses_nothing(shown):
    before, after = (int(n.replace(",", "")) for n in re.findall(r"Tokens: ([\d,]+) → ([\d,]+)", shown)[0])
    assert after * 2 < before
    assert ", 0 missing of " in shown


def test_the_demo_needs_no_network(monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError("the demo opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    runpy.run_path(str(EXAMPLES / "demo.py"))["tour"](Lines())


def test_the_shipped_session_says_where_it_comes_from():
    transcript = read_transcript(EXAMPLES / "demo_session.jsonl.gz")
    notes = (EXAMPLES / "README.md").read_text()
    assert transcript.extra["licence"] == "MIT"
    for origin in (transcript.extra["source"], transcript.extra["commit"], transcript.extra["path"]):
        assert origin in notes
