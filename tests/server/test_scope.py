"""A namespace is a wall: whatever ids there are, each scope sees its own and all of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadSetting
from context_compactor.server.tokens import Scope
from context_compactor.store.sqlite import SqliteStore

NAMES = st.text(alphabet="ab0.-_/~\U0010ffffé", min_size=1, max_size=4)
SPACES = st.sampled_from(["", "a", "ab", "a.b", "b"])


@given(st.lists(st.tuples(SPACES, NAMES), max_size=25), st.integers(1, 4))
def test_lists_are_complete_and_never_cross(made, limit):
    store = SqliteStore()
    wanted: dict[str, set[str]] = {}
    for space, name in made:
        try:
            store_id = Scope(space).new_store_id(name)
        except BadSetting:
            assert "/" in name or name == "."
            continue
        store.open_session(store_id, b"{}", "2026-01-01")
        wanted.setdefault(space, set()).add(name)
        assert Scope(space).public_id(store_id) == name
    for space in ("", "a", "ab", "a.b", "b", "c"):
        scope, found, after = Scope(space), [], None
        while rows := scope.sessions(store, after, limit):
            found += [scope.public_id(row.id) for row in rows]
            after = found[-1]
        assert found == sorted(wanted.get(space, set()))
    store.close()


@given(SPACES, NAMES, SPACES, NAMES)
def test_two_sessions_have_one_place_only_when_they_are_the_same(space, name, other_space, other_name):
    try:
        first, second = Scope(space).new_store_id(name), Scope(other_space).new_store_id(other_name)
    except BadSetting:
        return
    assert (first == second) == ((space, name) == (other_space, other_name))
    assert Scope(space).includes(second) == (space == other_space)
