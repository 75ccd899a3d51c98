"""Proof that a session is whole: beside what the store checks, everything its compactions and revisions speak of."""

from __future__ import annotations

from collections.abc import Iterator

from context_compactor.errors import DamagedContent
from context_compactor.protocols import Store
from context_compactor.session.lens import Lens


def missing(store: Store, session_id: str) -> Iterator[str]:
    """One line for each compaction or revision of which something is gone."""
    lens = Lens(store, session_id)
    sight = lens.sight()
    for compacted in sight.compactions:
        try:
            items = lens.items(compacted)
            store.get([compacted.note.report, *(item.hash for item in items)])
        except DamagedContent as error:
            yield f"session {session_id}: compaction {compacted.note.id}: {error}"
    for revision in sight.revisions:
        try:
            store.get([revision.hash])
        except DamagedContent as error:
            yield f"session {session_id}: {revision.why} {revision.ref}: {error}"
