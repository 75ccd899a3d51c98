"""Steering over HTTP, with the client's verbs."""

from __future__ import annotations

import asyncio

import pytest

from context_compactor.client import AsyncClient, Client
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting
from tests.cli.conftest import conversation


@pytest.fixture
def client(shared):
    with Client(shared.url) as made:
        yield made


@pytest.fixture
def session_id(client) -> str:
    made = client.create(window=200_000).id
    client.append(made, conversation())
    return made


def test_a_steer_over_http_is_kept_followed_and_taken_back(client, session_id):
    assert client.steer(session_id, 5, "keep") == {5: Tier.KEEP}
    assert client.steer(session_id, 9, Tier.DROP) == {5: Tier.KEEP, 9: Tier.DROP}
    plan = client.plan(session_id, target_tokens=9_000)
    told = {each.turn: (each.tier, each.reason, each.steer) for each in plan.turns()}
    assert told[5] == (Tier.KEEP, "kept by you", Tier.KEEP)
    assert told[9] == (Tier.DROP, "lowered by you", Tier.DROP)
    assert client.unsteer(session_id, 9) == {5: Tier.KEEP}
    expected = client.plan(session_id, target_tokens=9_000).report
    done = client.compact(session_id, target_tokens=9_000)
    assert done.tokens_after == expected.tokens_after
    assert conversation()[8] in client.context(session_id).messages
    assert client.steering(session_id) == {5: Tier.KEEP}
    assert client.unsteer(session_id) == client.steering(session_id) == {}


def test_what_cannot_be_steered_is_refused_with_the_reason_of_the_library(client, session_id):
    for turn, tier, why in ((0, "drop", "instructions"), (99, "keep", "no such turn"), (43, "drop", "not answered")):
        with pytest.raises(BadSetting, match=why):
            client.steer(session_id, turn, tier)
    assert client.steering(session_id) == {}


def test_a_tier_without_a_turn_is_refused(shared, client, session_id):
    got = shared.post(f"/v1/sessions/{session_id}/steering", {"tier": "drop"})
    assert got.status == 422
    assert "turn is missing" in got.json["detail"]


def test_an_async_client_steers_alike(shared, session_id):
    async def steered() -> dict[int, Tier]:
        async with AsyncClient(shared.url) as client:
            await client.steer(session_id, 5, "keep")
            assert (await client.plan(session_id, level="soft")).report.status == "unchanged"
            await client.unsteer(session_id, 5)
            return await client.steering(session_id)

    assert asyncio.run(steered()) == {}


def test_a_plan_with_steers_of_its_own_is_that_of_having_decided_so_and_decides_nothing(client, session_id):
    client.steer(session_id, 5, "keep")
    provisional = client.plan(session_id, target_tokens=9_000, steers={9: "drop", 8: "drop", 7: "keep", 3: "drop"})
    without = client.plan(session_id, target_tokens=9_000, steers={})
    assert client.steering(session_id) == {5: Tier.KEEP}
    assert provisional.steers == {3: Tier.DROP, 7: Tier.KEEP, 8: Tier.DROP, 9: Tier.DROP}
    assert without.steers == {}
    assert client.plan(session_id, target_tokens=9_000).steers == {5: Tier.KEEP}
    client.unsteer(session_id)
    assert client.plan(session_id, target_tokens=9_000).decisions == without.decisions
    for turn, tier in provisional.steers.items():
        client.steer(session_id, turn, tier)
    assert client.plan(session_id, target_tokens=9_000).decisions == provisional.decisions


def test_a_plan_refuses_steers_that_cannot_be_kept_with_the_reason_of_the_library(client, session_id):
    for steers, why in (({99: "keep"}, "no such turn"), ({43: "drop"}, "not answered"), ({5: "gone"}, "known tiers")):
        with pytest.raises(BadSetting, match=why):
            client.plan(session_id, steers=steers)


def test_a_turn_with_two_tiers_and_turns_that_are_no_numbers_are_refused(shared, session_id):
    for query, why in (
        ("keep=5&drop=5", "turn 5 is already given to keep"),
        ("keep=five", "$.keep"),
        ("keep=5,,6", "$.keep"),
    ):
        got = shared.get(f"/v1/sessions/{session_id}/plan?{query}")
        assert (got.status, why in got.json["detail"]) == (422, True), got.json
