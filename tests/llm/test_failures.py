"""What a client makes of each way to fail, in both wire formats."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from msgspec.structs import replace

from context_compactor.errors import ModelDenied, ModelError, ModelOverflow, ModelStopped, ModelUnavailable
from context_compactor.summarize.clients.client import ModelClient, seconds_to_wait
from context_compactor.summarize.model import Control, with_retries
from tests.llm.asking import ask, control
from tests.llm.formats import event
from tests.llm.provider import Reply, failure
from tests.waiting import PATIENCE


def _good(wire):
    return Reply(pieces=[*wire.text("Hello"), *wire.end()])


def _patient(client: ModelClient, seconds: float) -> ModelClient:
    return ModelClient(replace(client.named, patience=seconds), client.wire, client.secrets)


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_wrong_key_is_denied_and_never_tried_again(provider, wire, status):
    provider.replies = [failure(status, wire.error("authentication_error", "invalid x-api-key"))]
    client = wire.client(provider.url)
    with pytest.raises(ModelDenied, match=f"{client.name}: HTTP {status}: invalid x-api-key"):
        with_retries(lambda: client.write(ask(), control()), 3, 0, control())
    assert len(provider.bodies) == 1


def test_a_spent_budget_is_denied_although_it_comes_as_too_many_requests(provider, wire):
    words = "You exceeded your current quota, please check your plan"
    provider.replies = [failure(429, wire.error("insufficient_quota", words))]
    with pytest.raises(ModelDenied):
        wire.client(provider.url).write(ask(), control())


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "the request exceeds the available context size (4096 tokens), try increasing it",
        "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000",
        "Please reduce the length of the messages or completion.",
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_a_request_that_is_too_long_is_an_overflow_however_it_is_said(provider, wire, words, status):
    provider.replies = [failure(status, wire.error("invalid_request_error", words))]
    with pytest.raises(ModelOverflow):
        wire.client(provider.url).write(ask(), control())
    assert len(provider.bodies) == 1


def test_a_request_above_the_limit_of_a_whole_minute_is_an_overflow(provider, wire):
    words = "Request too large for gpt-4.1 on tokens per min (TPM): Limit 30000, Requested 45000."
    provider.replies = [failure(429, wire.error("tokens", words))]
    with pytest.raises(ModelOverflow):
        wire.client(provider.url).write(ask(), control())


def test_a_body_that_is_too_large_is_an_overflow(provider, wire):
    provider.replies = [failure(413, b"<html>413 Request Entity Too Large</html>")]
    with pytest.raises(ModelOverflow):
        wire.client(provider.url).write(ask(), control())


def test_too_many_requests_say_when_to_come_back(provider, wire):
    provider.replies = [failure(429, wire.error("rate_limit_error", "slow down"), retry_after="7")]
    with pytest.raises(ModelUnavailable) as caught:
        wire.client(provider.url).write(ask(), control())
    assert (caught.value.retry, caught.value.retry_after) == (True, 7.0)
    assert len(provider.bodies) == 1


def test_the_time_to_wait_is_a_number_or_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    earlier = format_datetime(datetime.now(UTC) - timedelta(seconds=90), usegmt=True)
    assert 0 < seconds_to_wait({"retry-after": later}) <= 90
    assert seconds_to_wait({"retry-after": earlier}) == 0
    assert seconds_to_wait({"retry-after-ms": "1500", "retry-after": "2"}) == 1.5
    assert [seconds_to_wait({"retry-after": said}) for said in ("0.5", "-3", "soon", "")] == [0.5, None, None, None]
    assert seconds_to_wait({}) is None


@pytest.mark.parametrize("status", [408, 500, 502, 503, 529])
def test_a_failure_on_the_other_side_is_tried_again(provider, wire, status):
    provider.replies = [failure(status, b"oops"), _good(wire)]
    client = wire.client(provider.url)
    assert with_retries(lambda: client.write(ask(), control()), 3, 0, control()).text == "Hello"
    assert len(provider.bodies) == 2


def test_an_unknown_model_is_an_error_that_is_not_tried_again(provider, wire):
    provider.replies = [failure(404, wire.error("not_found_error", "model: nope"))]
    with pytest.raises(ModelError, match="model: nope") as caught:
        wire.client(provider.url).write(ask(), control())
    assert (type(caught.value), caught.value.retry) == (ModelError, False)


def test_an_error_in_mid_stream_is_worth_a_retry(provider, wire):
    broken = event(wire.error("overloaded_error", "Overloaded"), "error")
    provider.replies = [Reply(pieces=[*wire.text("Good "), broken])]
    with pytest.raises(ModelUnavailable, match="Overloaded"):
        wire.client(provider.url).write(ask(), control())


@pytest.mark.parametrize("end", ["drop", "close"])
def test_a_connection_lost_in_mid_stream_is_worth_a_retry(provider, wire, end):
    provider.replies = [Reply(pieces=wire.text("Good "), end=end)]
    with pytest.raises(ModelUnavailable):
        wire.client(provider.url).write(ask(), control())


def test_a_page_in_place_of_an_answer_is_no_answer_of_this_api_and_not_tried_again(provider, wire):
    page = {"content-type": "text/html; charset=utf-8"}
    provider.replies = [Reply(pieces=[b"<html>Welcome to the network</html>"], headers=page)]
    with pytest.raises(ModelError, match=r"sent text/html, which is not a response of this API") as caught:
        wire.client(provider.url).write(ask(), control())
    assert (caught.value.retry, caught.value.billed) == (False, False)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_and_its_origin_is_named(provider, wire, status):
    location = "http://me:hunter22@elsewhere.example:8080/v1?token=abc"
    provider.replies = [Reply(status=status, headers={"location": location})]
    with pytest.raises(ModelError, match=r"redirects to http://elsewhere\.example:8080, .*use its address") as caught:
        wire.client(provider.url).write(ask(), control())
    assert (caught.value.retry, caught.value.billed) == (False, False)
    assert "hunter22" not in str(caught.value)
    assert len(provider.bodies) == 1


def test_a_redirect_within_the_server_is_not_followed_either(provider, wire):
    provider.replies = [Reply(status=307, headers={"location": "/elsewhere"})]
    with pytest.raises(ModelError, match="another place of the same server"):
        wire.client(provider.url).write(ask(), control())
    assert len(provider.bodies) == 1


@pytest.mark.parametrize(
    ("reply", "billed"),
    [
        (failure(404, b"no"), False),
        (failure(429, b"slow down"), False),
        (failure(503, b"busy"), False),
        (failure(504, b"the gateway lost its patience"), True),
        (Reply(end="drop"), True),
    ],
)
def test_an_error_says_whether_the_call_may_have_to_be_paid_for(provider, wire, reply, billed):
    provider.replies = [reply]
    with pytest.raises(ModelError) as caught:
        wire.client(provider.url).write(ask(), control())
    assert caught.value.billed is billed


@pytest.mark.parametrize("end", ["drop", "close", "stall"])
def test_an_answer_that_broke_off_or_timed_out_may_have_to_be_paid_for(provider, wire, end):
    provider.replies = [Reply(pieces=wire.text("Good "), end=end)]
    with pytest.raises(ModelUnavailable) as caught:
        _patient(wire.client(provider.url), 2.0).write(ask(), control())
    assert caught.value.billed


def test_silence_before_the_first_word_may_have_to_be_paid_for(provider, wire):
    provider.replies = [Reply(end="stall")]
    with pytest.raises(ModelUnavailable) as caught:
        _patient(wire.client(provider.url), 1.0).write(ask(), control())
    assert caught.value.billed


@pytest.mark.parametrize(
    "nonsense", [b"data: {broken\n\n", b"data: 5\n\n", b'data: {"choices": [{"delta": null}]}\n\n']
)
def test_nonsense_is_an_error_that_names_the_model(provider, wire, nonsense):
    said = nonsense if wire.name == "openai" else b"event: message_start\n" + nonsense
    provider.replies = [Reply(pieces=[said])]
    client = wire.client(provider.url)
    with pytest.raises(ModelError, match=client.name):
        client.write(ask(), control())


def test_nobody_at_the_address_is_worth_a_retry(provider, wire):
    client = wire.client(provider.url.rpartition(":")[0] + ":1")
    with pytest.raises(ModelUnavailable, match=client.name) as caught:
        client.write(ask(), control())
    assert not caught.value.billed


def test_silence_is_given_up_before_the_deadline_and_may_be_tried_again(provider, wire):
    provider.replies = [Reply(pieces=wire.text("Good "), end="stall")]
    with pytest.raises(ModelUnavailable):
        _patient(wire.client(provider.url), 1.0).write(ask(), control())
    assert provider.gone.wait(PATIENCE)


@pytest.mark.parametrize("end", ["stall", "endless"])
def test_the_deadline_ends_a_call_and_closes_its_stream(provider, wire, end):
    provider.replies = [Reply(pieces=wire.text("la "), end=end)]
    asked = control()
    asked.on_text = lambda _: setattr(asked, "deadline", 0.0)
    with pytest.raises(ModelStopped, match="deadline"):
        wire.client(provider.url).write(ask(max_tokens=50_000), asked)
    assert provider.gone.wait(PATIENCE)


@pytest.mark.parametrize("end", ["stall", "endless"])
def test_a_cancel_ends_a_call_in_mid_stream_and_closes_its_stream(provider, wire, end):
    provider.replies = [Reply(pieces=wire.text("la "), end=end)]
    asked = control()
    asked.on_text = lambda _: asked.cancel.set()
    with pytest.raises(ModelStopped, match="cancelled"):
        wire.client(provider.url).write(ask(max_tokens=50_000), asked)
    assert provider.gone.wait(PATIENCE)


def test_a_cancel_from_another_thread_ends_a_call_that_has_not_begun_to_answer(provider, wire):
    provider.replies = [Reply(end="stall")]
    asked = control()
    threading.Timer(0.2, asked.cancel.set).start()
    with pytest.raises(ModelStopped, match="cancelled"):
        wire.client(provider.url).write(ask(), asked)


def test_an_interrupt_while_text_is_shown_closes_the_stream(provider, wire):
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    provider.replies = [Reply(pieces=wire.text("la "), end="stall")]
    with pytest.raises(KeyboardInterrupt):
        wire.client(provider.url).write(ask(), control(on_text=interrupt))
    assert provider.gone.wait(PATIENCE)


def test_a_call_that_is_over_before_it_begins_sends_nothing(provider, wire):
    over = Control(0, threading.Event())
    with pytest.raises(ModelStopped):
        wire.client(provider.url).write(ask(), over)
    assert provider.bodies == []


def test_several_threads_may_call_at_once(provider, wire):
    provider.replies = [_good(wire)]
    client = wire.client(provider.url)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(client.write(ask(), control()).text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["Hello"] * 8
