"""Verify: hashes everything again and finds what somebody has changed behind the store's back."""

from __future__ import annotations

import pytest

from context_compactor.protocols import Store
from context_compactor.store.rows import hash_of
from tests.store.conftest import Hand
from tests.store.rows import AT, bodies, item, put_list


@pytest.fixture
def filled(store: Store) -> Store:
    """A store with something of everything in it."""
    store.append("a", "message", bodies(*(f"message {number}" for number in range(6))), AT)
    store.append("a", "compaction", bodies("a compaction"), AT)
    store.append("b", "message", bodies("message 0", "of b"), AT)
    put_list(store, [b"1", b"2"])
    store.archive("a", [item(store, "tool_001", '"archived"')], AT)
    return store


def test_a_store_that_nobody_touched_is_as_it_was_stored(filled: Store):
    assert list(filled.verify()) == []
    assert list(filled.verify("a")) == []


def test_a_changed_byte_of_a_content_is_found(filled: Store, hand: Hand):
    name = hash_of(b"message 3")
    hand.change_content(name)
    (said,) = filled.verify()
    assert name in said


def test_a_part_of_a_list_that_is_gone_is_found(filled: Store, hand: Hand):
    hand.remove_content(hash_of(b"2"))
    (said,) = filled.verify()
    assert hash_of(b"[1,2]") in said


def test_an_entry_whose_content_is_gone_is_found(filled: Store, hand: Hand):
    hand.remove_content(hash_of(b"message 3"))
    (said,) = filled.verify()
    assert "session a" in said
    assert "entry 4" in said


def test_an_original_whose_content_is_gone_is_found(filled: Store, hand: Hand):
    hand.remove_content(hash_of(b'"archived"'))
    (said,) = filled.verify()
    assert "tool_001" in said


@pytest.mark.parametrize("position", [1, 4, 7])
def test_an_entry_that_was_taken_out_is_found(filled: Store, hand: Hand, position: int):
    hand.remove_entry("a", position)
    (said,) = filled.verify()
    assert "session a" in said
    assert "missing" in said


def test_two_entries_that_were_swapped_are_found(filled: Store, hand: Hand):
    hand.swap_entries("a", 2, 5)
    (said,) = filled.verify()
    assert "session a" in said
    assert "entry 2" in said


def test_a_log_that_was_cut_is_found(filled: Store, hand: Hand):
    hand.cut_log("a", 4)
    (said,) = filled.verify("a")
    assert "3 entries are missing" in said


def test_a_log_that_was_cut_and_counted_anew_is_found(filled: Store, hand: Hand):
    hand.forge_log("a", 4)
    (said,) = filled.verify("a")
    assert "session a" in said


def test_one_session_is_verified_without_the_logs_of_others(filled: Store, hand: Hand):
    hand.cut_log("b", 1)
    assert list(filled.verify("a")) == []
    assert len(list(filled.verify("b"))) == 1
    assert len(list(filled.verify())) == 1
