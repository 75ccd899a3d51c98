"""From a log to a context. The log is only ever added to; what the model sees is computed from it.

Entries of five kinds:

    message      what was appended, as it was
    compaction   the context up to `base` is replaced by `items`; messages behind `base` stay behind them
    undo, redo   the last compaction counts no longer, or again
    revision     one message is shown as another text (a long output cut short, an original put back), or one is added;
                 one that was read before all of it was said has *grown*: then the history has it whole as well
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from context_compactor.store.rows import MESSAGE, Entry

COMPACTION, UNDO, REDO, REVISION = "compaction", "undo", "redo", "revision"
VIEW_KINDS = (COMPACTION, UNDO, REDO, REVISION)
GROWN = "grown"


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
    what is shown; `ref` the original it is about; `why` one word.
    """

    why: str
    hash: str
    position: int = 0
    instead_of: str = ""
    after: int = -1
    under: int = 0
    ref: str = ""


class Shown(Struct, frozen=True, omit_defaults=True):
    """A message of the context: the hash of its content, and where it comes from.

    `position` is that of the log's message, 0 for one a compaction or revision wrote; `added` says why one was added.
    `at` is when it was written, empty when nobody knows.
    """

    hash: str
    position: int = 0
    added: str = ""
    ref: str = ""
    at: str = ""


class Compacted(Struct, frozen=True):
    """A compaction of the log, with its place."""

    position: int
    created_at: str
    note: CompactionNote
    is_active: bool = True


class Sight(Struct, frozen=True):
    """What is to be known of a log to compute its context."""

    compactions: tuple[Compacted, ...]
    revisions: tuple[Revision, ...]
    can_redo: tuple[Compacted, ...] = ()

    @property
    def last(self) -> Compacted | None:
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


def look(entries: Iterable[Entry]) -> Sight:
    """Read the entries that are no messages, in order."""
    made: list[Compacted] = []
    active: list[int] = []
    undone: list[int] = []
    revisions: list[Revision] = []
    for entry in entries:
        if entry.kind == COMPACTION:
            active.append(len(made))
            made.append(
                Compacted(entry.position, entry.created_at, msgspec.json.decode(entry.body, type=CompactionNote))
            )
            undone.clear()
        elif entry.kind == UNDO and active:
            undone.append(active.pop())
        elif entry.kind == REDO and undone:
            active.append(undone.pop())
        elif entry.kind == REVISION:
            revisions.append(msgspec.json.decode(entry.body, type=Revision))
    compactions = (Compacted(each.position, each.created_at, each.note, at in active) for at, each in enumerate(made))
    return Sight(tuple(compactions), tuple(revisions), tuple(made[at] for at in undone))


def show(sight: Sight, items: Sequence[Shown], messages: Iterable[Entry]) -> list[Shown]:
    """The context: the items of the last compaction, then the messages behind its base, each as it was last revised."""
    shown = list(items)
    shown += [Shown(entry.hash, entry.position, at=entry.created_at) for entry in messages if entry.kind == MESSAGE]
    for revision in sight.revisions:
        if revision.position or revision.under == sight.under:
            _revise(shown, revision, sight.base, len(items))
    return shown


def _revise(shown: list[Shown], revision: Revision, base: int, items: int) -> None:
    if not revision.position and not revision.instead_of:
        _add(shown, revision, base, items)
        return
    for at, each in enumerate(shown):
        is_logged = base < revision.position == each.position
        if is_logged or (revision.instead_of and each.hash == revision.instead_of):
            shown[at] = Shown(revision.hash, each.position, "", revision.ref, each.at)
            return


def _add(shown: list[Shown], revision: Revision, base: int, items: int) -> None:
    behind = [at for at, each in enumerate(shown) if base < each.position <= revision.after]
    at = behind[-1] + 1 if behind else items
    while at < len(shown) and shown[at].added:
        at += 1
    shown.insert(at, Shown(revision.hash, 0, revision.why, revision.ref))
