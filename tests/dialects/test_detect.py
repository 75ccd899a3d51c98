"""Which dialect a list of messages speaks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS, detect, find_dialect
from tests.dialects.shapes import BUILDERS
from tests.dialects.strategies import DIALECT_NAMES, legal_histories

HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_conversation_with_calls_tells_its_dialect(name):
    build = BUILDERS[name]
    assert detect([HI, *build.calls("a"), *build.results(("a", "1"))]).name == name
    assert find_dialect("auto", [HI, *build.calls("a")]).name == name


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ([], "openai-chat"),
        ([HI, {"role": "assistant", "content": "ok"}], "openai-chat"),
        ([{"role": "developer", "content": "x"}, HI], "openai-chat"),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}], "anthropic"),
        ([{"role": "system", "content": [{"type": "text", "text": "a", "cache_control": {}}]}, HI], "openai-chat"),
        ([HI, {"role": "assistant", "content": None, "refusal": None, "tool_calls": None}], "openai-chat"),
        ([HI, {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]}], "anthropic"),
        ([HI, {"type": "message", "role": "assistant", "content": "a"}], "openai-responses"),
        ([HI, {"type": "reasoning", "id": "rs_1", "summary": []}], "openai-responses"),
        ([{"type": "web_search_call", "id": "ws_1"}], "openai-responses"),
        ([{"role": "user", "content": [{"type": "image", "source": {}}]}], "anthropic"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}], "openai-chat"),
        ([None, 7, {"type": ["odd"]}, {"role": ["odd"]}], "openai-chat"),
    ],
)
def test_telltale_messages(items, name):
    assert detect(items).name == name


def test_a_named_dialect_is_not_second_guessed():
    assert find_dialect("anthropic", [HI]) is DIALECTS["anthropic"]


@settings(deadline=None)
@given(data=st.data(), name=st.sampled_from(DIALECT_NAMES))
def test_what_is_detected_can_be_read(data, name):
    items = data.draw(legal_histories(name))
    found = detect(items)
    assert len(found.parse(items)) == len(items)
