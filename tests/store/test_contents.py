"""Contents: any bytes under their hash, each once, checked whenever they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import DamagedContent, StoreError
from context_compactor.protocols import Store
from context_compactor.store.rows import hash_of
from context_compactor.store.sqlite import SqliteStore
from tests.store.conftest import Hand
from tests.store.rows import AT, put_list

LONG = b"a line that is long enough to be packed, and packs well\n" * 200


def count(store: SqliteStore) -> int:
    """How many contents there are."""
    return int(store._database.row("SELECT count(*) FROM contents")[0])


def test_a_content_comes_back_under_its_hash(store: Store):
    contents = [b"short", LONG, b"", bytes(range(256)) * 3]
    names = store.put(contents)
    assert names == [hash_of(content) for content in contents]
    assert store.get(names) == dict(zip(names, contents, strict=True))


def test_the_same_bytes_are_kept_once_whoever_puts_them(store: SqliteStore):
    store.put([LONG, LONG, b"1"])
    store.put([LONG])
    store.append("a", "message", [LONG], AT)
    store.append("b", "message", [LONG, LONG], AT)
    put_list(store, [LONG, b"1"])
    assert count(store) == 3


def test_a_list_is_kept_as_its_parts_and_comes_back_whole(store: SqliteStore):
    parts = [b'{"role":"user"}', LONG, b'{"role":"user"}']
    name = put_list(store, parts)
    whole = b"[" + b",".join(parts) + b"]"
    assert name == hash_of(whole)
    assert store.get([name]) == {name: whole}
    assert count(store) == 3
    assert put_list(store, parts) == name
    assert store.put([whole]) == [name]
    assert count(store) == 3


def test_an_empty_list_is_a_list(store: Store):
    name = put_list(store, [])
    assert store.get([name]) == {name: b"[]"}


def test_a_list_may_stand_in_a_list_and_both_are_read_at_once(store: Store):
    names, wanted = [], {}
    for number in range(12):
        inner = b"[%d,2]" % number
        outer = b"[[%d,2],3]" % number
        names += [put_list(store, [b"%d" % number, b"2"]), put_list(store, [inner, b"3"])]
        wanted |= {hash_of(inner): inner, hash_of(outer): outer}
    assert store.get(names) == wanted
    assert store.get(reversed(names)) == wanted


def test_a_list_with_an_empty_part_is_read_beside_it(store: Store):
    (empty,), name = store.put([b""]), put_list(store, [b"", b"1"])
    assert store.get([name, empty]) == {name: b"[,1]", empty: b""}


def test_many_contents_are_read_at_once_and_each_only_once(store: Store):
    contents = [b"%d" % number for number in range(1_300)]
    names = store.put(contents)
    assert list(store.get(names * 2).values()) == contents
    assert store.get([]) == {}


def test_a_content_that_is_not_there_is_named(store: Store):
    missing = hash_of(b"never put")
    with pytest.raises(DamagedContent, match=missing):
        store.get([missing])


@pytest.mark.parametrize("content", [b"short", LONG, bytes(range(256)) * 3])
def test_a_content_that_has_changed_is_never_handed_out(store: Store, hand: Hand, content: bytes):
    (name,) = store.put([content])
    store.append("a", "message", [content], AT)
    hand.change_content(name)
    with pytest.raises(DamagedContent, match=name):
        store.get([name])
    with pytest.raises(DamagedContent, match=name):
        store.entries("a")


def test_a_list_whose_part_has_changed_or_gone_is_never_handed_out(store: Store, hand: Hand):
    first, second = put_list(store, [b"1", LONG]), put_list(store, [b"2", b"3"])
    hand.change_content(hash_of(LONG))
    hand.remove_content(hash_of(b"3"))
    for name in (first, second):
        with pytest.raises(DamagedContent):
            store.get([name])


def test_whatever_bit_of_a_packed_content_turns_it_is_told_or_harmless(store: SqliteStore):
    (name,) = store.put([LONG])
    (stored,) = store._database.row("SELECT bytes FROM contents WHERE hash = ?", [bytes.fromhex(name)])
    for at in range(len(stored) * 8):
        changed = bytearray(stored)
        changed[at // 8] ^= 1 << at % 8
        store._database.write("UPDATE contents SET bytes = ? WHERE hash = ?", [bytes(changed), bytes.fromhex(name)])
        try:
            assert store.get([name]) == {name: LONG}
        except DamagedContent:
            continue


def test_a_damaged_content_does_not_stand_in_the_way_of_others(store: Store, hand: Hand):
    names = store.put([b"damaged", b"whole"])
    hand.change_content(names[0])
    assert store.get(names[1:]) == {names[1]: b"whole"}
    assert issubclass(DamagedContent, StoreError)


@given(st.lists(st.binary(max_size=400), max_size=12))
def test_any_contents_come_back_as_they_were(contents: list[bytes]):
    store = SqliteStore()
    names = store.put(contents)
    name = put_list(store, contents)
    assert [store.get(names)[each] for each in names] == contents
    assert store.get([name])[name] == b"[" + b",".join(contents) + b"]"
    assert list(store.verify()) == []
    store.close()
