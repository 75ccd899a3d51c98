"""A message that is nested too deep is refused where it comes in, with its place and with what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadMessage, Session, compact
from context_compactor.dialects.dialect import MAX_DEPTH
from tests.engine.talks import DIALECT_NAMES, read, talk_in

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def nested(depth: int, kind: type = dict) -> Any:
    """So many lists or objects within each other."""
    value: Any = "the innermost"
    for _ in range(depth):
        value = {"in": value} if kind is dict else [value]
    return value


def talk(dialect: str, extra: Any) -> list[dict[str, Any]]:
    messages = talk_in(dialect).user("Read it.").step(read("src/a.py", "value = 1\n" * 300)).user("And now?").messages
    messages[1]["extra"] = extra
    return messages


@every_dialect
@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("depth", [MAX_DEPTH, 900, 5_000, 200_000])
def test_what_is_nested_too_deep_is_refused_with_its_index_its_field_and_how_deep_is_allowed(dialect, kind, depth):
    messages = talk(dialect, nested(depth, kind))
    with pytest.raises(BadMessage, match="more than 200 deep") as refused:
        compact(messages, target_tokens=200, dialect=dialect)
    assert (refused.value.index, refused.value.field) == (1, "extra")
    with Session.open("run", window=200_000, store="memory:", dialect=dialect) as session:
        with pytest.raises(BadMessage, match="more than 200 deep") as refused:
            session.append(messages)
        assert (refused.value.index, refused.value.field) == (1, "extra")
        assert session.history() == []
        session.append(talk(dialect, "flat"))
        assert session.context() == talk(dialect, "flat")


@every_dialect
@pytest.mark.parametrize("kind", [dict, list])
def test_what_is_just_allowed_goes_through_everything(dialect, kind):
    messages = talk(dialect, nested(MAX_DEPTH - 1, kind))
    assert compact(messages, target_tokens=300, dialect=dialect).report.tokens_after > 0
    with Session.open("run", window=200_000, store="memory:", dialect=dialect) as session:
        session.append(messages)
        assert session.context() == session.history() == messages
        session.compact(level="emergency")
        assert session.history() == messages
        assert session.context()
        session.facts()
        session.checkpoint()
        session.search("innermost")


@pytest.mark.parametrize("build", ["itself", "shared"])
def test_what_holds_itself_or_the_same_thing_again_and_again_takes_no_time(build):
    value: Any = []
    if build == "itself":
        value += [value, value]
    else:
        for _ in range(400):
            value = [value, value]
    with pytest.raises(BadMessage, match="nested"):
        compact([{"role": "user", "content": "Hello", "extra": value}], target_tokens=10)


@given(st.recursive(st.none() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=20))
def test_nothing_that_is_flat_enough_is_refused(value):
    with Session.open("run", window=200_000, store="memory:") as session:
        session.append({"role": "user", "content": "Hello", "extra": value})
        assert session.history()[0]["extra"] == value
