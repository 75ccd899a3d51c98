"""A crossing is not lost when its store is moved."""

from __future__ import annotations

from context_compactor.archive.storage import terms_of
from context_compactor.store.copy import copy_sessions
from context_compactor.store.sql_store import SqlStore
from tests.jobs.place import Place, fill
from tests.waiting import PATIENCE


def test_what_was_to_be_compacted_is_compacted_in_the_copy():
    here, there = Place("memory:"), Place("memory:")
    with here.session("a") as session:
        fill(session, 0.82)
    assert isinstance(here.store, SqlStore)
    assert isinstance(there.store, SqlStore)
    list(copy_sessions(here.store, there.store, terms_of))
    with there.engine() as engine:
        assert engine.wait_idle(PATIENCE)
    with there.session("a") as session:
        assert len(session.compactions()) == 1
        assert session.usage().share < 0.82
    here.close()
    there.close()
