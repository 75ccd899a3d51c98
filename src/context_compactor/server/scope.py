"""What a caller may see: the sessions of one namespace, to read and perhaps to write.

In the store a session of the namespace `team` has the id `team/ID`; the default namespace has bare ids. No id that
comes over HTTP holds a `/`, so nothing that goes by a session's id can cross.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from context_compactor.errors import BadSetting, UnknownSession
from context_compactor.protocols import Store
from context_compactor.session.values import check_id
from context_compactor.store.desk_rows import prefix_of
from context_compactor.store.rows import SessionRow

_SEPARATOR = "/"
# Behind every id that begins with a namespace and the separator.
_LAST = "\U0010ffff"
_AT_ONCE = 200


class Scope(Struct, frozen=True):
    """Who asks: the name of the token, its namespace, and whether it may change anything."""

    namespace: str = ""
    may_write: bool = True
    name: str = ""

    @property
    def prefix(self) -> str:
        """What the ids of this namespace begin with in the store."""
        return prefix_of(self.namespace)

    def inside(self, session_id: str) -> str:
        """The id in the store of a session that is asked for, or `UnknownSession` when it cannot be one."""
        try:
            return self.made(session_id)
        except BadSetting as error:
            raise UnknownSession(f"there is no session {session_id[:80]!r}. Try: GET /v1/sessions.") from error

    def made(self, session_id: str) -> str:
        """The id in the store of a session that is to be made, or `BadSetting` when it can have no such name."""
        if _SEPARATOR in session_id or session_id in (".", ".."):
            raise BadSetting(f"id: {session_id[:80]!r} cannot stand in an address. Try: one without '/', or none.")
        check_id(session_id)
        return check_id(self.prefix + session_id) if self.namespace else session_id

    def outside(self, store_id: str) -> str:
        """The id as its caller knows it."""
        return store_id.removeprefix(self.prefix)

    def told(self, text: str, store_id: str) -> str:
        """A text about a session, with its id as its caller knows it. A path that begins like the id is none."""
        known = self.outside(store_id)
        if known in ("", store_id) or store_id not in text:
            return text
        return re.sub(rf"(?<![\w./-]){re.escape(store_id)}(?!\.?[\w/-])", lambda _: known, text)

    def sees(self, store_id: str) -> bool:
        """Whether a session of the store is in this namespace."""
        return store_id.startswith(self.prefix) if self.namespace else _SEPARATOR not in store_id

    def sessions(self, store: Store, after: str | None, limit: int) -> list[SessionRow]:
        """The next sessions of this namespace by their ids."""
        found: list[SessionRow] = []
        for row in self._rows(store, self.prefix + (after or "")):
            found.append(row)
            if len(found) == limit:
                break
        return found

    def _rows(self, store: Store, after: str) -> Iterator[SessionRow]:
        while rows := store.sessions(limit=_AT_ONCE, after=after):
            for row in rows:
                if self.sees(row.id):
                    yield row
                elif self.namespace:
                    return
            after = rows[-1].id if self.sees(rows[-1].id) else max(rows[-1].id, _behind(rows[-1].id))


def _behind(store_id: str) -> str:
    """The end of another namespace: its sessions are stepped over, however many they are."""
    return store_id.split(_SEPARATOR, maxsplit=1)[0] + _SEPARATOR + _LAST
