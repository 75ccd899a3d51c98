"""Sessions, what they remember, who holds them, and their facts."""

from __future__ import annotations

import pytest

from context_compactor.errors import StoreError
from context_compactor.protocols import Store
from context_compactor.store.rows import FactRow
from tests.store.rows import AT, LATER, LATEST


def test_opening_a_session_that_is_there_changes_nothing(store: Store):
    store.save_state("a", b'{"known":1}')
    row = store.open_session("a", b'{"window":7}', LATER)
    assert row == store.session("a")
    assert (row.profile, row.state, row.created_at) == (b'{"window":1000}', b'{"known":1}', AT)


def test_profile_and_state_are_kept_as_they_are(store: Store):
    strange = '{"é": "日本", "n": [1, 2.5, null]}'.encode()
    store.save_profile("a", strange)
    store.save_state("a", b"any bytes \x00\xff")
    assert (store.session("a").profile, store.session("a").state) == (strange, b"any bytes \x00\xff")
    assert store.session("b").state == b"{}"


def test_sessions_are_listed_by_id_page_by_page(store: Store):
    for number in range(25):
        store.open_session(f"run-{number:02d}", b"{}", LATER)
    everyone = [row.id for row in store.sessions()]
    assert everyone == sorted(everyone)
    assert len(everyone) == 27
    pages, after = [], ""
    while page := store.sessions(limit=10, after=after):
        pages.append([row.id for row in page])
        after = page[-1].id
    assert [len(page) for page in pages] == [10, 10, 7]
    assert [each for page in pages for each in page] == everyone
    assert store.sessions(after="run-24") == []
    assert store.sessions(limit=0) == []


@pytest.mark.parametrize("name", ['it\'s "quoted"', "a/b:c\\d", "日本 👍🏽", "%_*?", " a ", "x" * 300])
def test_a_session_may_have_any_name(store: Store, name: str):
    store.open_session(name, b"{}", AT)
    store.append(name, "message", [b"1"], AT)
    assert store.session(name).messages == 1
    assert store.session("a").messages == 0


def test_holders_come_and_go(store: Store):
    store.hold("a", "host:2:ff", LATER)
    store.hold("a", "host:1:aa", AT)
    store.hold("b", "host:1:aa", AT)
    assert store.holders("a") == {"host:1:aa": AT, "host:2:ff": LATER}
    store.hold("a", "host:1:aa", LATEST)
    store.release("a", "host:2:ff")
    store.release("a", "nobody")
    assert store.holders("a") == {"host:1:aa": LATEST}
    assert store.holders("b") == {"host:1:aa": AT}


# Facts


def known(store: Store, session_id: str = "a", kind: str = "") -> list[tuple[str, int, bytes]]:
    return [(fact.kind, fact.turn, fact.body) for fact in store.facts(session_id, kind)]


def test_facts_are_listed_by_turn_and_asked_for_by_kind(store: Store):
    facts = [FactRow("error", 3, b"late"), FactRow("decision", 1, b"early"), FactRow("error", 1, b"first")]
    store.put_facts("a", facts, LATER)
    assert known(store) == [("decision", 1, b"early"), ("error", 1, b"first"), ("error", 3, b"late")]
    assert known(store, kind="error") == [("error", 1, b"first"), ("error", 3, b"late")]
    assert known(store, kind="no such kind") == []
    assert known(store, "b") == []
    assert {fact.updated_at for fact in store.facts("a")} == {LATER}


def test_a_fact_of_the_same_kind_turn_and_content_takes_the_place_of_what_was_known(store: Store):
    store.put_facts("a", [FactRow("error", 1, b"same", "old pattern"), FactRow("error", 1, b"other")], AT)
    store.put_facts("a", [FactRow("error", 1, b"same", "new pattern")], LATER)
    facts = {fact.body: fact for fact in store.facts("a")}
    assert facts.keys() == {b"same", b"other"}
    assert (facts[b"same"].pattern, facts[b"same"].updated_at) == ("new pattern", LATER)
    assert facts[b"other"].updated_at == AT


def test_facts_are_forgotten_from_a_turn_on(store: Store):
    store.put_facts("a", [FactRow("error", turn, b"%d" % turn) for turn in range(1, 6)], AT)
    store.put_facts("b", [FactRow("error", 4, b"of another session")], AT)
    store.drop_facts("a", 4)
    assert [turn for _, turn, _ in known(store)] == [1, 2, 3]
    assert len(known(store, "b")) == 1


def test_sessions_that_have_seen_the_same_are_found_by_pattern(store: Store):
    store.put_facts("a", [FactRow("error", 1, b"x", "both"), FactRow("error", 2, b"y", "both")], AT)
    store.put_facts("b", [FactRow("error", 9, b"z", "both"), FactRow("failure", 1, b"w", "one")], AT)
    assert store.sessions_with(["both", "one", "none", "both"]) == {"both": {"a", "b"}, "one": {"b"}}
    assert store.sessions_with([]) == {}
    many = [f"pattern {number}" for number in range(2_000)]
    assert store.sessions_with([*many, "one"]) == {"one": {"b"}}


# Closing


def test_a_store_that_was_closed_says_so(store: Store):
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.session("a")
    with pytest.raises(StoreError, match="closed"):
        store.append("a", "message", [b"1"], AT)
