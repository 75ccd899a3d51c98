"""What a client makes of each kind of answer, in both wire formats."""

from __future__ import annotations

import pytest

from context_compactor.summarize.clients.client import split_reasoning
from context_compactor.tokens.prices import ModelUsage
from tests.llm.asking import ask, control
from tests.llm.provider import Reply
from tests.waiting import PATIENCE


def test_an_answer_has_its_text_usage_and_model_and_is_heard_piece_by_piece(provider, wire):
    provider.replies = [Reply(pieces=[*wire.text("Good ", "morning"), *wire.end()])]
    heard = []
    answer = wire.client(provider.url).write(ask(), control(on_text=heard.append))
    assert (answer.text, answer.stop, answer.model) == ("Good morning", "complete", "served-model")
    assert answer.usage == ModelUsage(input=40, cache_read=60, output=7)
    assert heard == ["Good ", "morning"]


def test_an_empty_answer_is_empty_and_complete(provider, wire):
    provider.replies = [Reply(pieces=[*wire.text(), *wire.end()])]
    answer = wire.client(provider.url).write(ask(), control())
    assert (answer.text, answer.stop) == ("", "complete")


def test_reasoning_is_kept_apart_from_the_text(provider, wire):
    provider.replies = [Reply(pieces=[*wire.thinking("Hm. "), *wire.end()])]
    heard = []
    answer = wire.client(provider.url).write(ask(), control(on_text=heard.append))
    assert (answer.text, answer.reasoning, heard) == ("", "Hm. ", [])


def test_reasoning_is_heard_while_it_comes_and_apart_from_the_text(provider, wire):
    provider.replies = [Reply(pieces=[*wire.thinking("Hm. "), *wire.text("Hello"), *wire.end()])]
    thoughts, heard = [], []
    asked = control(on_text=heard.append)
    asked.on_thought = thoughts.append
    wire.client(provider.url).write(ask(), asked)
    assert (thoughts, heard) == (["Hm. "], ["Hello"])


@pytest.mark.parametrize("written", ["<think>Hm.</think>\nHello", "\n<thinking>Hm.</thinking>Hello"])
def test_reasoning_written_into_the_answer_is_kept_apart_too(provider, wire, written):
    provider.replies = [Reply(pieces=[*wire.text(*written), *wire.end()])]
    answer = wire.client(provider.url).write(ask(), control())
    assert (answer.text, answer.reasoning) == ("Hello", "Hm.")


def test_reasoning_is_apart_in_every_part_of_an_answer_that_is_still_coming():
    assert split_reasoning("<think>Hm") == ("", "Hm")
    assert split_reasoning("<think>Hm.</think>") == ("", "Hm.")
    assert split_reasoning("<think>Hm.</think>\n\nHel") == ("Hel", "Hm.")
    assert split_reasoning("I say <think>") == ("I say <think>", "")


def test_reasoning_that_never_ends_leaves_no_text(provider, wire):
    provider.replies = [Reply(pieces=[*wire.text("<think>Hm. Hello"), *wire.end("length")])]
    answer = wire.client(provider.url).write(ask(), control())
    assert (answer.text, answer.reasoning, answer.stop) == ("", "Hm. Hello", "length")


def test_a_refusal_says_so(provider, wire):
    provider.replies = [Reply(pieces=wire.refusal())]
    answer = wire.client(provider.url).write(ask(), control())
    assert (answer.text, answer.stop) == ("I will not.", "refusal")


def test_a_tool_call_says_so_and_is_counted(provider, wire):
    provider.replies = [Reply(pieces=wire.tool_call())]
    answer = wire.client(provider.url).write(ask(), control())
    assert (answer.stop, answer.tool_calls, answer.text) == ("tool_call", 1, "")


def test_an_answer_cut_off_by_length_says_so(provider, wire):
    provider.replies = [Reply(pieces=[*wire.text("Good mor"), *wire.end("length")])]
    assert wire.client(provider.url).write(ask(), control()).stop == "length"


def test_a_reason_nobody_knows_is_other(provider, wire):
    provider.replies = [Reply(pieces=[*wire.text("Good"), *wire.end("moonrise")])]
    assert wire.client(provider.url).write(ask(), control()).stop == "other"


def test_characters_may_be_split_at_any_byte(provider, wire):
    text = "Zwölf Boxkämpfer 拳击手 🥊 👩‍🚀 \u2028 \x85 \x1c"
    stream = b"".join([*wire.text(text), *wire.end()])
    provider.replies = [Reply(pieces=[stream[at : at + 1] for at in range(len(stream))])]
    assert wire.client(provider.url).write(ask(), control()).text == text


def test_a_server_that_ignores_the_limit_is_cut_off(provider, wire):
    provider.replies = [Reply(pieces=wire.text("la " * 1000), end="endless")]
    answer = wire.client(provider.url).write(ask(max_tokens=5), control())
    assert answer.stop == "length"
    assert provider.gone.wait(PATIENCE)
