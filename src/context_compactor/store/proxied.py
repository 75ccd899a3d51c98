"""What a proxy keeps: what each request to a model used, and by what it finds a conversation again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from context_compactor.store.database import Database, rows_in, where_given
from context_compactor.store.events import plain_text

ProxyProtocol = Literal["anthropic", "openai-chat", "openai-responses"]
RequestKind = Literal["main", "compaction", "answered", "recall", "retry", "aside"]

REQUEST_KINDS: tuple[RequestKind, ...] = ("main", "compaction", "answered", "recall", "retry", "aside")
"""The agent's work, its own summary, a summary we gave in the provider's place, a request we made to answer our own
tools, one sent again after an overflow, and one without tools."""

_AT_ONCE = 2_000


class ProxiedRequest(Struct, frozen=True, kw_only=True):
    """One exchange with a model. Tokens are 0 where `has_usage` is false; `at` is a time as `timestamp` writes it.

    `client` is "" for an agent that is not known. `input` was neither read from a cache nor written to one;
    `cache_write_hour` is the part of `cache_write` that is kept for an hour. `status` is 0 when no answer came.
    What `is_recorded_only` was not ours to change, since somebody wanted it so.
    """

    id: str
    session_id: str
    at: str
    client: str = ""
    protocol: ProxyProtocol
    model: str
    kind: RequestKind = "main"
    status: int = 200
    is_held_out: bool = False
    is_recorded_only: bool = False
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_hour: int = 0
    output: int = 0
    has_usage: bool = False
    milliseconds: int = 0


class ProxiedLink(Struct, frozen=True):
    """What is known by a digest of a conversation, for one kind of question; `scope` keeps callers apart."""

    scope: str
    link: bytes
    kind: str
    session_id: str
    body: bytes
    created_at: str


def _upsert(table: str, names: Sequence[str], key: Sequence[str]) -> str:
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    places = ", ".join("?" * len(names))
    conflict = f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places}) {conflict}"


_REQUEST = ProxiedRequest.__struct_fields__
_LINK = ProxiedLink.__struct_fields__
_PUT_REQUEST = _upsert("proxied_requests", _REQUEST, ["id"])
_PUT_LINK = _upsert("proxied_links", _LINK, ["scope", "link", "kind"])


class ProxyTable:
    """The requests and links of all proxied sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_requests(self, rows: Iterable[ProxiedRequest]) -> None:
        """Record exchanges; one that is recorded again counts once, as it is recorded last."""
        ordered = sorted(rows, key=lambda row: row.id)  # so that two who record the same never wait for each other
        if ordered:
            self._database.write_many(_PUT_REQUEST, map(_request_values, ordered))

    def requests(self, since: str = "", until: str = "", session_id: str = "") -> Iterator[ProxiedRequest]:
        """Requests by their time and id, those from `since` on and before `until`, of one session or of all."""
        given = {"at >= ?": since or None, "at < ?": until or None, "session_id = ?": session_id or None}
        where, values = where_given(given, {})
        statement = (
            f"SELECT {', '.join(_REQUEST)} FROM proxied_requests WHERE {where} AND (at, id) > (?, ?) "
            f"ORDER BY at, id LIMIT {_AT_ONCE}"
        )
        last = ("", "")
        while rows := self._database.rows(statement, [*values, *last]):
            found = [_request(row) for row in rows]
            yield from found
            last = (found[-1].at, found[-1].id)

    def put_links(self, links: Iterable[ProxiedLink]) -> None:
        """Keep links; one of the same scope, link and kind is replaced."""
        ordered = sorted(links, key=lambda link: (link.scope, link.link, link.kind))
        if ordered:
            self._database.write_many(_PUT_LINK, map(structs.astuple, ordered))

    def find_links(self, scope: str, links: Sequence[bytes], kinds: Sequence[str]) -> list[ProxiedLink]:
        """All of these links that are kept for any of the kinds, in no particular order."""
        if not kinds:
            return []
        statement = (
            f"SELECT {', '.join(_LINK)} FROM proxied_links WHERE scope = ? "
            f"AND kind IN ({', '.join('?' * len(kinds))}) AND link IN ({{}})"
        )
        return [_link(row) for row in rows_in(self._database, statement, links, [scope, *kinds])]

    def links_of(self, session_id: str, kinds: Sequence[str] = ()) -> list[ProxiedLink]:
        """The links of a session, of some kinds or all, oldest first."""
        some = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        where = f"WHERE session_id = ?{some} ORDER BY created_at, scope, link, kind"
        statement = f"SELECT {', '.join(_LINK)} FROM proxied_links {where}"
        return [_link(row) for row in self._database.rows(statement, [session_id, *kinds])]

    def remove(self, session_id: str) -> None:
        """Delete the links of a session that is no longer there; its requests stay as numbers of nobody."""
        self._database.write("DELETE FROM proxied_links WHERE session_id = ?", [session_id])
        self._database.write("UPDATE proxied_requests SET session_id = '' WHERE session_id = ?", [session_id])


def _request_values(row: ProxiedRequest) -> list[Any]:
    """The values of a row, with 0 and 1 for what is a bool, and a model's name that any database can keep."""
    values = structs.asdict(structs.replace(row, model=plain_text(row.model)))
    return [int(value) if isinstance(value, bool) else value for value in values.values()]


def _request(row: Sequence[Any]) -> ProxiedRequest:
    found = ProxiedRequest(**dict(zip(_REQUEST, row, strict=True)))
    flags = {name: bool(getattr(found, name)) for name in ("is_held_out", "is_recorded_only", "has_usage")}
    return structs.replace(found, **flags)


def _link(row: Sequence[Any]) -> ProxiedLink:
    return ProxiedLink(*row)
