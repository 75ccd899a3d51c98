"""Which session of an agent a process belongs to: hooks and tools of one agent have the agent among their ancestors."""

from __future__ import annotations

import os
from pathlib import Path

from context_compactor.agents.places import HOME
from context_compactor.agents.tally import Row, open_tally

_MOST = 6


def ancestors() -> list[str]:
    """The processes above this one, the nearest first, each by its number and when it began."""
    found: list[str] = []
    pid = os.getppid()
    while pid > 1 and len(found) < _MOST:
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


def current_row(root: str, processes: list[str] | None = None) -> Row | None:
    """The session of the agent that runs this process, else the one used last in the project; None when there is none.

    Sub-agents are never meant.
    """
    rows = [row for row in known_rows(root) if "/" not in row.key]
    for above in ancestors() if processes is None else processes:  # two agents may share a terminal, further up
        found = next((row for row in rows if above in row.processes.split()), None)
        if found is not None:
            return found
    return rows[0] if rows else None


def known_rows(root: str) -> list[Row]:
    """All sessions of agents in a project, the one used last first."""
    tally = open_tally(os.path.join(root, HOME))
    if tally is None:
        return []
    try:
        return list(tally.rows())
    finally:
        tally.close()
