"""Doctor checks: whether the store is whole, private and has room, and how far it has followed the agents' logs."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from context_compactor.addresses import is_postgres, without_password
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.install.doctor_findings import DoctorContext, Finding, look, moment, ok, wrong
from context_compactor.agents.paths import HOME
from context_compactor.errors import CompactorError, UnknownSession
from context_compactor.sessions.holders import other_holders
from context_compactor.store.connect import connect, sqlite_path
from context_compactor.store.database import scripts
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite_connection import refuse_foreign

AREA = "store"
SESSIONS = "sessions"
_MOST_SESSIONS = 5
_LITTLE, _VERY_LITTLE = 1_000_000_000, 100_000_000
_LARGE = 2_000_000_000
# What holds no word of a conversation.
_OPEN = frozenset({".gitignore", "config.toml"})


def store(case: DoctorContext) -> Iterator[Finding]:
    """The store of the project, and the sessions of agents in it."""
    if case.settings is None:
        return
    url = case.settings.store
    path = None if is_postgres(url) else sqlite_path(url)
    yield from _writable(case)
    if path is not None:
        yield from _private(case)
        found = list(_file(case, case.root / path))
        yield from found
        if not (case.root / path).is_file() or any(each.state != "ok" for each in found):
            return  # opening it could change it
        yield from _room(case.root / path)
        url = f"sqlite:///{case.root / path}"
    elif not is_postgres(url):
        yield wrong(AREA, "the store is in memory, so hooks forget everything at once", "Remove the setting `store`")
        return
    try:
        with closing(connect(url, create=False)) as kept:
            if path is None:
                yield ok(AREA, f"{without_password(url)} answers")
            yield from _sessions(case, kept)
            yield from _held(case, kept)
    except CompactorError as error:
        yield wrong(AREA, f"the store cannot be opened: {error}", "compactor sessions")


def _file(case: DoctorContext, path: Path) -> Iterator[Finding]:
    """A store in a file, looked at without touching it."""
    if not path.is_file():
        lost = [row.session for row in case.rows if row.session]
        if lost:
            told = f"there is no store at {path}, although {len(lost)} sessions were kept in it"
            yield wrong(AREA, told, "Put it back; else the next hook begins a new one from the agent's logs")
        elif case.rows:
            yield ok(AREA, f"there is no store at {path} yet; it is made when a session is first kept")
        return
    try:
        with closing(_reading(path)) as database:
            yield from _schema(database, path)
    except (sqlite3.DatabaseError, CompactorError) as error:
        yield wrong(AREA, f"{path} cannot be read: {error}", "compactor verify; a copy of the file first does no harm")


def _room(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free < _LITTLE:
        told = f"the disk of {path} has {free / 1e6:,.0f} MB left"
        yield wrong(AREA, told, "Free some space") if free < _VERY_LITTLE else look(AREA, told, "Free some space")


def _reading(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing. Without a write-ahead log beside it nobody has the file open."""
    wal = path.with_name(f"{path.name}-wal")
    return sqlite3.connect(f"{path.resolve().as_uri()}?{'mode=ro' if wal.exists() else 'immutable=1'}", uri=True)


def _schema(database: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    refuse_foreign(database, str(path))
    version, known = database.execute("PRAGMA user_version").fetchone()[0], len(scripts("sqlite"))
    size = path.stat().st_size
    told = f"{path}: {size / 1e6:,.1f} MB, schema {version}"
    if version > known:
        yield wrong(AREA, f"{told}, made by a newer version; this one knows {known}", "Update context-compactor")
        return
    damage = "" if size > _LARGE else database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage not in ("", "ok"):
        yield wrong(AREA, f"{path} is damaged: {damage}", "compactor verify; a copy of the file first does no harm")
    elif version < known:
        yield look(AREA, f"{told}, of an older version", "compactor migrate; the next hook does it too")
    else:
        whole = "too large to be checked here; `compactor verify` does" if size > _LARGE else "whole"
        yield ok(AREA, f"{told}, {whole}, {shutil.disk_usage(path.parent).free / 1e9:,.1f} GB free beside it")


def _writable(case: DoctorContext) -> Iterator[Finding]:
    """Whether hooks can write at all: what they cannot write down nobody hears of."""
    home = case.root / HOME
    place = home if home.exists() else case.root
    remedy = f"Make {place} a folder of your own that can be written"
    if not place.is_dir():
        yield wrong(AREA, f"{place} is not a folder, so every hook fails", remedy)
    elif not os.access(place, os.W_OK | os.X_OK) or os.statvfs(place).f_flag & os.ST_RDONLY:
        yield wrong(AREA, f"{place} cannot be written, so every hook fails without a word", remedy)
    links = [path for path in (home, *(home.glob("*") if home.is_dir() else ())) if path.is_symlink()]
    if links:
        yield wrong(AREA, f"{links[0]} is a link, which hooks do not follow", "Remove it")


def _private(case: DoctorContext) -> Iterator[Finding]:
    """What was said is for its owner alone."""
    home = case.root / HOME
    if not home.is_dir() or not home.stat().st_mode & 0o077:
        return
    files = [path for path in (*home.iterdir(), *home.glob("logs/*")) if path.is_file() and path.name not in _OPEN]
    seen = sorted(str(path.relative_to(case.root)) for path in files if path.stat().st_mode & 0o077)
    if seen:
        more = f" and {len(seen) - 3} more" if len(seen) > 3 else ""
        told = f"others on this machine can read {', '.join(seen[:3])}{more}"
        yield look(AREA, told, f"chmod 700 {home}")


def _sessions(case: DoctorContext, kept: SqlStore) -> Iterator[Finding]:
    rows = [row for row in case.rows if "/" not in row.key]
    for row in rows[:_MOST_SESSIONS]:
        yield _session(row, kept)
    if len(rows) > _MOST_SESSIONS:
        yield ok(SESSIONS, f"and {len(rows) - _MOST_SESSIONS:,} older ones", "compactor sessions")


def _session(row: AgentSessionRow, kept: SqlStore) -> Finding:
    if not row.session:
        return ok(SESSIONS, f"{row.key} ({row.agent}): nothing to keep yet")
    try:
        found = kept.session(row.session)
    except UnknownSession:
        told = f"{row.session} ({row.agent}) is not in the store any more"
        return look(SESSIONS, told, "The next hook of that session takes it in again from the agent's log")
    archived = len(kept.originals(row.session))
    told = f"{row.session} ({row.agent}): {found.messages:,} messages, {archived:,} originals archived"
    return _followed(row, f"{told}, last used {moment(row.updated_at)}")


def _followed(row: AgentSessionRow, told: str) -> Finding:
    log = Path(row.transcript)
    if not log.is_file():
        return look(SESSIONS, f"{told}; the agent's log {log} is gone", "Nothing to do: what was archived stays")
    behind = log.stat().st_size - row.size
    if behind < 0:
        return look(SESSIONS, f"{told}; {log} is shorter than it was", "The next hook reads it anew")
    return ok(
        SESSIONS, f"{told}; {f'{behind:,} bytes of its log are new since' if behind else 'up to date with its log'}"
    )


def _held(case: DoctorContext, kept: SqlStore) -> Iterator[Finding]:
    """Sessions that several programs have open at once."""
    holders: dict[str, list[str]] = {}
    for session, holder, _ in other_holders(kept, datetime.fromtimestamp(case.now, UTC)):
        holders.setdefault(session, []).append(holder.rsplit(":", 3)[1])
    ours = {row.session for row in case.rows}
    for session, held in holders.items():
        if session in ours and len(held) > 1:
            told = f"{len(held)} programs have session {session} open (pid {', '.join(held)})"
            yield look("others", told, "Let one of them compact it: hooks and MCP need none of the others")
