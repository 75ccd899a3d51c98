"""The log: entries are only ever added, in one order, all or none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from context_compactor.errors import StoreError, UnknownSession
from context_compactor.protocols import Store
from context_compactor.store.rows import FactRow, hash_of
from context_compactor.store.service_store import service_store_of
from tests.store.rows import AT, LATER, bodies, item, texts_of


def test_entries_come_back_in_the_order_they_were_added(store: Store):
    store.append("a", "message", bodies("one", "two"), AT)
    store.append("a", "undo", bodies("three"), LATER)
    entries = store.entries("a")
    assert [(each.position, each.kind, each.created_at, each.body) for each in entries] == [
        (1, "message", AT, b"one"),
        (2, "message", AT, b"two"),
        (3, "undo", LATER, b"three"),
    ]
    assert [each.hash for each in entries] == [hash_of(each.body) for each in entries]


def test_append_answers_with_the_position_of_the_last_entry(store: Store):
    assert store.append("a", "message", bodies("one", "two"), AT) == 2
    assert store.append("a", "message", bodies("three"), AT) == 3
    assert store.append("a", "message", [], AT) == 3
    assert texts_of(store) == ["one", "two", "three"]


def test_bodies_may_come_from_a_generator(store: Store):
    store.append("a", "message", (text.encode() for text in ("one", "two")), AT)
    assert texts_of(store) == ["one", "two"]


def test_sessions_count_on_their_own(store: Store):
    assert store.append("a", "message", bodies("of a"), AT) == 1
    assert store.append("b", "message", bodies("of b"), AT) == 1
    assert (texts_of(store, "a"), texts_of(store, "b")) == (["of a"], ["of b"])


def test_entries_are_found_by_kind_and_by_place(store: Store):
    for kind, text in (("message", "1"), ("revision", "2"), ("message", "3"), ("undo", "4"), ("message", "5")):
        store.append("a", kind, bodies(text), AT)
    assert texts_of(store, kinds=("message",)) == ["1", "3", "5"]
    assert texts_of(store, kinds=("revision", "undo")) == ["2", "4"]
    assert texts_of(store, kinds=("message", "undo"), after=1) == ["3", "4", "5"]
    assert texts_of(store, kinds=("compaction",)) == []
    assert texts_of(store, after=2, until=4) == ["3", "4"]
    assert texts_of(store, after=5) == []
    assert texts_of(store, until=0) == []


def test_a_message_is_found_by_how_many_there_are_up_to_it(store: Store):
    for kind in ("message", "revision", "message", "undo", "undo", "message"):
        store.append("a", kind, bodies(kind), AT)
    assert [store.message_position("a", count) for count in (1, 2, 3, 4)] == [1, 3, 6, None]


@pytest.mark.parametrize("shape", ["", "u", "um", "uum", "mu", "mmuuumumu", "ummmmmmu", "mumumumum"])
def test_that_holds_wherever_entries_stand_that_are_no_message(store: Store, shape: str):
    for letter in shape:
        store.append("a", "message" if letter == "m" else "undo", bodies(letter), AT)
    places = [place for place, letter in enumerate(shape, 1) if letter == "m"]
    found = [store.message_position("a", count) for count in range(1, len(places) + 2)]
    assert found == [*places, None]


def test_the_row_knows_the_head_the_messages_and_the_last_entry_that_is_none(store: Store):
    def row() -> tuple[int, int, int]:
        known = store.session("a")
        return known.head, known.messages, known.view

    assert row() == (0, 0, 0)
    store.append("a", "message", bodies("1", "2"), AT)
    assert row() == (2, 2, 0)
    store.append("a", "compaction", bodies("3"), AT)
    assert row() == (3, 2, 3)
    store.append("a", "message", bodies("4"), AT)
    assert row() == (4, 3, 3)
    store.append("a", "undo", [], AT)
    assert row() == (4, 3, 3)
    store.append("a", "undo", bodies("5", "6"), AT)
    assert row() == (6, 3, 6)


def test_an_entry_moves_the_time_of_its_session_and_of_no_other(store: Store):
    store.append("a", "message", bodies("1"), LATER)
    assert (store.session("a").created_at, store.session("a").updated_at) == (AT, LATER)
    assert store.session("b").updated_at == AT


def test_any_bytes_can_be_a_body(store: Store):
    strange = [b"", b"\x00", bytes(range(256)), b"x" * 100_000, "日本語 👍🏽".encode(), b"\xff\xfe not text"]
    store.append("a", "message", strange, AT)
    assert [each.body for each in store.entries("a")] == strange


def test_the_same_body_may_be_said_twice(store: Store):
    store.append("a", "message", bodies("ok", "ok"), AT)
    store.append("a", "message", bodies("ok"), AT)
    assert texts_of(store) == ["ok", "ok", "ok"]


@pytest.mark.parametrize(
    "verb",
    [
        lambda store: store.session("x"),
        lambda store: store.append("x", "message", [b"1"], AT),
        lambda store: store.entries("x"),
        lambda store: store.message_position("x", 1),
        lambda store: store.save_state("x", b"{}"),
        lambda store: store.save_profile("x", b"{}"),
        lambda store: store.archive("x", [], AT),
        lambda store: store.original("x", "tool_001"),
        lambda store: store.originals("x"),
        lambda store: store.search("x", {"word": 1.0}, most=5),
        lambda store: store.put_facts("x", [], AT),
        lambda store: store.drop_facts("x", 1),
        lambda store: store.facts("x"),
        lambda store: store.hold("x", "me", AT),
        lambda store: store.release("x", "me"),
        lambda store: store.holders("x"),
        lambda store: store.writing("x").__enter__(),
        lambda store: list(store.verify("x")),
    ],
)
def test_a_session_that_is_not_there_is_named_with_those_that_are(store: Store, verb):
    with pytest.raises(UnknownSession, match=r"no session 'x' .*'a', 'b'"):
        verb(store)


# One transaction


class Interrupted(Exception):
    pass


def everything(store: Store) -> list[object]:
    """All that one can see of a store."""
    return [
        [
            store.sessions(),
            store.entries(row.id),
            store.originals(row.id),
            store.facts(row.id),
            store.holders(row.id),
            list(store.verify(row.id)),
        ]
        for row in store.sessions()
    ]


def write_all_over(store: Store) -> None:
    """Use every verb that writes."""
    store.open_session("c", b"{}", LATER)
    store.append("a", "message", bodies("one", "two"), LATER)
    store.append("b", "undo", bodies("three"), LATER)
    store.archive("a", [item(store, "tool_001", '"value"', terms="some words")], LATER)
    store.put_facts("a", [FactRow("decision", 1, b"{}", "pattern")], LATER)
    store.save_state("a", b'{"changed":1}')
    store.save_profile("a", b'{"changed":1}')
    store.hold("a", "me", LATER)


def broken_off(store: Store, session_id: str, write: Callable[[Store], object]) -> None:
    """A block that writes and then raises."""
    with store.writing(session_id):
        write(store)
        raise Interrupted


def test_what_is_written_in_one_block_is_there_afterwards(store: Store):
    with store.writing("a") as row:
        assert row == store.session("a")
        write_all_over(store)
        assert texts_of(store) == ["one", "two"]
    assert texts_of(store) == ["one", "two"]
    assert [each.id for each in store.sessions()] == ["a", "b", "c"]


def test_a_block_that_raises_leaves_nothing(store: Store):
    store.append("a", "message", bodies("before"), AT)
    before = everything(store)
    with pytest.raises(Interrupted):
        broken_off(store, "a", write_all_over)
    assert everything(store) == before
    assert store.append("a", "message", bodies("after"), AT) == 2
    assert texts_of(store) == ["before", "after"]


def test_a_block_within_a_block_happens_with_it_or_not_at_all(store: Store):
    with store.writing("a"):
        store.append("a", "message", bodies("outer"), AT)
        with store.writing("a") as inner:
            assert inner.head == 1
            store.append("a", "message", bodies("inner"), AT)
    assert texts_of(store) == ["outer", "inner"]
    before = everything(store)

    def write_within(store: Store) -> None:
        with store.writing("b"):
            write_all_over(store)

    with pytest.raises(Interrupted):
        broken_off(store, "a", write_within)
    assert everything(store) == before


def test_a_block_within_a_block_that_raises_leaves_nothing_of_both_even_when_the_outer_one_goes_on(store: Store):
    def go_on(store: Store) -> None:
        with store.writing("a"):
            store.append("a", "message", bodies("outer"), AT)
            with pytest.raises(Interrupted):
                broken_off(store, "b", write_all_over)
            store.append("a", "message", bodies("outer again"), AT)

    before = everything(store)
    with pytest.raises(StoreError, match="a statement of this transaction failed"):
        go_on(store)
    assert everything(store) == before
    store.append("a", "message", bodies("after"), AT)
    assert texts_of(store) == ["after"]


def test_a_part_that_raises_leaves_nothing_and_the_rest_is_kept(store: Store):
    service_store = service_store_of(store)
    with store.writing("a"):
        store.append("a", "message", bodies("outer"), AT)
        with pytest.raises(Interrupted), service_store.savepoint():
            broken_off(store, "b", write_all_over)
        with service_store.savepoint():
            store.append("b", "message", bodies("part"), AT)
        store.append("a", "message", bodies("outer again"), AT)
    assert texts_of(store) == ["outer", "outer again"]
    assert (texts_of(store, "b"), store.facts("a"), store.originals("a")) == (["part"], [], [])
    assert list(store.verify()) == []


def test_bodies_that_fail_halfway_leave_nothing(store: Store):
    def interrupted():
        yield b"one"
        raise Interrupted

    with pytest.raises(Interrupted):
        store.append("a", "message", interrupted(), AT)
    assert (store.session("a").head, store.entries("a")) == (0, [])


def test_the_name_of_a_session_that_was_never_made_does_not_lead_to_another(store: Store):
    def begin_another(store: Store) -> None:
        store.open_session("c", b"{}", AT)
        store.append("c", "message", bodies("never said"), AT)

    with pytest.raises(Interrupted):
        broken_off(store, "a", begin_another)
    store.open_session("d", b"{}", AT)
    with pytest.raises(UnknownSession):
        store.append("c", "message", bodies("to nobody"), AT)
    assert store.entries("d") == []
