"""JSON read out of a model's text."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.summarize.model import is_closed, read_json, schema_prompt
from tests.llm.asking import SCHEMA


class Verdict(msgspec.Struct):
    turn: str
    score: float
    note: str | None = None


class Judgement(msgspec.Struct):
    verdicts: list[Verdict]


MADE = msgspec.json.schema(Judgement)


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "\n```\n{}\n```\n", "  {}  "])
def test_a_value_is_found_with_or_without_a_fence(around):
    written = json.dumps({"mood": "bad", "score": 0})
    assert read_json(around.replace("{}", written), SCHEMA) == {"mood": "bad", "score": 0}


def test_a_schema_made_by_msgspec_is_understood():
    good = {"verdicts": [{"turn": "t1", "score": 0.5, "note": None}]}
    assert read_json(json.dumps(good), MADE) == good
    assert read_json('{"verdicts": [{"turn": 1, "score": 0.5}]}', MADE) is None
    assert read_json('{"verdicts": {}}', MADE) is None


def test_a_schema_is_closed_when_nothing_may_be_left_out_or_added():
    assert is_closed(SCHEMA)
    assert is_closed({"type": "array", "items": SCHEMA})
    assert not is_closed({**SCHEMA, "required": ["mood"]})
    assert not is_closed({"type": "array", "items": {"type": "object"}})
    assert not is_closed(MADE)


def test_what_is_told_holds_the_schema():
    assert json.dumps(SCHEMA) in schema_prompt(SCHEMA)


@given(st.text())
def test_no_text_breaks_the_reader(text):
    assert read_json(text, SCHEMA) is None


@given(st.lists(st.builds(dict, turn=st.text(), score=st.floats(0, 1)), max_size=5))
def test_every_value_of_a_schema_comes_back(verdicts):
    assert read_json(json.dumps({"verdicts": verdicts}), MADE) == {"verdicts": verdicts}


def test_a_hostile_depth_is_no_value():
    assert read_json("[" * 100_000, SCHEMA) is None
