"""A project in which an agent has worked."""

from __future__ import annotations

import pytest

from context_compactor.agents.current import ancestors
from tests.mcp.agent import Agent, talk


@pytest.fixture
def agent(tmp_path, monkeypatch) -> Agent:
    """An agent whose session is known to its hooks; it is the program of the test itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    agent = Agent(tmp_path, "lamp")
    agent.write(talk())
    agent.follow()
    agent.is_run_by(*ancestors())
    return agent
