"""Large values as JSON: what is not read back to be compared is what comes back equal for sure."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import msgspec
import pytest

from context_compactor import json_values
from context_compactor.json_values import json_bytes, read_json

LARGE = "words and ümläuts\n" * 10_000


@pytest.mark.parametrize(
    "value",
    [
        {"role": "tool", "content": LARGE},
        [{"text": LARGE, "count": 3, "is_error": False, "cache": None}],
        {"text": LARGE, "share": 0.1, "least": -0.0},
        {"text": LARGE, "number": 2**63, "larger": -(2**80)},
        {"text": LARGE + "\ud800"},
        {LARGE: [[], {}]},
    ],
)
def test_a_large_value_comes_back_equal(value: Any):
    assert read_json(json_bytes(value)) == value


def test_a_large_text_is_written_without_being_read_back(monkeypatch: pytest.MonkeyPatch):
    value = {"role": "tool", "content": LARGE}
    expected = msgspec.json.encode(value)
    monkeypatch.setattr(json_values.msgspec.json, "decode", lambda _: pytest.fail("it was read back"))
    assert json_bytes(value) == expected


@pytest.mark.parametrize("value", [{1: LARGE}, [LARGE, {2: "two"}], {"text": LARGE, "what": object()}])
def test_a_large_value_that_json_cannot_hold_is_refused(value: Any):
    with pytest.raises(ValueError, match="not JSON"):
        json_bytes(value)


def test_a_large_tuple_comes_back_as_a_list_and_strange_numbers_as_they_were():
    assert read_json(json_bytes((LARGE, inf))) == [LARGE, inf]
    (_, strange) = read_json(json_bytes([LARGE, nan]))
    assert strange != strange  # noqa: PLR0124  only that is not equal to itself
