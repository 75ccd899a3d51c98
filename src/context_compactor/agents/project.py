"""The project an agent works in: the settings that hold there, and the agent's sessions that hooks know."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from context_compactor.agents.hook_state import AgentSessionRow, open_hook_state
from context_compactor.agents.paths import HOME
from context_compactor.errors import BadSetting
from context_compactor.settings import LoadedSettings, Settings, load_settings
from context_compactor.store.connect import sqlite_path
from context_compactor.store_urls import is_postgres


def project_settings(root: str, store: str | None = None) -> Settings:
    """The settings that hold in a project; `BadSetting` when its file sends the conversation somewhere else."""
    loaded = load_settings({"store": store})
    refuse_foreign_store(root, loaded)
    return loaded.settings


def refuse_foreign_store(root: str, loaded: LoadedSettings) -> None:
    """Let a project's own file name no store but a SQLite file within the project."""
    url = loaded.settings.store
    origin = loaded.origins["store"]
    if not origin.endswith("config.toml"):
        return
    path = None if is_postgres(url) else sqlite_path(url)
    inside = os.path.realpath(root)
    if path is None or os.path.commonpath([inside, os.path.realpath(os.path.join(root, path))]) != inside:
        raise BadSetting(
            f"store: {origin} of a project may only name a SQLite file inside the project, "
            "since it may come from anybody. "
            "Try: COMPACTOR_STORE in your own environment."
        )


_MOST_ANCESTORS = 6


def ancestor_processes() -> list[str]:
    """The processes above this one, the nearest first, each by its number and when it began."""
    found: list[str] = []
    pid = os.getppid()
    while pid > 1 and len(found) < _MOST_ANCESTORS:
        fields = _stat(pid)
        found.append(f"{pid}:{fields[19]}" if fields else str(pid))
        pid = int(fields[1]) if fields else 0
    return found


def _stat(pid: int) -> list[str]:
    """What the system says of a process behind its name; nothing where there is no `/proc`."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def current_session_row(root: str, processes: list[str] | None = None) -> AgentSessionRow | None:
    """The session of the agent that runs this process, else the one used last in the project; None when there is none.

    Sub-agents are never meant.
    """
    rows = [row for row in known_session_rows(root) if "/" not in row.key]
    for above in (
        ancestor_processes() if processes is None else processes
    ):  # two agents may share a terminal, further up
        found = next((row for row in rows if above in row.processes.split()), None)
        if found is not None:
            return found
    return rows[0] if rows else None


def known_session_rows(root: str) -> list[AgentSessionRow]:
    """All sessions of agents in a project, the one used last first."""
    state = open_hook_state(os.path.join(root, HOME))
    if state is None:
        return []
    with closing(state):
        return list(state.rows())
