"""The sessions of a namespace in short, to be filtered and sorted; read again only as often as it is cheap."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from context_compactor.levels import Level, LevelRule
from context_compactor.measure.usage import level_at
from context_compactor.protocols import Store
from context_compactor.server.scope import Scope
from context_compactor.settings import load_settings, read_value
from context_compactor.store.rows import SessionRow

S = TypeVar("S", bound=Struct)

MOST = 20_000
"""Sessions that are looked at; of more, those with the first names."""
_FRESH_SECONDS = 0.5
_REST = 20
"""A list is as good as new for so many times as long as it took to read."""


class _Gauge(Struct, frozen=True):
    tokens: int = 0


class _State(Struct, frozen=True):
    gauge: _Gauge = _Gauge()
    share: float = 0.0


class _Profile(Struct, frozen=True):
    window: int | None = None
    model: str | None = None
    dialect: str = "auto"
    settings: dict[str, object] = {}


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
        usual = load_settings().settings.levels
        found = [_listed(row, scope, usual) for row in scope.sessions(store, None, MOST)]
        took = time.monotonic() - began
        self._kept[scope.namespace] = (time.monotonic() + max(_FRESH_SECONDS, _REST * took), found)
        return found


def _listed(row: SessionRow, scope: Scope, usual: tuple[LevelRule, ...]) -> Listed:
    profile, state = _decode(row.profile, _Profile), _decode(row.state, _State)
    own = profile.settings.get("levels")
    levels: tuple[LevelRule, ...] = read_value("levels", own, "settings") if own else usual
    return Listed(
        id=scope.outside(row.id),
        store_id=row.id,
        updated_at=row.updated_at,
        messages=row.messages,
        tokens=state.gauge.tokens if row.messages else 0,
        share=state.share,
        level=level_at(state.share, levels),
        levels=levels,
        window=profile.window,
        model=profile.model or profile.dialect,
        head=row.head,
        view=row.view,
    )


def _decode(stored: bytes, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(stored, type=kind)
    except msgspec.MsgspecError:  # of another version of this program
        return kind()


def chosen(sessions: Sequence[Listed], words: str, level: str, sort: str) -> list[Listed]:
    """Those whose id or model holds the words and which are at the level, in the order that is asked for."""
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
    attribute = {"fill": "share", "tokens": "tokens", "messages": "messages"}.get(name, "updated_at")
    return sorted(found, key=lambda each: getattr(each, attribute), reverse=sort.startswith("-"))
