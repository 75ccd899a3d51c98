"""What a context becomes on its way to a model that is offered no tools, whatever dialect the session speaks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import Text
from context_compactor.dialects.repair import repair
from context_compactor.tui.chat.request import chat_request
from tests.dialects.strategies import histories, picture
from tests.engine.talks import DIALECT_NAMES, bash, talk_in
from tests.tui.chatting import assert_valid

WIRES = ("openai-chat", "anthropic")
DATA = picture(8, 6)


def sent_to(wire, context, dialect, **more):
    sent = chat_request(context, dialect, wire, ask="And now?", **more)
    assert_valid({"messages": sent.messages}, wire)
    return sent


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(data=st.data())
def test_any_context_becomes_talk_that_every_provider_takes_with_all_words_in_it(dialect, wire, data):
    spoken = find_dialect(dialect, [])
    legal, _ = repair(spoken.parse(data.draw(histories(dialect))), spoken)
    context = [message.raw for message in legal]
    sent = sent_to(wire, context, dialect)
    messages = "\n".join(json.dumps(message["content"], ensure_ascii=False) for message in sent.messages)
    for message in spoken.parse(context):
        for part in message.parts:
            words = (
                part.text if isinstance(part, Text) else part.name if message.calls and hasattr(part, "name") else ""
            )
            assert not words.strip() or json.dumps(words, ensure_ascii=False)[1:-1] in messages


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_calls_and_results_are_a_record_and_no_words_of_the_assistant(dialect, wire):
    talk = talk_in(dialect).system("Be brief.").user("Fix it.")
    talk.step(bash("ls", "a.py b.py"), bash("pytest", "1 failed", True), text="I look.").answer("One fails.")
    sent = sent_to(wire, talk.messages, dialect)
    assert [message["role"] for message in sent.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert [sent.messages[at]["content"] for at in (0, 1, 2, 4, 5)] == [
        "Be brief.",
        "Fix it.",
        "I look.",
        "One fails.",
        "And now?",
    ]
    record = sent.messages[3]["content"]
    assert record.count("[record of what") == 1
    assert all(words in record for words in ("call of Bash", "pytest", "result of Bash:\na.py b.py", "1 failed"))
    assert not sent.is_whole


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_call_that_nobody_has_answered_can_be_talked_about(dialect, wire):
    talk = talk_in(dialect).user("Fix it.").step(bash("sleep 100", None)).user("What are you doing?")
    sent = sent_to(wire, talk.messages, dialect)
    assert sent.messages[-1]["content"].endswith("What are you doing?")
    assert "sleep 100" in sent.messages[-1]["content"]


def test_plain_talk_goes_out_as_it_is():
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Well?"},
    ]
    sent = sent_to("openai-chat", talk, "openai-chat")
    assert (list(sent.messages), sent.is_whole, sent.has_media) == (talk, True, False)


def test_instructions_at_the_beginning_are_one_and_later_ones_are_told_in_their_place():
    talk = [
        {"role": "system", "content": "One."},
        {"role": "developer", "content": "Two."},
        {"role": "user", "content": "Hello"},
        {"role": "system", "content": "Three."},
    ]
    first, second = sent_to("openai-chat", talk, "openai-chat").messages
    assert first == {"role": "system", "content": "One.\n\nTwo."}
    assert second == {"role": "user", "content": "Hello\n\n[system message]\nThree."}


IMAGES = {
    "openai-chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
}


@pytest.mark.parametrize("dialect", WIRES)
def test_an_image_goes_out_as_it_is_where_the_model_speaks_the_sessions_dialect_and_else_as_words(dialect):
    image = IMAGES[dialect]
    talk = [{"role": "user", "content": [{"type": "text", "text": "Look:"}, image, {"type": "text", "text": "Well?"}]}]
    same = sent_to(dialect, talk, dialect)
    assert same.messages[0]["content"] == talk[0]["content"]
    assert (same.is_whole, same.has_media) == (True, True)
    other = sent_to(*(wire for wire in WIRES if wire != dialect), talk, dialect)
    without = sent_to(dialect, talk, dialect, with_media=False)
    assert other.messages == without.messages
    assert other.messages[0]["content"] == "Look:\n\n[image image/png 8×6: not shown here]\n\nWell?"
    assert (other.is_whole, other.has_media) == (False, False)


def test_reasoning_and_what_is_sealed_are_left_out():
    talk = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "y"}, {"type": "text", "text": "Hi"}]},
    ]
    sent = sent_to("anthropic", talk, "anthropic")
    assert [message["content"] for message in sent.messages] == ["Hello", "Hi", "And now?"]
    assert not sent.is_whole
