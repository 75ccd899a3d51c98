"""The lens: a session's context as it is now, or as it was, read from its log as far as needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.messages.jsontext import json_bytes, read_json
from context_compactor.protocols import Store
from context_compactor.session.log import VIEW_KINDS, Compacted, Shown, Sight, look, show
from context_compactor.store.rows import MESSAGE, Entry, SessionRow

Raw = dict[str, Any]


class Seen(Struct, frozen=True):
    """A context: what is shown, and each message of it as it goes to the provider."""

    head: int
    view: int
    sight: Sight
    shown: list[Shown]
    raws: list[Raw]

    def own(self) -> Iterator[tuple[Shown, Raw]]:
        """The messages of the conversation, without what was added to the context from outside."""
        return ((shown, raw) for shown, raw in zip(self.shown, self.raws, strict=True) if not shown.added)


class Lens:
    """Keeps the last context it has seen and follows the log from there."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._id = session_id
        self._seen: Seen | None = None

    def now(self, row: SessionRow | None = None) -> Seen:
        """The context as it is now; only what has come since the last look is read."""
        row = row or self._store.session(self._id)
        seen = self._seen
        if seen is None or seen.view != row.view or seen.head > row.head:
            seen = self._read(row.head, row.view)
        elif seen.head < row.head:
            new = self._store.entries(self._id, kinds=(MESSAGE,), after=seen.head, until=row.head)
            shown = [*seen.shown, *(Shown(entry.hash, entry.position, at=entry.created_at) for entry in new)]
            seen = Seen(row.head, row.view, seen.sight, shown, [*seen.raws, *map(_raw, new)])
        self._seen = seen
        return seen

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._seen = None

    def at(self, position: int) -> Seen:
        """The context as it was when the log had this position."""
        return self._read(position, -1)

    def sight(self, until: int | None = None) -> Sight:
        """The compactions and revisions of the log."""
        return look(self._store.entries(self._id, kinds=VIEW_KINDS, until=until))

    def _read(self, head: int, view: int) -> Seen:
        sight = self.sight(head)
        items = self.items(sight.last) if sight.last else []
        messages = self._store.entries(self._id, kinds=(MESSAGE,), after=sight.base, until=head)
        shown = show(sight, items, messages)
        known = {entry.hash: entry.body for entry in messages}
        wanted = [each.hash for each in shown if each.hash not in known]
        known.update(self._store.get(wanted) if wanted else {})
        return Seen(head, view, sight, shown, [read_json(known[each.hash]) for each in shown])

    def items(self, compacted: Compacted) -> list[Shown]:
        """What a compaction put in the place of everything up to its base."""
        content = compacted.note.items
        return msgspec.json.decode(self._store.get([content])[content], type=list[Shown])


def logged(
    store: Store, session_id: str, sight: Sight, *, after: int = 0, until: int | None = None
) -> dict[int, bytes]:
    """What was said, by position: as it was appended, and whole where more of it came later."""
    entries = store.entries(session_id, kinds=(MESSAGE,), after=after, until=until)
    found = {entry.position: entry.body for entry in entries}
    grown = {position: name for position, name in sight.grown.items() if position in found}
    bodies = store.get(grown.values()) if grown else {}
    return found | {position: bodies[name] for position, name in grown.items()}


def _raw(entry: Entry) -> Raw:
    raw: Raw = read_json(entry.body)
    return raw


def encode_items(shown: Sequence[Shown]) -> bytes:
    """The items of a compaction as a content."""
    return msgspec.json.encode(list(shown))


def encode_raws(raws: Iterable[Raw]) -> list[bytes]:
    """Messages as contents."""
    return [json_bytes(raw) for raw in raws]
