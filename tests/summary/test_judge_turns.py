from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import ModelDenied, ModelStopped
from context_compactor.summary.caller import Caller
from context_compactor.summary.judge_turns import Judged, answer_schema, judge_turns, read_answer, weigh_answers
from tests.summary.scenes import Scripted, answer, control, count, refresh_talk

TURNS = refresh_talk()
NUMBERS = [turn.number for turn in TURNS]


def placed(turn: str, tier: str = "keep", score: float = 0.5) -> dict[str, Any]:
    return {"turn": turn, "tier": tier, "score": score, "reason": "because"}


def said(turns: list[dict[str, Any]], facts: list[dict[str, Any]] | None = None) -> Judged:
    return msgspec.convert({"turns": turns, "facts": facts or []}, Judged)


def weighed(*turns: dict[str, Any], pinned=(), failed=(), facts=None):
    return weigh_answers([said(list(turns), facts)], TURNS, pinned, failed)


def ask(*lines: Any, **more: Any):
    model = Scripted(*lines)
    return model, judge_turns(Caller(model, control(), count, 50), TURNS, (1,), (4,), **more)


def test_a_turn_is_worth_more_when_it_is_kept_and_less_when_it_is_dropped():
    found = weighed(
        *(placed(f"turn_00{at}", tier) for at, tier in enumerate(("keep", "summarize", "reference", "drop"), 1))
    )
    assert found.factors[1] > found.factors[2] == 1.0 > found.factors[3] > found.factors[4] > 0
    assert found.reasons[1] == "because"


def test_the_score_counts_within_a_tier():
    assert weighed(placed("turn_002", score=0.9)).factors[2] > weighed(placed("turn_002", score=0.2)).factors[2]


def test_pins_and_failures_are_never_lowered():
    found = weighed(placed("turn_001", "drop", 0), placed("turn_004", "drop", 0), pinned=(1,), failed=(4,))
    assert found.factors == {1: 1.0, 4: 1.0}


def test_a_turn_that_does_not_exist_is_an_objection():
    found = weighed(placed("turn_099"))
    assert found.factors == {}
    assert [objection.code for objection in found.objections] == ["unknown_reference"]


def test_a_turn_that_is_not_named_is_weighed_as_always():
    assert weighed(placed("turn_002")).factors.keys() == {2}


def test_of_two_words_on_one_turn_the_kinder_one_counts():
    found = weighed(placed("turn_002", "drop"), placed("turn_002", "keep"), placed("turn_002", "drop"))
    assert found.factors[2] > 1


@pytest.mark.parametrize(
    ("fact", "holds"),
    [
        (
            {
                "kind": "decision",
                "content": "go with the httpOnly cookie, no Redis in production",
                "source": "turn_004",
            },
            True,
        ),
        ({"kind": "decision", "content": "go with PostgreSQL for all of the storage", "source": "turn_004"}, False),
        ({"kind": "decision", "content": "go with the httpOnly cookie", "source": "turn_777"}, False),
        ({"kind": "constraint", "content": "Never touch legacy/", "source": "turn_001"}, True),
        ({"kind": "constraint", "content": "go with the httpOnly cookie", "source": "turn_004"}, False),
        (
            {"kind": "file_state", "content": "src/auth/evil.ts jwt sign payload jti return", "source": "turn_003"},
            False,
        ),
    ],
)
def test_a_fact_holds_when_its_turn_says_so(fact, holds):
    found = weighed(facts=[fact])
    assert bool(found.facts) == holds
    assert bool(found.objections) != holds


def test_a_fact_has_the_role_and_the_turn_of_its_source():
    fact = weighed(facts=[{"kind": "constraint", "content": "Never touch legacy/", "source": "turn_001"}]).facts[0]
    assert (fact.kind, fact.role, fact.turn, fact.ref) == ("constraint", "user", 1, "turn_001")


def test_all_turns_are_shown_in_as_many_chunks_as_it_takes():
    model, found = ask(json.dumps({"turns": [placed("turn_002")], "facts": []}), chunk_tokens=400)
    assert len(model.requests) > 2
    assert all(f"turn_{number:03d}" in model.shown for number in NUMBERS)
    assert all(request.schema == answer_schema() for request in model.requests)
    assert found.factors == {2: pytest.approx(1.6)}


def test_a_value_of_the_schema_is_taken_before_the_text():
    _, found = ask(answer("not json", value={"turns": [placed("turn_002")], "facts": []}))
    assert found.factors.keys() == {2}


@pytest.mark.parametrize("text", ["", "no", "[]", '{"turns": 1}', '{"turns": [{"turn": "turn_002"}]}', "[" * 100_000])
def test_an_answer_that_is_not_as_asked_leaves_the_weights_alone(text):
    _, found = ask(text)
    assert found.factors == {}
    assert found.facts == ()


def test_an_answer_that_was_cut_off_is_not_used():
    judged, wrong = read_answer(answer('{"turns": [], "facts": []}', "length"))
    assert judged is None
    assert wrong


@pytest.mark.parametrize("score", [-1, 2, float("nan"), float("inf"), "high"])
def test_a_score_is_a_share(score):
    judged, _ = read_answer(answer("", value={"turns": [placed("turn_002", score=score)], "facts": []}))
    assert judged is None


def test_a_failed_call_leaves_the_weights_alone_and_is_told():
    _, found = ask(ModelDenied("wrong key"))
    assert found.factors == {}
    assert "denied" in {objection.code for objection in found.objections}


def test_a_cancelled_call_raises():
    held = control()
    held.cancel.set()
    with pytest.raises(ModelStopped):
        judge_turns(Caller(Scripted("no"), held, count, 5), TURNS, (), ())


def test_a_window_that_is_too_small_is_an_objection():
    found = judge_turns(Caller(Scripted("no", window=1_000), control(), count, 5), TURNS, (), ())
    assert [objection.code for objection in found.objections] == ["window_too_small"]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["turn_002", "keep"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["turns", "facts", "turn", "tier", "score", "reason", "kind"]), inner, max_size=5
        )
    ),
    max_leaves=20,
)


@given(VALUES, st.text(max_size=100))
def test_any_answer_is_read_or_refused(value, text):
    for each in (answer(text), answer(text, value=value), answer(json.dumps(value))):
        judged, wrong = read_answer(each)
        assert (judged is None) == bool(wrong)


@given(
    st.lists(
        st.builds(
            placed,
            st.integers(0, 12).map("turn_{:03d}".format),
            st.sampled_from(["keep", "summarize", "reference", "drop"]),
            st.floats(0, 1),
        ),
        max_size=12,
    )
)
def test_whatever_is_said_factors_are_of_real_turns_and_within_bounds(turns):
    found = weighed(*turns, pinned=(1, 2), failed=(4,))
    assert found.factors.keys() <= set(NUMBERS)
    assert all(0.1 < factor < 3 for factor in found.factors.values())
    assert all(found.factors.get(number, 1.0) >= 1.0 for number in (1, 2, 4))
