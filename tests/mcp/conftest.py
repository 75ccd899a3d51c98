"""A project in which an agent has worked."""

from __future__ import annotations

import pytest

from tests.mcp.agent import Agent, known_agent


@pytest.fixture
def agent(tmp_path, monkeypatch) -> Agent:
    """An agent whose session is known, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    return known_agent(tmp_path)
