"""Plain values for tests of stores."""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.protocols import Store
from context_compactor.store.rows import NewOriginal, PassageRun

AT = "2026-03-01T10:00:00.000+00:00"
LATER = "2026-03-01T11:00:00.000+00:00"
LATEST = "2026-03-02T09:00:00.000+00:00"


def bodies(*texts: str) -> list[bytes]:
    """Texts as bodies of entries."""
    return [text.encode() for text in texts]


def texts_of(store: Store, session_id: str = "a", **wanted) -> list[str]:
    """The bodies of a log as texts."""
    return [entry.body.decode() for entry in store.entries(session_id, **wanted)]


def item(store: Store, ref: str, value: str, *, kind: str = "test run", terms: str = "") -> NewOriginal:
    """An original whose value is in the store."""
    (name,) = store.put([value.encode()])
    runs = (PassageRun(1, 10, terms, terms.encode()),) if terms else ()
    return NewOriginal(ref, kind, f"summary of {ref}", 10, f'recall("{ref}")', "re-run", "pytest -q", name, runs)


def put_list(store: Store, parts: Sequence[bytes]) -> str:
    """Store a JSON list whose values are contents of their own; the hash of the whole list."""
    return store.put(store.ready_list(parts))[-1]
