"""What proxied conversations cost: exact where usage and prices are known, and said to be unknown where not."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from context_compactor.cli.proxy_report import print_report
from context_compactor.proxy.bills import (
    NEEDED_CONVERSATIONS,
    BillSide,
    ProxyReport,
    bill_lines,
    make_report,
    money,
    report_of,
    request_cost,
    to_dict,
)
from context_compactor.settings import ModelEntry, Settings
from context_compactor.store.proxied import REQUEST_KINDS, ProxiedRequest
from context_compactor.store.service_store import service_store_of
from context_compactor.store.sqlite import SqliteStore
from context_compactor.tokens.prices import ModelUsage, call_cost
from tests.store.rows import AT, LATER, LATEST

USED = ProxiedRequest(
    id="x",
    session_id="a",
    at=AT,
    client="claude-code",
    protocol="anthropic",
    model="claude-opus-4-8",
    input=1_000,
    cache_read=100_000,
    cache_write=10_000,
    output=2_000,
    has_usage=True,
)
COST = 0.005 + 0.05 + 0.0625 + 0.05
"""Of `USED`, at 5, 0.5, 6.25 and 25 dollars for a million."""


def used(**more: object) -> ProxiedRequest:
    return structs.replace(USED, **more)


def unknown(**more: object) -> ProxiedRequest:
    """A request of which no usage was reported."""
    return used(**{"input": 0, "cache_read": 0, "cache_write": 0, "output": 0, "has_usage": False, **more})


class Printed:
    """Keeps what is printed."""

    def __init__(self) -> None:
        self.text = ""

    def print(self, text: str = "", /, *, style: str | None = None) -> None:
        self.text += f"{text}\n"


def printed(report: ProxyReport) -> str:
    out = Printed()
    print_report(report, out)
    return " ".join(out.text.split())


# One request


def test_each_kind_of_token_is_priced_as_the_provider_reported_it():
    assert request_cost(USED) == pytest.approx(COST)
    haiku = used(model="claude-haiku-4-5-20251001")
    assert request_cost(haiku) == pytest.approx(0.001 + 0.01 + 0.0125 + 0.01)


def test_what_is_kept_in_the_cache_for_an_hour_is_priced_apart_from_the_rest():
    assert request_cost(used(cache_write_hour=10_000)) == pytest.approx(COST - 0.0625 + 0.1)
    assert request_cost(used(cache_write_hour=4_000)) == pytest.approx(COST - 0.0625 + 0.04 + 0.0375)
    assert request_cost(used(model="gpt-6.1-sol", cache_write_hour=4_000)) == request_cost(used(model="gpt-6.1-sol"))


def test_a_long_request_is_dearer_as_a_whole_whatever_part_of_it_is_kept_for_an_hour():
    long = used(model="claude-haiku-5-5", cache_write=90_000, cache_write_hour=45_000)
    assert long.input + long.cache_read + long.cache_write > 100_000
    taken = 1_000 * 0.10 + 100_000 * 0.01 + 45_000 * 0.125 + 45_000 * 0.20
    assert request_cost(long) == pytest.approx(5 * (taken + 2_000 * 0.50) / 1_000_000)


def test_an_own_price_comes_first():
    own = {"claude-opus-4-8": ModelEntry(input=1.0, output=1.0)}
    assert request_cost(USED, own) == pytest.approx(113_000 / 1_000_000)


# Sums


def test_an_empty_store_has_an_empty_report_that_says_how_to_begin():
    with closing(SqliteStore()) as store:
        report = make_report(store, "", Settings())
    assert (report.clients, report.models, report.comparisons, report.notes) == ((), (), (), ())
    assert report.total.with_us == report.total.without_us == BillSide()
    assert (report.first_at, report.last_at) == ("", "")
    assert "Try: compactor proxy" in printed(report)


def test_a_report_is_of_the_requests_from_a_time_on():
    with closing(SqliteStore()) as store:
        service_store_of(store).proxied.add_requests([used(), used(id="y", at=LATER), used(id="z", at=LATEST)])
        report = make_report(store, LATER, Settings())
    assert (report.total.with_us.requests, report.first_at, report.last_at) == (2, LATER, LATEST)
    assert report.total.with_us.dollars == pytest.approx(2 * COST)


def test_each_kind_of_request_is_counted_and_an_own_answer_costs_nothing():
    rows = [
        used(),
        used(kind="compaction"),
        used(kind="recall"),
        unknown(status=400),
        used(kind="retry"),
        used(kind="aside", model="claude-haiku-4-5"),
        unknown(kind="answered"),
    ]
    side = report_of(rows).total.with_us
    counted = (side.requests, side.answered, side.summaries, side.recalls, side.retries, side.asides, side.failed)
    assert counted == (6, 1, 1, 1, 1, 1, 1)
    assert (side.without_usage, side.unpriced_requests, side.conversations) == (0, 0, 1)
    assert side.dollars == pytest.approx(4 * COST + 0.0335)


def test_what_we_ask_for_in_addition_makes_a_request_dearer_and_never_cheaper():
    plain = report_of([used(), used()]).total.with_us
    more = report_of([used(), used(), used(kind="recall"), unknown(kind="answered"), unknown(status=500)]).total.with_us
    assert plain.dollars_per_request == pytest.approx(COST)
    assert more.dollars_per_request == pytest.approx(1.5 * COST)


def test_a_request_that_was_sent_again_counts_once_as_an_answer():
    side = report_of([unknown(status=400), used(kind="retry")]).total.with_us
    assert (side.requests, side.steps, side.dollars_per_request) == (2, 1, pytest.approx(COST))


def test_a_price_that_is_not_known_makes_the_sum_unknown_and_is_named():
    report = report_of([used(), used(model="our-own"), used(model="our-own"), unknown(model="never-answered")])
    side = report.total.with_us
    assert (side.dollars, side.dollars_per_request, side.dollars_per_conversation) == (None, None, None)
    assert (side.dollars_known, side.unpriced_requests) == (pytest.approx(COST), 2)
    assert [(each.model, each.requests) for each in report.unpriced_models] == [("our-own", 2)]
    assert "No price is known for: our-own (2 requests)" in printed(report)
    assert "at least $0.1675" in printed(report)
    own = {"our-own": ModelEntry(input=1.0, output=1.0)}
    assert report_of([used(model="our-own")], own).total.with_us.dollars == pytest.approx(0.113)


def test_an_answer_without_usage_is_counted_and_said_and_no_cost_is_guessed():
    report = report_of([used(), unknown(), unknown(status=529)])
    side = report.total.with_us
    assert (side.without_usage, side.failed, side.steps, side.dollars) == (1, 1, 1, pytest.approx(COST))
    assert "No usage was reported for 1 answered request; what they cost is in no sum." in printed(report)


def test_requests_of_a_deleted_conversation_count_in_the_sums_and_in_no_conversation():
    report = report_of([used(), used(session_id=""), used(session_id="")])
    side = report.total.with_us
    assert (side.conversations, side.without_session) == (1, 2)
    assert side.dollars == pytest.approx(3 * COST)
    assert side.dollars_per_conversation == pytest.approx(COST)
    assert "2 requests of deleted or unknown conversations" in printed(report)


def test_the_share_of_the_input_that_was_read_from_the_cache_is_of_all_input():
    assert report_of([USED]).total.with_us.cache_share == pytest.approx(100_000 / 111_000)
    assert report_of([unknown()]).total.with_us.cache_share is None


def test_held_out_conversations_stand_beside_the_others_of_their_client_and_model():
    rows = [used(), used(session_id="b", is_held_out=True, output=0), used(client="codex", model="gpt-5")]
    report = report_of(rows)
    assert [(group.client, group.model) for group in report.models] == [
        ("claude-code", "claude-opus-4-8"),
        ("codex", "gpt-5"),
    ]
    first, second = report.models
    assert (first.with_us.dollars, first.without_us.dollars) == (pytest.approx(COST), pytest.approx(COST - 0.05))
    assert second.without_us == BillSide()
    lines = {line.name: (line.with_us, line.without_us) for line in bill_lines(second)}
    assert lines["Conversations"] == ("1", "–")
    assert lines["Dollars"][1] == "–"


def test_a_report_as_json_names_both_sides_and_every_number():
    told = json.loads(json.dumps(to_dict(report_of([used(), used(is_held_out=True, session_id="b")]))))
    assert told["total"]["with"]["dollars"] == told["total"]["without"]["dollars"] == pytest.approx(COST)
    assert told["comparisons"][0]["ratio"] is None


# Comparisons


def conversations(count: int, *, is_held_out: bool, **more: object) -> list[ProxiedRequest]:
    name = "held" if is_held_out else "with"
    return [used(session_id=f"{name}{at}", is_held_out=is_held_out, **more) for at in range(count)]


def test_too_few_held_out_conversations_are_not_compared_and_it_says_how_to_get_them():
    rows = conversations(40, is_held_out=False) + conversations(NEEDED_CONVERSATIONS - 1, is_held_out=True)
    (found,) = report_of(rows).comparisons
    assert (found.ratio, found.low, found.high) == (None, None, None)
    assert "Too few held-out conversations to compare (19 of 20). Try: compactor proxy --holdout 10%." in found.text


def test_requests_are_no_conversations_and_neither_is_one_without_an_answer():
    held = [used(is_held_out=True, session_id="b")] * 100 + [
        unknown(is_held_out=True, session_id=f"failed{at}", status=500) for at in range(30)
    ]
    (found,) = report_of(conversations(20, is_held_out=False) + held).comparisons
    assert "(1 of 20)" in found.text
    (found,) = report_of(conversations(3, is_held_out=False) + conversations(20, is_held_out=True)).comparisons
    assert "Too few conversations that were not held out to compare (3 of 20)" in found.text


def test_with_enough_on_both_sides_the_ratio_of_dollars_per_request_is_said():
    half = {"input": 500, "cache_read": 50_000, "cache_write": 5_000, "output": 1_000}
    rows = conversations(20, is_held_out=False, **half) + conversations(20, is_held_out=True)
    (found,) = report_of(rows).comparisons
    assert (found.ratio, found.low, found.high) == (pytest.approx(0.5), pytest.approx(0.5), pytest.approx(0.5))
    assert "A request costs 0.50 times what it costs in held-out conversations" in found.text
    assert "20 conversations with us, 20 held out" in found.text
    assert "chance" not in found.text


def test_a_difference_that_few_dear_conversations_make_is_said_to_be_perhaps_chance():
    rows = conversations(25, is_held_out=False) + conversations(20, is_held_out=True)
    rows[0] = structs.replace(rows[0], output=1_000_000)
    (found,) = report_of(rows).comparisons
    assert found.ratio is not None
    assert found.low < 1 < found.ratio < found.high
    assert "The difference may be chance." in found.text


def test_sides_are_not_compared_while_a_price_is_missing():
    rows = conversations(20, is_held_out=False) + conversations(20, is_held_out=True)
    (found,) = report_of([*rows, used(model="our-own")]).comparisons
    assert (found.ratio, "some prices are not known" in found.text) == (None, True)


def test_what_agents_that_never_compact_would_cost_without_us_is_said_not_to_be_known():
    (found,) = report_of(conversations(50, is_held_out=False, client="")).comparisons
    assert found.ratio is None
    assert "never held out, so their cost without us is not known" in found.text
    text = printed(report_of(conversations(50, is_held_out=False, client="")))
    assert text.startswith("50 requests in 50 conversations")
    assert "other agents with us held out" in text
    assert found.text in text


# Words


def test_money_has_as_many_digits_as_say_something():
    assert [money(each) for each in (None, 0.0, 0.00001, 0.0123, 1, 1_234.5)] == [
        "not known",
        "$0.00",
        "<$0.0001",
        "$0.0123",
        "$1.00",
        "$1,234.50",
    ]


def test_a_report_has_a_table_for_each_client_with_its_models():
    text = printed(
        report_of([used(), used(is_held_out=True, session_id="b"), used(client="codex", model="gpt-5", session_id="c")])
    )
    assert text.startswith("3 requests in 3 conversations, 2026-03-01 to 2026-03-01")
    for words in (
        "claude-code with us held out Conversations 1 1",
        "claude-opus-4-8 $0.1675 ($0.1675) $0.1675 ($0.1675)",
        "codex with us held out Conversations 1 –",
        "Share read from cache 90 % 90 %",
    ):
        assert words in text


# Any requests


REQUESTS = st.builds(
    ProxiedRequest,
    id=st.just("x"),
    session_id=st.sampled_from(["", "a", "b", "c"]),
    at=st.just(AT),
    client=st.sampled_from(["claude-code", "codex", ""]),
    protocol=st.just("anthropic"),
    model=st.sampled_from(["claude-opus-4-8", "claude-haiku-5-5", "gpt-6.1-sol", "our-own", ""]),
    kind=st.sampled_from(REQUEST_KINDS),
    status=st.sampled_from([0, 200, 400, 529]),
    is_held_out=st.booleans(),
    input=st.integers(0, 300_000),
    cache_read=st.integers(0, 300_000),
    cache_write=st.integers(0, 300_000),
    cache_write_hour=st.integers(0, 300_000),
    output=st.integers(0, 100_000),
    has_usage=st.booleans(),
)
ADDED = [
    name
    for name in BillSide.__struct_fields__
    if name not in ("conversations", "dollars", "dollars_per_request", "dollars_per_conversation", "cache_share")
]


@given(st.lists(REQUESTS, max_size=40))
def test_the_sums_of_clients_and_of_models_are_those_of_all(rows: list[ProxiedRequest]):
    report = report_of(rows)
    for side in ("with_us", "without_us"):
        whole = getattr(report.total, side)
        for groups in (report.clients, report.models):
            parts = [getattr(group, side) for group in groups]
            for name in ADDED:
                assert getattr(whole, name) == pytest.approx(sum(getattr(part, name) for part in parts))
            assert (whole.dollars is None) == any(part.dollars is None for part in parts)
            assert whole.conversations <= sum(part.conversations for part in parts)
    assert sum(group.with_us.requests + group.with_us.answered for group in report.models) == sum(
        not row.is_held_out for row in rows
    )
    json.dumps(to_dict(report), allow_nan=False)
    print_report(report, Printed())


@given(REQUESTS)
def test_a_request_costs_between_what_it_would_with_all_or_nothing_kept_for_an_hour(row: ProxiedRequest):
    usage = ModelUsage(row.input, row.cache_read, row.cache_write, row.output)
    least, most = (call_cost(usage, row.model, None, seconds) for seconds in (300, 3_600))
    found = request_cost(structs.replace(row, has_usage=True))
    if least is None or most is None:
        assert found is None
    else:
        assert least - 1e-9 <= found <= most + 1e-9


def test_requests_that_should_only_be_recorded_are_on_neither_side_and_named():
    report = report_of([used(), used(is_recorded_only=True)])
    assert report.total.with_us.requests + report.total.without_us.requests == 1
    assert any("mode record" in note for note in report.notes)
