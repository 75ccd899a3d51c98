"""Deletes an agent's session with those of its sub-agents, and what hooks remember of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from context_compactor.agents.hook_state import open_hook_state
from context_compactor.agents.log_import import LOGS_NOTE
from context_compactor.agents.paths import session_key
from context_compactor.errors import CompactorError
from context_compactor.handoff.protocol import read_state as read_orchestrator
from context_compactor.protocols import Store
from context_compactor.sessions.handoff import ORCHESTRATOR
from context_compactor.sessions.lifecycle import branch_rows, clear_deleted, delete_from
from context_compactor.sessions.project import project_of
from context_compactor.sessions.state import read_session_state
from context_compactor.store.rows import SessionRow

_AT_ONCE = 200


def with_subagents(store: Store, session_id: str) -> list[str]:
    """A session, which must be there, with its branches and those of its sub-agents.

    Their names begin with its own, but so do those of a server's namespace. So only those count that the session has
    called itself, or that were imported from the logs of an agent.
    """
    row = store.session(session_id)
    called = _called_subagents(row)
    return [
        session_id,
        *(each.id for each in branch_rows(store, session_id)),
        *(
            each.id
            for each in _sessions_below(store, session_id)
            if each.id in called or _is_imported(row) or _is_imported(each)
        ),
    ]


def _sessions_below(store: Store, session_id: str) -> Iterator[SessionRow]:
    begin = after = session_key(session_id, "/")[:-1]
    while rows := store.sessions(limit=_AT_ONCE, after=after):
        for row in rows:
            if not row.id.startswith(begin):
                return
            yield row
        after = rows[-1].id


def _is_imported(row: SessionRow) -> bool:
    return LOGS_NOTE in read_session_state(row.state).notes


def _called_subagents(row: SessionRow) -> set[str]:
    stored = read_session_state(row.state).notes.get(ORCHESTRATOR)
    try:
        agents = read_orchestrator(stored).subagents.agents if isinstance(stored, str) else ()
    except CompactorError:  # of another version of this program
        return set()
    return {session_key(row.id, agent.id) for agent in agents}


def delete_sessions(store: Store, url: str, session_ids: Sequence[str]) -> None:
    """Delete sessions of the store at an address, each with all that is kept of it in the store's project."""
    project = project_of(url)
    for session_id in session_ids:
        delete_from(store, session_id, project=project)
        state = open_hook_state(str(project.home)) if project else None
        if state is not None:
            with closing(state):
                row = state.find(session_id)
                state.remove(session_id)
            log = Path(row.transcript) if row else Path()
            if project and log.parent == Path(project.home) / "logs":  # of an agent that keeps no log itself
                log.unlink(missing_ok=True)
    clear_deleted(store)
