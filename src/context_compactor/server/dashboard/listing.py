"""The sessions of a namespace in short, to be filtered and sorted; read again only as often as it is cheap."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from context_compactor.errors import UnknownSession
from context_compactor.levels import Level, LevelRule
from context_compactor.protocols import Store
from context_compactor.server.scope import Scope
from context_compactor.session.fill import Rules
from context_compactor.session.lens import Lens
from context_compactor.session.log import Sight
from context_compactor.session.values import read_state
from context_compactor.store.rows import SessionRow

MOST = 20_000
"""Sessions that are looked at; of more, those with the first names."""
_FRESH_SECONDS = 0.5
_SHORT = 25
_MINUTE = len("2026-01-31T23:59")
_REST = 20
"""A list is as good as new for so many times as long as it took to read."""


class Listed(Struct, frozen=True):
    """A session as a list shows it. `view` is 0 while nothing was ever done to its context."""

    id: str
    store_id: str
    updated_at: str
    messages: int
    tokens: int
    share: float
    level: Level | None
    levels: tuple[LevelRule, ...]
    window: int | None
    model: str
    head: int
    view: int


class Listing:
    """Keeps what was read for each namespace for a moment, so that many readers cost little more than one."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, list[Listed]]] = {}

    def sessions(self, scope: Scope, store: Store) -> list[Listed]:
        """The sessions of a namespace. Blocks."""
        until, found = self._kept.get(scope.namespace, (0.0, []))
        began = time.monotonic()
        if began < until:
            return found
        rules = Rules()
        found = [_listed(row, scope, rules) for row in scope.sessions(store, None, MOST)]
        took = time.monotonic() - began
        self._kept[scope.namespace] = (time.monotonic() + max(_FRESH_SECONDS, _REST * took), found)
        return found

    def forget(self, scope: Scope) -> None:
        """Read the sessions of a namespace anew at the next look."""
        self._kept.pop(scope.namespace, None)


def sight_of(listed: Listed, store: Store) -> Sight:
    """The compactions of a session of the list; none when it was deleted since. Blocks."""
    try:
        return Lens(store, listed.store_id).sight()
    except UnknownSession:
        return Sight((), ())


def _listed(row: SessionRow, scope: Scope, rules: Rules) -> Listed:
    rule = rules.of(row.profile)
    fill = rule.fill(row, read_state(row.state))
    return Listed(
        id=scope.outside(row.id),
        store_id=row.id,
        updated_at=row.updated_at,
        messages=row.messages,
        tokens=fill.tokens,
        share=fill.share,
        level=fill.level,
        levels=rule.levels,
        window=rule.profile.window,
        model=rule.profile.model or rule.profile.dialect,
        head=row.head,
        view=row.view,
    )


def chosen(sessions: Sequence[Listed], words: str, level: str, sort: str) -> list[Listed]:
    """Those whose id or model holds the words and which are at the level, in the order that is asked for.

    In a short list changes count by the minute: rows that change places every second cannot be clicked on.
    """
    wanted = words.casefold().strip()
    found = [
        each
        for each in sessions
        if (not wanted or wanted in each.id.casefold() or wanted in each.model.casefold())
        and (not level or (each.level is not None if level == "any" else each.level == level))
    ]
    name = sort.lstrip("-")
    if name == "name":
        return sorted(found, key=lambda each: each.id, reverse=sort.startswith("-"))
    found.sort(key=lambda each: each.id)
    if name == "updated" and len(found) <= _SHORT:
        return sorted(found, key=lambda each: each.updated_at[:_MINUTE], reverse=sort.startswith("-"))
    attribute = {"fill": "share", "tokens": "tokens", "messages": "messages"}.get(name, "updated_at")
    return sorted(found, key=lambda each: getattr(each, attribute), reverse=sort.startswith("-"))
