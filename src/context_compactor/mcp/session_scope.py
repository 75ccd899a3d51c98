"""Which session a call means: that of the calling agent, or one of its project by name; never any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.project import (
    ancestor_processes,
    current_session_row,
    known_session_rows,
    project_settings,
)
from context_compactor.agents.sync import AgentLog, synced_session
from context_compactor.errors import CompactorError, UnknownReference, UnknownSession
from context_compactor.mcp.tools import ToolContext
from context_compactor.sessions.core import Core
from context_compactor.sessions.project import is_own_store
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import check_id
from context_compactor.settings import Settings
from context_compactor.store.connect import connect, sqlite_path
from context_compactor.store_urls import is_postgres

T = TypeVar("T")
_NOT_TIED = "No hook has tied a session to this agent: this is the one used last in the project."
_BRANCH_MARK = "~"
_PART_OF = (_BRANCH_MARK, "/")


class OpenedSession(Struct, frozen=True):
    """A session that is open and up to date. `row` is what hooks know of it, `note` why it may be another or older."""

    session: Session
    core: Core
    row: AgentSessionRow | None
    settings: Settings
    note: str


@contextmanager
def opened_session(context: ToolContext, wanted: str = "") -> Iterator[OpenedSession]:
    """The session that is meant, up to date; `UnknownSession` says what to do when there is none."""
    settings = project_settings(context.root, context.store)
    if wanted:
        check_id(wanted)
    name, row, note = _find(context, wanted, settings.store)
    if row is not None:
        name, problem = _sync(context, row, settings)
        note = problem or note
    if not _has(settings.store, name):
        raise _unknown(context, wanted or context.session or "")
    with Session.open(name, store=settings.store, branch=name) as session:
        yield OpenedSession(session, _core(session), row, settings, note)


def in_any_branch(opened: OpenedSession, look: Callable[[Core], T]) -> T:
    """What a look at the session finds, else at the same session before the user went back and took another way."""
    try:
        return look(opened.core)
    except UnknownReference:
        for name in _earlier_branches(opened.row):
            if _has(opened.settings.store, name):
                with (
                    Session.open(name, store=opened.settings.store, branch=name) as session,
                    suppress(UnknownReference),
                ):
                    return look(_core(session))
        raise


def _core(session: Session) -> Core:
    return session._core  # what looks beside the verbs of a session works with its core


def _find(context: ToolContext, wanted: str, store: str) -> tuple[str, AgentSessionRow | None, str]:
    """The name of a session, what hooks know of it, and whether it may be another than the one that is meant."""
    if wanted and context.session and not _belongs(wanted, context.session):
        raise _unknown(context, wanted)
    name = wanted or context.session or ""
    if not name:
        return _current(context, store)
    rows = known_session_rows(context.root)
    row = next((row for row in rows if name in (row.key, row.session)), None)
    is_ours = (
        row
        or name == context.session
        or any(_belongs(name, row.key) for row in rows)
        or is_own_store(store, Path(context.root))
    )
    if not is_ours:
        raise _unknown(context, wanted)
    return name, row, ""


def _current(context: ToolContext, store: str) -> tuple[str, AgentSessionRow | None, str]:
    caller = next((row for row in known_session_rows(context.root) if row.key == context.caller_session), None)
    if caller is not None:
        return caller.session or caller.key, caller, ""
    # The nearest process decides: two agents in one terminal have all those above them in common.
    for above in ancestor_processes():
        row = current_session_row(context.root, [above])
        if row is not None and above in row.processes.split():
            return row.session or row.key, row, ""
    row = current_session_row(context.root, [])
    if row is not None:
        return row.session or row.key, row, _NOT_TIED
    name = _used_last(store) if is_own_store(store, Path(context.root)) else ""
    if not name:
        raise _unknown(context, "")
    return name, None, _NOT_TIED


def _belongs(name: str, session: str) -> bool:
    """Whether a name is that of a session, of another way of it, or of a sub-agent of it."""
    return name == session or any(name.startswith(session + mark) for mark in _PART_OF)


def _sync(context: ToolContext, row: AgentSessionRow, settings: Settings) -> tuple[str, str]:
    """Take over what is new in the agent's log. What is known already can be had whether or not that goes well."""
    known = row.session or row.key
    if not row.transcript:
        return known, ""
    try:
        if row.session and Path(row.transcript).stat().st_size == row.size:
            return known, ""
        log = AgentLog(context.root, row.key, row.transcript, row.agent)
        with synced_session(log, settings, archive=False) as kept:
            return kept.session.id, ""
    except (CompactorError, OSError) as error:
        return known, f"The agent's log could not be read, so the newest may be missing: {error}"


def _earlier_branches(row: AgentSessionRow | None) -> Sequence[str]:
    if row is None or not row.session.startswith(row.key + _BRANCH_MARK):
        return ()
    number = row.session.removeprefix(row.key + _BRANCH_MARK)
    count = int(number) if number.isdigit() else 1
    return (*(f"{row.key}{_BRANCH_MARK}{way}" for way in range(count - 1, 1, -1)), row.key)


def _has(store: str, name: str) -> bool:
    """Whether a store has a session, without making either."""
    if not _exists(store):
        return False
    with closing(connect(store, create=False)) as kept:
        try:
            kept.session(name)
        except UnknownSession:  # its words name other sessions, which are nobody's business here
            return False
        return True


def _exists(store: str) -> bool:
    if is_postgres(store):
        return True
    path = sqlite_path(store)
    return path is not None and path.is_file()


def _used_last(store: str) -> str:
    """The session of a store that was used last, when no hook has seen any; sub-agents are never meant."""
    if not _exists(store):
        return ""
    with closing(connect(store, create=False)) as kept:
        rows = [row for row in kept.sessions() if "/" not in row.id]
    return max(rows, key=lambda row: row.updated_at).id if rows else ""


def _unknown(context: ToolContext, wanted: str) -> UnknownSession:
    if wanted:
        return UnknownSession(
            f"there is no session {wanted!r:.80} that may be read here. Try: without `session`, which means your own; "
            "`compactor sessions` in a shell lists those of this project."
        )
    return UnknownSession(
        f"no session is known in the project {context.root} yet. Try: `compactor install claude-code` or "
        "`compactor install codex` in a shell there and then go on working, or `compactor import` for sessions that "
        "exist; for another folder, start `compactor mcp --project DIR`."
    )
