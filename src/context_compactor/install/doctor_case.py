"""What a check-up looks at: one project, its agents, and the settings that hold there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from context_compactor.agents.known import Agent
from context_compactor.agents.tally import Row
from context_compactor.install.program import Command
from context_compactor.install.targets import Place
from context_compactor.settings import Settings


class Case(Struct, frozen=True):
    """A project in `root`, seen with the environment `env`.

    With `is_named` somebody has asked for just this agent. `settings` are None when they cannot be read. `rows` are
    what hooks know of the sessions that are looked at, the one used last first; `command` runs this program.
    """

    env: Mapping[str, str]
    root: Path
    agents: tuple[Agent, ...]
    is_named: bool
    settings: Settings | None
    rows: list[Row]
    command: Command
    now: float

    @property
    def user(self) -> Place:
        """The user's own settings."""
        return Place(self.env, self.root, is_project=False)

    @property
    def project(self) -> Place:
        """The settings of the project."""
        return Place(self.env, self.root, is_project=True)

    def rows_of(self, agent: Agent) -> list[Row]:
        """What is known of the sessions of an agent itself; sub-agents are left out."""
        return [row for row in self.rows if row.agent == agent.name and "/" not in row.key]
