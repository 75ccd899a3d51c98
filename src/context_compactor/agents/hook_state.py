"""What hooks remember of an agent's sessions between two calls, in a small SQLite file that opens within
milliseconds."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping
else:
    try:
        import _sqlite3 as sqlite3  # without the dates that `sqlite3` brings: a tenth of a hook's whole time
    except ImportError:
        import sqlite3

DatabaseError = sqlite3.DatabaseError
"""What a file raises that is damaged, or in use for too long."""
STATE_FILE = "agents.db"
_WAIT_SECONDS = 10.0
# The newest rows that stay when a new session begins.
_MOST_ROWS = 1_000

_COLUMNS = {
    "key": "TEXT PRIMARY KEY",
    "agent": "TEXT NOT NULL DEFAULT ''",
    "transcript": "TEXT NOT NULL DEFAULT ''",
    "session": "TEXT NOT NULL DEFAULT ''",
    "model": "TEXT NOT NULL DEFAULT ''",
    "calls": "INTEGER NOT NULL DEFAULT 0",
    "wake_calls": "INTEGER NOT NULL DEFAULT 0",
    "wake_tokens": "INTEGER NOT NULL DEFAULT 0",
    "wake_bytes": "INTEGER NOT NULL DEFAULT 0",
    "settings": "TEXT NOT NULL DEFAULT ''",
    "owed": "TEXT NOT NULL DEFAULT ''",
    "expected": "TEXT NOT NULL DEFAULT ''",
    "summary": "TEXT NOT NULL DEFAULT ''",
    "size": "INTEGER NOT NULL DEFAULT 0",
    "processes": "TEXT NOT NULL DEFAULT ''",
    "compaction": "TEXT NOT NULL DEFAULT ''",
    "events": "TEXT NOT NULL DEFAULT '{}'",
    "updated_at": "REAL NOT NULL DEFAULT 0",
}


class AgentSessionRow:
    """What is known of one session of an agent.

    `session` is its name in the store, `model` what it last spoke with, `calls` its tool calls. At `wake_calls`, from
    `wake_tokens` in its window, or with an output above `wake_bytes` there is something to do, under the settings whose
    fingerprint is `settings`. `owed` marks a text that the model is to get and has not been seen to have got.
    `expected` is when the agent said that it was about to compact, and `summary` what it then wrote. `size` is how long
    the log was when it was last followed, `processes` who the agent is, `compaction` who compacts there (as in the
    setting `agent_compaction`), and `events` how often which hook came.
    """

    __slots__ = tuple(_COLUMNS)

    key: str
    agent: str
    transcript: str
    session: str
    model: str
    calls: int
    wake_calls: int
    wake_tokens: int
    wake_bytes: int
    settings: str
    owed: str
    expected: str
    summary: str
    size: int
    processes: str
    compaction: str
    events: str
    updated_at: float

    def __init__(self, values: tuple[object, ...]) -> None:
        for (name, kind), value in zip(_COLUMNS.items(), values, strict=True):
            wanted = str if kind.startswith("TEXT") else int if kind.startswith("INTEGER") else float
            setattr(self, name, value if isinstance(value, wanted) else wanted())  # what does not fit was never ours

    @property
    def has_plugin(self) -> bool:
        """Whether something of ours runs inside the agent: then a record can take the place of its summary."""
        return '"loaded"' in self.events or '"compact"' in self.events

    def last_event(self, event: str) -> str:
        """When a hook came last; empty when it never did."""
        import json  # hooks that only count do without it

        try:
            found = json.loads(self.events).get(event)
        except (ValueError, AttributeError):
            return ""
        return str(found[1]) if isinstance(found, list) and len(found) > 1 else ""


class HookState:
    """The rows of one project. Every verb is one transaction."""

    def __init__(self, path: str, wait: float) -> None:
        self._rows = sqlite3.connect(path, timeout=wait, isolation_level=None)
        self._rows.execute("PRAGMA trusted_schema = OFF")

    def close(self) -> None:
        """Give the file back."""
        self._rows.close()

    def count(self, key: str, now: float) -> AgentSessionRow | None:
        """One more call; the row from then on, or None when the session is new here."""
        with _Transaction(self._rows):
            return self._one(
                f"UPDATE sessions SET calls = calls + 1, updated_at = ? WHERE key = ? {_RETURNING}", now, key
            )

    def find(self, key: str) -> AgentSessionRow | None:
        """The row of a session."""
        return self._one(f"SELECT {_NAMES} FROM sessions WHERE key = ?", key)

    def change(self, key: str, now: float, values: Mapping[str, object]) -> AgentSessionRow:
        """The row with some values changed; it is made when there is none."""
        names = ["key", "updated_at", *values]
        with _Transaction(self._rows):
            found = self._one(
                f"INSERT INTO sessions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
                f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names[1:])} "
                f"{_RETURNING}",
                key,
                now,
                *values.values(),
            )
        assert found is not None  # an upsert returns its row
        return found

    def claim(self, key: str, name: str, known: object, value: object) -> bool:
        """Change one value that is still what it was; of many who try at once, one has done it."""
        with _Transaction(self._rows):
            change = f"UPDATE sessions SET {name} = ? WHERE key = ? AND {name} = ?"
            return self._rows.execute(change, (value, key, known)).rowcount == 1

    def note_event(self, key: str, event: str, now: str) -> None:
        """Remember that a hook came: how often, and when last."""
        with _Transaction(self._rows):
            kept = "iif(json_valid(events), events, '{}')"
            self._rows.execute(
                f"UPDATE sessions SET events = json_set({kept}, '$.' || ?, json_array("
                f"coalesce(json_extract({kept}, '$.' || ? || '[0]'), 0) + 1, ?)) WHERE key = ?",
                (event, event, now, key),
            )

    def remove(self, session: str) -> None:
        """Forget a session that was deleted, by its name in the store."""
        try:
            with _Transaction(self._rows):
                self._rows.execute("PRAGMA secure_delete = 1")
                self._rows.execute("DELETE FROM sessions WHERE session = ? OR key = ?", (session, session))
        except sqlite3.OperationalError as error:
            _raise_unless_new(error)

    def trim(self) -> None:
        """Let go of the rows that nobody has used for longest, when there are too many."""
        with _Transaction(self._rows):
            self._rows.execute(
                "DELETE FROM sessions WHERE key IN "
                f"(SELECT key FROM sessions ORDER BY updated_at DESC LIMIT -1 OFFSET {_MOST_ROWS})"
            )

    def rows(self) -> Iterator[AgentSessionRow]:
        """All rows, the one used last first."""
        try:
            found = self._rows.execute(f"SELECT {_NAMES} FROM sessions ORDER BY updated_at DESC").fetchall()
        except sqlite3.OperationalError as error:
            _raise_unless_new(error)
            return
        yield from map(AgentSessionRow, found)

    def _one(self, statement: str, *values: object) -> AgentSessionRow | None:
        try:
            found = self._rows.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            _raise_unless_new(error)
            return None
        return AgentSessionRow(found[0]) if found else None

    def prepare(self) -> None:
        """Make the table, with every column that this version knows."""
        if self._columns() >= _COLUMNS.keys():
            return
        with _Transaction(self._rows):
            known = self._columns()
            if not known:
                columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
                self._rows.execute(f"CREATE TABLE sessions ({columns}) WITHOUT ROWID")
            for name in _COLUMNS.keys() - known if known else ():
                self._rows.execute(f"ALTER TABLE sessions ADD COLUMN {name} {_COLUMNS[name]}")

    def _columns(self) -> set[str]:
        return {name for _, name, *_ in self._rows.execute("PRAGMA table_info (sessions)")}


class _Transaction:
    """A transaction. (`contextlib` would cost more to import than all of this.)"""

    def __init__(self, rows: sqlite3.Connection) -> None:
        self._rows = rows

    def __enter__(self) -> None:
        # A power cut may cost the counts of a moment, and nothing that was said.
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._rows.execute("COMMIT")
        elif self._rows.in_transaction:  # a full disk has ended it already
            self._rows.execute("ROLLBACK")


def open_hook_state(home: str, *, create: bool = False, wait: float = _WAIT_SECONDS) -> HookState | None:
    """What is remembered in a project's folder `.compactor`; None when there is no file, unless `create` is set.

    A damaged file is set aside and a new one begun: no text of a conversation is in it.
    """
    path = os.path.join(home, STATE_FILE)
    if not os.path.exists(path) or os.path.islink(path):
        if not create:
            return None
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
    state = HookState(path, wait)
    if not create:
        return state
    try:
        state.prepare()
    except sqlite3.DatabaseError as error:
        state.close()
        if "locked" in str(error):
            raise
        os.replace(path, f"{path}.damaged")
        return open_hook_state(home, create=True, wait=wait)
    return state


def _raise_unless_new(error: sqlite3.OperationalError) -> None:
    """A file without our table is one that nobody has counted in yet."""
    if not str(error).startswith(("no such table", "no such column")):
        raise error


_NAMES = ", ".join(_COLUMNS)
_RETURNING = f"RETURNING {_NAMES}"
