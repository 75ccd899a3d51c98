"""Addresses of PostgreSQL: `postgresql://user:password@host/database?schema=compactor&connections=10`.

Everything but `schema` and `connections` is as libpq has it, and so are its variables and its password file.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from context_compactor.errors import BadSetting
from context_compactor.store.address import without_password

_OWN = {"schema": "compactor", "connections": "10"}
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PORTS = re.compile(r"\d+(,\d+)*")
_MOST_CONNECTIONS = 1000
_ALWAYS = {"client_encoding": "utf8", "fallback_application_name": "context-compactor"}
# How soon a server is given up that does not answer at all.
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


class Address:
    """Where a store is: `name` may be shown to anybody, `conninfo` to libpq alone."""

    def __init__(self, name: str, conninfo: str, schema: str, connections: int) -> None:
        self.name = name
        self.conninfo = conninfo
        self.schema = schema
        self.connections = connections

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


def read_address(url: str) -> Address:
    """The parts of an address, or `BadSetting` that says what is wrong with it, without its password."""
    plain, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    own = _OWN | {key: value for key, value in given if key in _OWN}
    rest = urlencode([(key, value) for key, value in given if key not in _OWN])
    known = _read(f"{plain}?{rest}" if rest else plain, url)
    return Address(
        _name(known, own["schema"]),
        make_conninfo("", **{**_PATIENCE, **known, **_ALWAYS}),
        _schema(own["schema"], url),
        _connections(own["connections"], url),
    )


def _read(url: str, given: str) -> dict[str, str]:
    try:
        known = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
    except ProgrammingError:
        known = {"port": ""}  # what libpq says may quote a part of the password
    if not _PORTS.fullmatch(known.get("port", "5432")) or "@" in known.get("host", "") + known.get("dbname", ""):
        raise BadSetting(
            f"store: {without_password(given)!r:.200} cannot be read. Try: postgresql://user:password@host:5432/"
            "database; signs such as @ / : # % in the password are written as %40 %2F %3A %23 %25."
        )
    return known


def _name(known: dict[str, str], schema: str) -> str:
    """The address for people."""
    user = f"{known['user']}@" if "user" in known else ""
    host, port = known.get("host", ""), f":{known['port']}" if "port" in known else ""
    place = f"?host={host}" if host.startswith("/") else ""
    other = f"{'&' if place else '?'}schema={schema}" if schema != _OWN["schema"] else ""
    return f"postgresql://{user}{'' if place else host}{port}/{known.get('dbname', '')}{place}{other}"


def _schema(schema: str, url: str) -> str:
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise BadSetting(
            f"store: {without_password(url)!r:.200}: {schema!r:.80} is no name of a schema. "
            "Try: small letters, digits and _, such as schema=compactor."
        )
    return schema


def _connections(count: str, url: str) -> int:
    if not count.isdecimal() or not 1 <= int(count) <= _MOST_CONNECTIONS:
        raise BadSetting(
            f"store: {without_password(url)!r:.200}: connections={count!r:.40} is no number from 1 to "
            f"{_MOST_CONNECTIONS:,}. Try: connections=10."
        )
    return int(count)
