"""The archive: the first original under an id stays for ever; what is there twice is found once."""

from __future__ import annotations

import pytest
from msgspec import structs

from context_compactor.errors import DamagedContent
from context_compactor.protocols import Store
from context_compactor.store import originals as ranking
from context_compactor.store.rows import NewOriginal, PassageRun, hash_of
from tests.store.rows import AT, LATER, LATEST, item


def refs(store: Store, session_id: str = "a", **wanted) -> list[str]:
    return [each.ref for each in store.originals(session_id, **wanted)]


def test_an_original_comes_back_as_it_was_archived(store: Store):
    given = item(store, "tool_001", '"the value"')
    assert store.archive("a", [given], AT) == ["tool_001"]
    found = store.original("a", "tool_001")
    assert found is not None
    for name in ("ref", "kind", "summary", "tokens", "recovery", "hint", "target", "content"):
        assert getattr(found, name) == getattr(given, name)
    assert (found.created_at, found.same_as) == (AT, "")
    assert store.get([found.content])[found.content] == b'"the value"'
    assert store.originals("a") == [found]


def test_an_id_that_names_nothing_has_no_original(store: Store):
    store.archive("a", [item(store, "tool_001", "1")], AT)
    assert store.original("a", "tool_002") is None
    assert store.original("b", "tool_001") is None
    assert store.originals("b") == []


def test_the_first_original_under_an_id_stays(store: Store):
    store.archive("a", [item(store, "tool_001", '"first"')], AT)
    second = [item(store, "tool_001", '"second"', kind="turn"), item(store, "tool_002", '"new"')]
    assert store.archive("a", second, LATER) == ["tool_002"]
    found = store.original("a", "tool_001")
    assert found is not None
    assert (found.content, found.kind, found.created_at) == (hash_of(b'"first"'), "test run", AT)


def test_an_id_twice_in_one_go_is_archived_once(store: Store):
    given = [item(store, "tool_001", '"first"'), item(store, "tool_001", '"second"')]
    assert store.archive("a", given, AT) == ["tool_001"]
    assert [each.content for each in store.originals("a")] == [hash_of(b'"first"')]


def test_the_same_id_in_another_session_is_another_original(store: Store):
    store.archive("a", [item(store, "tool_001", '"of a"')], AT)
    assert store.archive("b", [item(store, "tool_001", '"of b"')], AT) == ["tool_001"]
    found = store.original("b", "tool_001")
    assert found is not None
    assert found.content == hash_of(b'"of b"')


def test_a_value_that_is_archived_already_refers_to_the_first_of_its_kind(store: Store):
    values = {"tool_001": '"same"', "tool_002": '"same"', "tool_003": '"other"', "tool_004": '"same"'}
    store.archive("a", [item(store, ref, value, terms="common") for ref, value in values.items()], AT)
    store.archive("b", [item(store, "tool_009", '"same"', terms="common")], AT)
    assert [each.same_as for each in store.originals("a")] == ["", "tool_001", "", "tool_001"]
    assert [each.same_as for each in store.originals("b")] == [""]
    assert [each.ref for each in store.search("a", {"common": 1.0}, most=99)] == ["tool_001", "tool_003"]


def test_a_value_that_is_not_in_the_store_cannot_be_archived(store: Store):
    lost = NewOriginal("tool_002", "turn", "", 1, "", "", "", hash_of(b"never put"))
    with pytest.raises(DamagedContent):
        store.archive("a", [item(store, "tool_001", "1"), lost], AT)
    assert store.originals("a") == []


def test_originals_are_listed_in_order_and_by_kind_time_and_place(store: Store):
    store.archive("a", [item(store, "tool_002", "1"), item(store, "turn_001", "2", kind="turn")], AT)
    store.archive("a", [item(store, "tool_001", "3")], LATER)
    store.archive("a", [item(store, "turn_002", "4", kind="turn")], LATEST)
    assert refs(store) == ["tool_002", "turn_001", "tool_001", "turn_002"]
    assert refs(store, kind="turn") == ["turn_001", "turn_002"]
    assert refs(store, since=LATER) == ["tool_001", "turn_002"]
    assert refs(store, until=LATER) == ["tool_002", "turn_001"]
    assert refs(store, since=LATER, until=LATEST) == ["tool_001"]
    assert refs(store, newest=2) == ["tool_001", "turn_002"]
    assert refs(store, newest=1, kind="test run") == ["tool_001"]
    assert refs(store, newest=99) == refs(store)
    second = store.originals("a")[1].number
    assert refs(store, after=second) == ["tool_001", "turn_002"]
    assert refs(store, after=second, newest=1) == ["turn_002"]
    last = store.originals("a")[-1].number
    assert refs(store, after=last, newest=3) == []
    assert refs(store, limit=3) == ["tool_002", "turn_001", "tool_001"]
    assert refs(store, after=second, limit=1) == ["tool_001"]
    assert refs(store, kind="turn", limit=1) == ["turn_001"]


# Search


@pytest.fixture
def searchable(store: Store) -> Store:
    """A store with some words to look for, far from each other, and with other words in another session."""
    texts = {5: "token expiry", 20: "token refresh", 30: "invoice"}
    terms = {f"tool_{at:03}": texts.get(at, f"filler{at} more") for at in range(40)}
    store.archive("a", [item(store, ref, f'"{ref}"', terms=text) for ref, text in terms.items()], AT)
    store.archive("b", [item(store, "tool_001", '"of b"', terms="token expiry")], AT)
    return store


def found(store: Store, *terms: str, session_id: str = "a", most: int = 80, **wanted) -> list[str]:
    return [each.ref for each in store.search(session_id, dict.fromkeys(terms, 1.0), most=most, **wanted)]


def around(*places: int) -> list[str]:
    return [f"tool_{at:03}" for place in places for at in range(max(place - 3, 0), place + 4)]


def test_all_runs_are_found_while_they_are_no_more_than_was_asked_for(searchable: Store):
    assert found(searchable, "invoice", most=10_000) == [f"tool_{at:03}" for at in range(40)]
    (run,) = searchable.search("b", {}, most=100)
    assert (run.ref, run.position, run.body) == ("tool_001", 0, b"token expiry")


def test_of_many_runs_those_that_hold_a_term_come_with_their_neighbours_in_order(searchable: Store):
    assert found(searchable, "refresh") == around(20)
    assert found(searchable, "invoice", "expiry", most=200) == around(5, 30)
    assert found(searchable, "nowhere") == []
    assert [each.position for each in searchable.search("a", {"refresh": 1.0}, most=80)] == list(range(17, 24))


def test_the_run_whose_terms_are_rarer_goes_before_the_newer_one(searchable: Store):
    assert found(searchable, "token", "expiry", most=90) == around(5)
    assert found(searchable, "token", most=90) == around(20)


def test_without_a_term_the_newest_runs_are_found(searchable: Store):
    assert found(searchable, most=30) == ["tool_037", "tool_038", "tool_039"]


def test_a_run_of_several_passages_brings_the_runs_beside_it(store: Store):
    def item_of(ref: str, terms: str) -> NewOriginal:
        return structs.replace(
            item(store, ref, f'"{ref}"'), runs=tuple(PassageRun(9, 50, word, b"") for word in terms.split())
        )

    store.archive("a", [item_of("tool_001", "one two three"), item_of("tool_002", "four five six")], AT)
    hits = store.search("a", {"three": 1.0}, most=200)
    assert [(each.ref, each.position) for each in hits] == [("tool_001", 9), ("tool_001", 18), ("tool_002", 27)]


def test_a_search_keeps_to_its_session_its_kind_and_its_time(searchable: Store):
    late = [item(searchable, f"turn_{at:03}", f'"late {at}"', kind="turn", terms=f"token late{at}") for at in range(12)]
    searchable.archive("a", late[:6], LATER)
    searchable.archive("a", late[6:], LATEST)
    assert found(searchable, "token", session_id="b") == ["tool_001"]
    assert set(found(searchable, "token", most=60, kind="turn")) <= {each.ref for each in late}
    assert set(found(searchable, "token", most=60, since=LATEST)) <= {each.ref for each in late[6:]}
    assert found(searchable, "token", most=60, since=LATER, until=LATEST, kind="turn")[-1] == "turn_005"
    assert found(searchable, "refresh", until=LATER) == around(20)
    assert found(searchable, "token", kind="turn", until=LATER) == []
    assert found(searchable, "token", kind="no such kind") == []
    assert found(searchable, "token", since="9") == []


def test_what_was_archived_while_the_clock_went_backwards_is_found_by_its_time(store: Store):
    for at, when in enumerate((AT, LATEST, LATER)):
        store.archive("a", [item(store, f"tool_{at:03}", f"{at}", terms="token")], when)
    assert found(store, "token", since=LATER) == ["tool_001", "tool_002"]
    assert found(store, "token", until=LATER) == ["tool_000"]
    assert found(store, "token", since=LATER, until=LATEST) == ["tool_002"]


@pytest.mark.parametrize(
    "term",
    ['"', 'a"b', "a\0b", "…", "AND", "NEAR(", "*", "kind:", "terms : token", "x" * 10_000, "\ud800", "", " ", "a b"],
    ids=lambda term: ascii(term[:20]),
)
def test_a_term_is_only_ever_a_word(searchable: Store, term: str):
    assert found(searchable, term) == []
    assert found(searchable, term, "invoice") == around(30)


def test_words_that_stand_in_most_runs_are_looked_for_among_the_newest_and_beside_rarer_ones(
    searchable: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ranking, "_MOST_RUNS", 2)
    assert found(searchable, "more") == [f"tool_{at:03}" for at in range(35, 40)]
    assert found(searchable, "more", "token") == around(20)
    searchable.archive("a", [item(searchable, "tool_040", '"40"', terms="more token")], AT)
    assert found(searchable, "more", "expiry", "token", most=90) == around(5)


def test_a_term_of_little_weight_does_not_keep_others_from_choosing(searchable: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranking, "_MOST_RUNS", 3)
    refs = [each.ref for each in searchable.search("a", {"more": 1.0, "invoice": 0.1}, most=100)]
    assert refs[-1] == "tool_039"
