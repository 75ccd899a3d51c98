"""What a proxy keeps: each exchange once, links by which a conversation is found, and nothing of a deleted session."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from context_compactor.archive.storage import terms_of
from context_compactor.protocols import Store
from context_compactor.store.copy import copy_proxied_requests, copy_sessions
from context_compactor.store.proxied import ProxiedLink, ProxiedRequest, ProxyTable
from context_compactor.store.service_store import service_store_of
from context_compactor.store.sqlite import SqliteStore
from tests.store.rows import AT, LATER, LATEST

FULL = ProxiedRequest(
    id="x1",
    session_id="a",
    at=AT,
    client="claude-code",
    protocol="anthropic",
    model="claude-opus-4-8",
    kind="retry",
    status=529,
    is_held_out=True,
    input=1,
    cache_read=2,
    cache_write=4,
    cache_write_hour=3,
    output=5,
    has_usage=True,
    milliseconds=6,
)


@pytest.fixture
def proxied(store: Store) -> ProxyTable:
    return service_store_of(store).proxied


def request(name: str, at: str = AT, session_id: str = "a", **more: object) -> ProxiedRequest:
    return structs.replace(FULL, id=name, at=at, session_id=session_id, **more)


def link(
    name: bytes, kind: str = "prefix", session_id: str = "a", body: bytes = b"body", scope: str = "me"
) -> ProxiedLink:
    return ProxiedLink(scope, name, kind, session_id, body, AT)


def test_a_request_comes_back_as_it_was_recorded(proxied: ProxyTable):
    plain = ProxiedRequest(id="x2", session_id="", at=LATER, protocol="openai-chat", model="own\0 model")
    large = request("x3", LATEST, output=1 << 40, is_held_out=False)
    proxied.add_requests([FULL, plain, large])
    assert list(proxied.requests()) == [FULL, plain, large]


def test_a_model_name_that_no_text_can_hold_is_written_out(proxied: ProxyTable):
    proxied.add_requests([request("x1", model="half \ud83d")])
    assert [row.model for row in proxied.requests()] == ["half \\ud83d"]


def test_an_exchange_that_is_recorded_twice_counts_once_as_it_was_recorded_last(proxied: ProxyTable):
    begun = request("x1", has_usage=False, input=0, output=0, session_id="")
    proxied.add_requests([begun])
    proxied.add_requests([FULL])
    assert list(proxied.requests()) == [FULL]
    proxied.add_requests([])
    assert len(list(proxied.requests())) == 1


def test_requests_are_found_by_time_and_session_in_order(proxied: ProxyTable):
    rows = [request("c"), request("d"), request("b", LATER, "b"), request("a", LATEST)]
    proxied.add_requests(reversed(rows))
    assert list(proxied.requests()) == rows
    assert list(proxied.requests(since=LATER)) == rows[2:]
    assert list(proxied.requests(until=LATER)) == rows[:2]
    assert list(proxied.requests(since=LATER, until=LATEST)) == [rows[2]]
    assert list(proxied.requests(session_id="a")) == [rows[0], rows[1], rows[3]]


def test_more_requests_than_are_read_at_once_come_all_and_once(proxied: ProxyTable):
    rows = [request(f"x{at:05}", AT if at % 3 else LATER) for at in range(4_500)]
    proxied.add_requests(rows)
    assert list(proxied.requests()) == sorted(rows, key=lambda row: (row.at, row.id))


def test_links_are_found_by_scope_kind_and_link_however_many_are_asked_for(proxied: ProxyTable):
    kept = [link(at.to_bytes(2, "big"), kind) for at in range(700) for kind in ("prefix", "other")]
    proxied.put_links([*kept, link(b"\0\1", scope="somebody else")])
    asked = [at.to_bytes(2, "big") for at in range(2_000)]
    assert set(proxied.find_links("me", asked, ["prefix", "other"])) == set(kept)
    assert {each.kind for each in proxied.find_links("me", asked, ["other"])} == {"other"}
    assert proxied.find_links("me", [], ["other"]) == proxied.find_links("me", asked, []) == []
    assert len(proxied.find_links("somebody else", asked, ["prefix"])) == 1


def test_a_link_that_is_put_again_is_replaced(proxied: ProxyTable):
    proxied.put_links([link(b"\0\xff", body=b"before"), link(b"1")])
    proxied.put_links([link(b"\0\xff", session_id="b", body=b"\0after\xff")])
    assert proxied.find_links("me", [b"\0\xff"], ["prefix"]) == [link(b"\0\xff", session_id="b", body=b"\0after\xff")]
    assert proxied.links_of("a") == [link(b"1")]


def test_what_is_recorded_in_a_transaction_that_fails_was_never_recorded(store: Store, proxied: ProxyTable):
    def fail() -> None:
        with store.writing("a"):
            proxied.add_requests([FULL, request("x2")])
            proxied.put_links([link(b"1")])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (list(proxied.requests()), proxied.links_of("a")) == ([], [])


def test_a_deleted_session_takes_its_links_along_and_leaves_its_requests_without_a_name(
    store: Store, proxied: ProxyTable
):
    proxied.add_requests([FULL, request("x2", LATER, "b")])
    proxied.put_links([link(b"1"), link(b"2", session_id="b")])
    store.delete("a")
    assert list(proxied.requests()) == [structs.replace(FULL, session_id=""), request("x2", LATER, "b")]
    assert (proxied.links_of("a"), proxied.links_of("b")) == ([], [link(b"2", session_id="b")])
    store.open_session("a", b"{}", LATEST)
    assert list(proxied.requests(session_id="a")) == []


def test_no_byte_of_a_deleted_sessions_links_is_left_in_the_files(tmp_path: Path):
    secret = b"what the agent was told " + os.urandom(20).hex().encode()
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        for session_id in ("leak", "stays"):
            store.open_session(session_id, b"{}", AT)
        some = [link(at.to_bytes(2, "big"), session_id="leak", body=secret * 20) for at in range(200)]
        proxied = service_store_of(store).proxied
        proxied.put_links([*some, link(b"other", session_id="stays")])
        assert any(secret in path.read_bytes() for path in tmp_path.iterdir())
        store.delete("leak")
        store.clear_deleted(bytes.decode, thorough=True)
        assert [path.name for path in tmp_path.iterdir() if secret in path.read_bytes()] == []
        assert len(proxied.links_of("stays")) == 1


def test_a_copy_has_the_requests_once_and_the_links_of_its_sessions(store: Store, proxied: ProxyTable):
    proxied.add_requests([FULL, request("x2", LATER, "")])
    proxied.put_links([link(b"1"), link(b"2", session_id="b")])
    with closing(SqliteStore()) as target:
        list(copy_sessions(store, target, terms_of))
        copied = service_store_of(target).proxied
        assert [copy_proxied_requests(store, target) for _ in range(2)] == [2, 2]
        assert list(copied.requests()) == list(proxied.requests())
        assert copied.links_of("a") + copied.links_of("b") == [link(b"1"), link(b"2", session_id="b")]
