"""Doctor checks: whether the store is whole, private and has room, and how far it has followed the agents' logs."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.install.doctor_findings import DoctorContext, Finding, look, moment, ok, wrong
from context_compactor.agents.paths import HOME
from context_compactor.errors import CompactorError, UnknownSession
from context_compactor.sessions.holders import other_holders
from context_compactor.store.connect import connect, sqlite_path
from context_compactor.store.database import scripts
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite_connection import refuse_foreign
from context_compactor.store_urls import is_postgres, without_password

_MOST_SESSIONS = 5
_LITTLE, _VERY_LITTLE = 1_000_000_000, 100_000_000
_LARGE = 2_000_000_000
# What holds no word of a conversation.
_OPEN = frozenset({".gitignore", "config.toml"})


def store(ctx: DoctorContext) -> Iterator[Finding]:
    """The store of the project, and the sessions of agents in it."""
    if ctx.settings is None:
        return
    url = ctx.settings.store
    path = None if is_postgres(url) else sqlite_path(url)
    yield from _writable(ctx)
    if path is not None:
        yield from _private(ctx)
        found = list(_file(ctx, ctx.root / path))
        yield from found
        if not (ctx.root / path).is_file() or any(each.state != "ok" for each in found):
            return  # opening it could change it
        yield from _room(ctx.root / path)
        url = f"sqlite:///{ctx.root / path}"
    elif not is_postgres(url):
        yield wrong("the store is in memory, so hooks lose everything at once", "Remove the setting `store`")
        return
    try:
        with closing(connect(url, create=False)) as opened:
            if path is None:
                yield ok(f"{without_password(url)} answers")
            yield from (structs.replace(each, area="sessions") for each in _sessions(ctx, opened))
            yield from _held(ctx, opened)
    except CompactorError as error:
        yield wrong(f"the store cannot be opened: {error}", "compactor sessions")


def _file(ctx: DoctorContext, path: Path) -> Iterator[Finding]:
    if not path.is_file():
        lost = [row.session for row in ctx.rows if row.session]
        if lost:
            what = f"there is no store at {path}, although {len(lost)} sessions were stored in it"
            yield wrong(what, "Restore the file, or let the next hook create a new store from the agent's logs")
        elif ctx.rows:
            yield ok(f"there is no store at {path} yet; it is created with the first session")
        return
    try:
        with closing(_reading(path)) as database:
            yield from _schema(database, path)
    except (sqlite3.DatabaseError, CompactorError) as error:
        yield wrong(f"{path} cannot be read: {error}", "compactor verify, after copying the file")


def _room(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free < _LITTLE:
        what = f"the disk of {path} has {free / 1e6:,.0f} MB left"
        yield wrong(what, "Free some space") if free < _VERY_LITTLE else look(what, "Free some space")


def _reading(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing. Without a write-ahead log beside it nobody has the file open."""
    wal = path.with_name(f"{path.name}-wal")
    return sqlite3.connect(f"{path.resolve().as_uri()}?{'mode=ro' if wal.exists() else 'immutable=1'}", uri=True)


def _schema(database: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    refuse_foreign(database, str(path))
    version, known = database.execute("PRAGMA user_version").fetchone()[0], len(scripts("sqlite"))
    size = path.stat().st_size
    what = f"{path}: {size / 1e6:,.1f} MB, schema {version}"
    if version > known:
        yield wrong(f"{what}, made by a newer version; this one knows {known}", "Update context-compactor")
        return
    damage = "" if size > _LARGE else database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage not in ("", "ok"):
        yield wrong(f"{path} is damaged: {damage}", "compactor verify, after copying the file")
    elif version < known:
        yield look(f"{what}, of an older version", "compactor migrate; the next hook does it too")
    else:
        whole = "too large to be checked here; `compactor verify` does" if size > _LARGE else "whole"
        yield ok(f"{what}, {whole}, {shutil.disk_usage(path.parent).free / 1e9:,.1f} GB free beside it")


def _writable(ctx: DoctorContext) -> Iterator[Finding]:
    """Whether hooks can write at all: what they cannot write down nobody hears of."""
    home = ctx.root / HOME
    place = home if home.exists() else ctx.root
    remedy = f"Make {place} a folder of your own that can be written"
    if not place.is_dir():
        yield wrong(f"{place} is not a folder, so every hook fails", remedy)
    elif not os.access(place, os.W_OK | os.X_OK) or os.statvfs(place).f_flag & os.ST_RDONLY:
        yield wrong(f"{place} cannot be written, so every hook fails silently", remedy)
    links = [path for path in (home, *(home.glob("*") if home.is_dir() else ())) if path.is_symlink()]
    if links:
        yield wrong(f"{links[0]} is a link, and hooks follow no links", "Remove it")


def _private(ctx: DoctorContext) -> Iterator[Finding]:
    home = ctx.root / HOME
    if not home.is_dir() or not home.stat().st_mode & 0o077:
        return
    files = [path for path in (*home.iterdir(), *home.glob("logs/*")) if path.is_file() and path.name not in _OPEN]
    seen = sorted(str(path.relative_to(ctx.root)) for path in files if path.stat().st_mode & 0o077)
    if seen:
        more = f" and {len(seen) - 3} more" if len(seen) > 3 else ""
        what = f"others on this machine can read {', '.join(seen[:3])}{more}"
        yield look(what, f"chmod 700 {home}")


def _sessions(ctx: DoctorContext, opened: SqlStore) -> Iterator[Finding]:
    rows = [row for row in ctx.rows if "/" not in row.key]
    for row in rows[:_MOST_SESSIONS]:
        yield _session(row, opened)
    if len(rows) > _MOST_SESSIONS:
        yield ok(f"and {len(rows) - _MOST_SESSIONS:,} older ones", "compactor sessions")


def _session(row: AgentSessionRow, opened: SqlStore) -> Finding:
    if not row.session:
        return ok(f"{row.key} ({row.agent}): nothing to store yet")
    try:
        found = opened.session(row.session)
    except UnknownSession:
        what = f"{row.session} ({row.agent}) is not in the store any more"
        return look(what, "The next hook of that session reads it again from the agent's log")
    archived = len(opened.originals(row.session))
    what = f"{row.session} ({row.agent}): {found.messages:,} messages, {archived:,} originals archived"
    return _followed(row, f"{what}, last used {moment(row.updated_at)}")


def _followed(row: AgentSessionRow, what: str) -> Finding:
    log = Path(row.transcript)
    if not log.is_file():
        return look(f"{what}; the agent's log {log} is gone", "Nothing to do: what was archived stays")
    behind = log.stat().st_size - row.size
    if behind < 0:
        return look(f"{what}; {log} is shorter than it was", "The next hook reads it again")
    return ok(f"{what}; {f'{behind:,} bytes of its log are new since' if behind else 'up to date with its log'}")


def _held(ctx: DoctorContext, opened: SqlStore) -> Iterator[Finding]:
    holders: dict[str, list[str]] = {}
    for session, holder, _ in other_holders(opened, datetime.fromtimestamp(ctx.now, UTC)):
        holders.setdefault(session, []).append(holder.rsplit(":", 3)[1])
    ours = {row.session for row in ctx.rows}
    for session, held in holders.items():
        if session in ours and len(held) > 1:
            what = f"{len(held)} programs have session {session} open (pid {', '.join(held)})"
            yield look(what, "Let only one of them compact it; hooks and MCP do not need the others", "others")
