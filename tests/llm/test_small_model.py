"""A real model through the openai SDK. What it says is often poor; that it is said is what counts here."""

from __future__ import annotations

import pytest

from context_compactor.errors import ModelOverflow, ModelStopped, ModelUnavailable
from context_compactor.llm.model import ModelMessage, ModelRequest
from context_compactor.llm.names import open_model
from context_compactor.llm.retry import with_retries
from context_compactor.settings import Settings
from tests.llm.asking import SCHEMA, control
from tests.llm.small_model import WINDOW

STORY = ModelRequest(messages=(ModelMessage("user", "Tell a very long story about a lighthouse."),), max_tokens=400)


@pytest.fixture
def model(small_model):
    return open_model(small_model.name, Settings(model_window=WINDOW), {})


def test_it_streams_an_answer_with_its_usage(model):
    heard = []
    request = ModelRequest(messages=(ModelMessage("user", "Say hello."),), max_tokens=24)
    answer = model.write(request, control(120, heard.append))
    assert answer.text.strip()
    assert "".join(heard) == answer.text
    assert len(heard) > 1
    assert answer.usage.input + answer.usage.cache_read > 0
    assert 0 < answer.usage.output <= 24


def test_an_answer_that_needs_more_room_is_cut_off_by_length(model):
    request = ModelRequest(messages=STORY.messages, max_tokens=8)
    assert model.write(request, control(120)).stop == "length"


def test_it_is_held_to_a_schema(model):
    asked = (ModelMessage("user", "How is the weather? Answer with a mood and a score."),)
    answer = model.write(ModelRequest(messages=asked, max_tokens=100, schema=SCHEMA), control(120))
    assert answer.stop == "complete"
    assert set(answer.value) == {"mood", "score"}
    assert answer.value["mood"] in ("good", "bad")


def test_a_request_beyond_its_window_is_an_overflow(model):
    long = (ModelMessage("user", "lighthouse " * 3 * WINDOW),)
    with pytest.raises(ModelOverflow):
        model.write(ModelRequest(messages=long, max_tokens=8), control(120))


def test_the_deadline_stops_it_in_mid_answer_and_the_next_call_is_served(model):
    asked = control(120)

    def first_piece(_: str) -> None:
        asked.deadline = 0.0

    asked.on_text = first_piece
    with pytest.raises(ModelStopped, match="deadline"):
        model.write(STORY, asked)
    assert model.write(ModelRequest(messages=STORY.messages, max_tokens=4), control(120)).usage.output == 4


def test_a_cancel_stops_it_in_mid_answer(model):
    asked = control(120)
    asked.on_text = lambda _: asked.cancel.set()
    with pytest.raises(ModelStopped, match="cancelled"):
        model.write(STORY, asked)


def test_a_restart_in_mid_call_is_worth_a_retry_and_the_retry_is_answered(model, small_model):
    heard, waits = [], []

    def kill_once(piece: str) -> None:
        if not heard:
            small_model.kill()
        heard.append(piece)

    def restart(error: ModelUnavailable, _: float) -> None:
        waits.append(error)
        small_model.start()

    asked = control(120, kill_once)
    request = ModelRequest(messages=STORY.messages, max_tokens=40)
    assert with_retries(lambda: model.write(request, asked), 3, 0, asked, restart).text.strip()
    assert len(waits) == 1
