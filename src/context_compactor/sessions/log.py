"""From a session's log to its context: the kinds of entries, the reader that follows them, and the check that nothing
is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.errors import DamagedContent
from context_compactor.json_values import read_json
from context_compactor.protocols import Store
from context_compactor.store.rows import MESSAGE, LogEntry, SessionRow

COMPACTION, UNDO, REDO, REVISION = "compaction", "undo", "redo", "revision"
VIEW_KINDS = (COMPACTION, UNDO, REDO, REVISION)
GROWN, REPEATED = "grown", "repeated"


class CompactionNote(Struct, frozen=True, kw_only=True):
    """A compaction as the log knows it. `items` and `report` are hashes of contents, `view` what it was made from."""

    id: str
    base: int
    view: int
    items: str
    report: str
    trigger: str = ""
    level: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    messages_removed: int = 0


class UndoNote(Struct, frozen=True):
    """Which compaction an undo or redo is about."""

    compaction: str


class Revision(Struct, frozen=True, kw_only=True):
    """A change of one message in the context.

    `position` names a message of the log, `instead_of` one that a compaction wrote, and with neither the message is
    added behind the position `after`. The last two hold only under the compaction at `under` (0 for none). `hash` is
    what is shown; `ref` the original it is about; `why` one word. A message that is `REPEATED` is not shown.
    """

    why: str
    hash: str
    position: int = 0
    instead_of: str = ""
    after: int = -1
    under: int = 0
    ref: str = ""


class ContextItem(Struct, frozen=True, omit_defaults=True):
    """A message of the context: the hash of its content, and where it comes from.

    `position` is that of the log's message, 0 for one a compaction or revision wrote; `added` says why one was added.
    `at` is when it was written, empty when nobody knows.
    """

    hash: str
    position: int = 0
    added: str = ""
    ref: str = ""
    at: str = ""


class LoggedCompaction(Struct, frozen=True):
    """A compaction of the log, with its place."""

    position: int
    created_at: str
    note: CompactionNote
    is_active: bool = True


class LogState(Struct, frozen=True):
    """What is to be known of a log to compute its context."""

    compactions: tuple[LoggedCompaction, ...]
    revisions: tuple[Revision, ...]
    can_redo: tuple[LoggedCompaction, ...] = ()

    @property
    def last(self) -> LoggedCompaction | None:
        """The compaction that counts."""
        return next((each for each in reversed(self.compactions) if each.is_active), None)

    @property
    def base(self) -> int:
        """The position up to which the last compaction stands for the log."""
        return self.last.note.base if self.last else 0

    @property
    def under(self) -> int:
        """The position of the compaction that counts, under which a revision holds; 0 for none."""
        return self.last.position if self.last else 0

    @property
    def grown(self) -> dict[int, str]:
        """The messages that were read before all of them was said: the hash of the whole by the position."""
        return {each.position: each.hash for each in self.revisions if each.why == GROWN}


def read_log_state(entries: Iterable[LogEntry]) -> LogState:
    """Read the entries that are no messages, in order."""
    made: list[LoggedCompaction] = []
    active: list[int] = []
    undone: list[int] = []
    revisions: list[Revision] = []
    for entry in entries:
        if entry.kind == COMPACTION:
            active.append(len(made))
            note = msgspec.json.decode(entry.body, type=CompactionNote)
            made.append(LoggedCompaction(entry.position, entry.created_at, note))
            undone.clear()
        elif entry.kind == UNDO and active:
            undone.append(active.pop())
        elif entry.kind == REDO and undone:
            active.append(undone.pop())
        elif entry.kind == REVISION:
            revisions.append(msgspec.json.decode(entry.body, type=Revision))
    compactions = (structs.replace(each, is_active=at in active) for at, each in enumerate(made))
    return LogState(tuple(compactions), tuple(revisions), tuple(made[at] for at in undone))


def context_items(log_state: LogState, items: Sequence[ContextItem], messages: Iterable[LogEntry]) -> list[ContextItem]:
    """The context: the items of the last compaction, then the messages behind its base, each as it was last revised."""
    found = [*items, *(_item(entry) for entry in messages if entry.kind == MESSAGE)]
    for revision in log_state.revisions:
        if revision.position or revision.under == log_state.under:
            _revise(found, revision, log_state.base, len(items))
    return found


def _item(entry: LogEntry) -> ContextItem:
    return ContextItem(entry.hash, entry.position, at=entry.created_at)


def _revise(found: list[ContextItem], revision: Revision, base: int, items: int) -> None:
    if not revision.position and not revision.instead_of:
        _add(found, revision, base, items)
        return
    for at, each in enumerate(found):
        is_logged = base < revision.position == each.position
        if is_logged and revision.why == REPEATED:
            del found[at]
            return
        if is_logged or (revision.instead_of and each.hash == revision.instead_of):
            found[at] = ContextItem(revision.hash, each.position, "", revision.ref, each.at)
            return


def _add(found: list[ContextItem], revision: Revision, base: int, items: int) -> None:
    behind = [at for at, each in enumerate(found) if base < each.position <= revision.after]
    at = behind[-1] + 1 if behind else items
    while at < len(found) and found[at].added:
        at += 1
    found.insert(at, ContextItem(revision.hash, 0, revision.why, revision.ref))


Raw = dict[str, Any]


class SessionContext(Struct, frozen=True):
    """A context: where each message of it comes from, and each as it goes to the provider."""

    head: int
    view: int
    log_state: LogState
    items: list[ContextItem]
    raws: list[Raw]

    def own(self) -> Iterator[tuple[ContextItem, Raw]]:
        """The messages of the conversation, without what was added to the context from outside."""
        return ((item, raw) for item, raw in zip(self.items, self.raws, strict=True) if not item.added)


class ContextReader:
    """Keeps the last context it has read and follows the log from there."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._id = session_id
        self._context: SessionContext | None = None

    def now(self, row: SessionRow | None = None) -> SessionContext:
        """The context as it is now; only what has come since the last call is read."""
        row = row or self._store.session(self._id)
        context = self._context
        if context is None or context.view != row.view or context.head > row.head:
            context = self._read(row.head, row.view)
        elif context.head < row.head:
            new = self._store.entries(self._id, kinds=(MESSAGE,), after=context.head, until=row.head)
            raws = [*context.raws, *(read_json(entry.body) for entry in new)]
            items = [*context.items, *map(_item, new)]
            context = SessionContext(row.head, row.view, context.log_state, items, raws)
        self._context = context
        return context

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._context = None

    def at(self, position: int) -> SessionContext:
        """The context as it was when the log had this position."""
        return self._read(position, -1)

    def log_state(self, until: int | None = None) -> LogState:
        """The compactions and revisions of the log."""
        return read_log_state(self._store.entries(self._id, kinds=VIEW_KINDS, until=until))

    def _read(self, head: int, view: int) -> SessionContext:
        log_state = self.log_state(head)
        compacted = self.items(log_state.last) if log_state.last else []
        messages = self._store.entries(self._id, kinds=(MESSAGE,), after=log_state.base, until=head)
        items = context_items(log_state, compacted, messages)
        known = {entry.hash: entry.body for entry in messages}
        wanted = [each.hash for each in items if each.hash not in known]
        known.update(self._store.get(wanted) if wanted else {})
        return SessionContext(head, view, log_state, items, [read_json(known[each.hash]) for each in items])

    def items(self, compacted: LoggedCompaction) -> list[ContextItem]:
        """What a compaction put in the place of everything up to its base."""
        content = compacted.note.items
        return msgspec.json.decode(self._store.get([content])[content], type=list[ContextItem])


def logged_bodies(
    store: Store, session_id: str, log_state: LogState, *, after: int = 0, until: int | None = None
) -> dict[int, bytes]:
    """What was said, by position: as it was appended, and whole where more of it came later."""
    entries = store.entries(session_id, kinds=(MESSAGE,), after=after, until=until)
    found = {entry.position: entry.body for entry in entries}
    grown = {position: name for position, name in log_state.grown.items() if position in found}
    bodies = store.get(grown.values()) if grown else {}
    return found | {position: bodies[name] for position, name in grown.items()}


def missing_contents(store: Store, session_id: str) -> Iterator[str]:
    """One line for each compaction or revision of which something is gone."""
    context_reader = ContextReader(store, session_id)
    log_state = context_reader.log_state()
    for compacted in log_state.compactions:
        try:
            items = context_reader.items(compacted)
            store.get([compacted.note.report, *(item.hash for item in items)])
        except DamagedContent as error:
            yield f"session {session_id}: compaction {compacted.note.id}: {error}"
    for revision in log_state.revisions:
        try:
            store.get([revision.hash])
        except DamagedContent as error:
            yield f"session {session_id}: {revision.why} {revision.ref}: {error}"
