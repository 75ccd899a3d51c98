"""Tiers over HTTP, with the client's verbs."""

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


def test_a_tier_over_http_is_kept_followed_and_taken_back(client, session_id):
    assert client.set_tier(session_id, 5, "keep") == {5: Tier.KEEP}
    assert client.set_tier(session_id, 9, Tier.DROP) == {5: Tier.KEEP, 9: Tier.DROP}
    plan = client.plan(session_id, target_tokens=9_000)
    planned = {each.turn: (each.tier, each.reason, each.set_tier) for each in plan.turns()}
    assert planned[5] == (Tier.KEEP, "kept by you", Tier.KEEP)
    assert planned[9] == (Tier.DROP, "lowered by you", Tier.DROP)
    assert client.clear_tier(session_id, 9) == {5: Tier.KEEP}
    expected = client.plan(session_id, target_tokens=9_000).report
    done = client.compact(session_id, target_tokens=9_000)
    assert done.tokens_after == expected.tokens_after
    assert conversation()[8] in client.context(session_id).messages
    assert client.tiers(session_id) == {5: Tier.KEEP}
    assert client.clear_tier(session_id) == client.tiers(session_id) == {}


def test_what_cannot_be_set_is_refused_with_the_reason_of_the_library(client, session_id):
    for turn, tier, why in ((0, "drop", "instructions"), (99, "keep", "no such turn"), (43, "drop", "not answered")):
        with pytest.raises(BadSetting, match=why):
            client.set_tier(session_id, turn, tier)
    assert client.tiers(session_id) == {}


def test_a_tier_without_a_turn_is_refused(shared, client, session_id):
    got = shared.post(f"/v1/sessions/{session_id}/tiers", {"tier": "drop"})
    assert got.status == 422
    assert "turn is missing" in got.json["detail"]


def test_an_async_client_sets_tiers_alike(shared, session_id):
    async def set_and_clear() -> dict[int, Tier]:
        async with AsyncClient(shared.url) as client:
            await client.set_tier(session_id, 5, "keep")
            assert (await client.plan(session_id, level="soft")).report.status == "unchanged"
            await client.clear_tier(session_id, 5)
            return await client.tiers(session_id)

    assert asyncio.run(set_and_clear()) == {}


def test_a_plan_with_tiers_of_its_own_is_that_of_having_decided_so_and_decides_nothing(client, session_id):
    client.set_tier(session_id, 5, "keep")
    provisional = client.plan(session_id, target_tokens=9_000, tiers={9: "drop", 8: "drop", 7: "keep", 3: "drop"})
    without = client.plan(session_id, target_tokens=9_000, tiers={})
    assert client.tiers(session_id) == {5: Tier.KEEP}
    assert provisional.tiers == {3: Tier.DROP, 7: Tier.KEEP, 8: Tier.DROP, 9: Tier.DROP}
    assert without.tiers == {}
    assert client.plan(session_id, target_tokens=9_000).tiers == {5: Tier.KEEP}
    client.clear_tier(session_id)
    assert client.plan(session_id, target_tokens=9_000).decisions == without.decisions
    for turn, tier in provisional.tiers.items():
        client.set_tier(session_id, turn, tier)
    assert client.plan(session_id, target_tokens=9_000).decisions == provisional.decisions


def test_a_plan_refuses_tiers_that_cannot_be_kept_with_the_reason_of_the_library(client, session_id):
    for tiers, why in (({99: "keep"}, "no such turn"), ({43: "drop"}, "not answered"), ({5: "gone"}, "known tiers")):
        with pytest.raises(BadSetting, match=why):
            client.plan(session_id, tiers=tiers)


def test_a_turn_with_two_tiers_and_turns_that_are_no_numbers_are_refused(shared, session_id):
    for query, why in (
        ("keep=5&drop=5", "turn 5 is already given to keep"),
        ("keep=five", "$.keep"),
        ("keep=5,,6", "$.keep"),
    ):
        got = shared.get(f"/v1/sessions/{session_id}/plan?{query}")
        assert (got.status, why in got.json["detail"]) == (422, True), got.json


def test_the_former_path_answers_as_the_present_one_and_both_have_the_former_field(shared, session_id):
    path = f"/v1/sessions/{session_id}"
    set_there = shared.post(f"{path}/steering", {"turn": 5, "tier": "keep"}).json
    assert set_there == shared.get(f"{path}/tiers").json == shared.get(f"{path}/steering").json
    assert set_there["tiers"] == set_there["steers"] == [{"turn": 5, "tier": "keep"}]


def test_former_names_still_work_and_say_what_to_use(client, session_id):
    with pytest.warns(DeprecationWarning, match=r"steer\(\) is deprecated; use set_tier\(\)"):
        assert client.steer(session_id, 5, "keep") == {5: Tier.KEEP}
    with pytest.warns(DeprecationWarning, match=r"use tiers\(\)"):
        assert client.steering(session_id) == {5: Tier.KEEP}
    with pytest.warns(DeprecationWarning, match=r"use plan\(tiers=…\)"):
        assert client.plan(session_id, target_tokens=9_000, steers={9: "drop"}).tiers == {9: Tier.DROP}
    with pytest.warns(DeprecationWarning, match=r"use clear_tier\(\)"):
        assert client.unsteer(session_id) == {}
    with pytest.raises(AttributeError, match="has no attribute 'stear'"):
        client.stear  # noqa: B018
