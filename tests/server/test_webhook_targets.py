"""Where a webhook may not lead, what a tenant learns of the server's network, and who sees the whole address."""

from __future__ import annotations

import asyncio

import pytest

from context_compactor.server.tokens import add_token
from context_compactor.server.webhook_delivery import is_public
from tests.server.running import running


@pytest.mark.parametrize(
    "address",
    [
        "192.0.0.192",
        "192.0.0.8",
        "168.63.129.16",
        "::ffff:168.63.129.16",
        "64:ff9b::a83f:8110",
        "192.88.99.1",
        "fec0::1",
        "3fff::1",
        "5f00::1",
        "64:ff9b:1::7f00:1",
        "2001:20::1",
        "100.100.100.200",
        "2001:db8::1",
    ],
)
def test_an_address_that_only_a_few_may_reach_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["168.63.129.17", "192.0.1.1", "192.88.98.1", "2600::1"])
def test_its_neighbours_are(address):
    assert is_public(address)


def test_a_refusal_does_not_tell_where_a_name_leads(server):
    async def lookup(host: str, port: int) -> list[str]:
        return ["10.20.30.40"]

    server.service.sender.lookup = lookup
    got = server.post("/v1/webhooks", {"url": "https://vault.internal.example/"})
    assert got.problem == "bad-setting"
    assert b"does not resolve to a public address" in got.raw
    assert b"10.20" not in got.raw


def test_a_name_that_takes_too_long_to_be_found_keeps_nobody_waiting(server):
    async def lookup(host: str, port: int) -> list[str]:
        await asyncio.sleep(3_600)
        return []

    server.service.sender.lookup = lookup
    server.service.sender.answer_seconds = 0.05
    assert server.post("/v1/webhooks", {"url": "https://slow.example/"}).status == 201


def test_only_who_may_write_sees_the_keys_that_stand_in_an_address(tmp_path):
    tokens = tmp_path / "tokens"
    full = {"Authorization": f"Bearer {add_token(tokens, 'full', '', read_only=False)}"}
    wall = {"Authorization": f"Bearer {add_token(tokens, 'wall', '', read_only=True)}"}
    whole = "https://example.org/services/T0/secret?key=hidden"

    async def lookup(host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    with running(tmp_path, token_file=tokens) as server:
        server.service.sender.lookup = lookup
        made = server.post("/v1/webhooks", {"url": whole}, **full).json
        bare = server.post("/v1/webhooks", {"url": "https://example.org"}, **full).json
        for path in ("/v1/webhooks", f"/v1/webhooks/{made['id']}"):
            assert whole.encode() in server.get(path, **full).raw
            seen = server.get(path, **wall)
            assert b"https://example.org/\xe2\x80\xa6" in seen.raw
            assert b"secret" not in seen.raw
            assert b"hidden" not in seen.raw
        assert server.get(f"/v1/webhooks/{bare['id']}", **wall).json["url"] == "https://example.org"
