"""A real model through the openai SDK. What it says is often poor; that it is said is what counts here.

In a compaction the gate is what counts: whatever is said, the context is no worse than without a model.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from context_compactor import Compaction, Session, compact
from context_compactor.engine.report import Report
from context_compactor.errors import ModelOverflow, ModelStopped, ModelUnavailable
from context_compactor.settings import Settings
from context_compactor.summarize.clients.names import open_model
from context_compactor.summarize.gate import check_answer
from context_compactor.summarize.model import ModelMessage, ModelRequest, with_retries
from context_compactor.summarize.request import headings, quote_turns
from tests.engine.talks import bash, read, talk_in
from tests.llm.asking import control
from tests.llm.small_model import WINDOW
from tests.sessions.talk import CALM
from tests.summarize.samples import evidence_of, refresh_talk

STORY = ModelRequest(messages=(ModelMessage("user", "Tell a very long story about a lighthouse."),), max_tokens=400)


@pytest.fixture
def model(small_model):
    return open_model(small_model.name, Settings(summarizer_window=WINDOW), {})


def test_it_streams_an_answer_with_its_usage(model):
    heard = []
    request = ModelRequest(messages=(ModelMessage("user", "Say hello."),), max_tokens=24)
    answer = model.write(request, control(on_text=heard.append))
    assert answer.text.strip()
    assert "".join(heard) == answer.text
    assert len(heard) > 1
    assert answer.usage.input + answer.usage.cache_read > 0
    assert 0 < answer.usage.output <= 24


@pytest.mark.slow
def test_an_answer_that_needs_more_room_is_cut_off_by_length(model):
    request = ModelRequest(messages=STORY.messages, max_tokens=8)
    assert model.write(request, control()).stop == "length"


def test_a_request_beyond_its_window_is_an_overflow(model):
    long = (ModelMessage("user", "lighthouse " * 3 * WINDOW),)
    with pytest.raises(ModelOverflow):
        model.write(ModelRequest(messages=long, max_tokens=8), control())


def test_the_deadline_stops_it_in_mid_answer_and_the_next_call_is_served(model):
    asked = control()

    def first_piece(_: str) -> None:
        asked.deadline = 0.0

    asked.on_text = first_piece
    with pytest.raises(ModelStopped, match="deadline"):
        model.write(STORY, asked)
    assert model.write(ModelRequest(messages=STORY.messages, max_tokens=4), control()).usage.output == 4


@pytest.mark.slow
def test_a_cancel_stops_it_in_mid_answer(model):
    asked = control()
    asked.on_text = lambda _: asked.cancel.set()
    with pytest.raises(ModelStopped, match="cancelled"):
        model.write(STORY, asked)


@pytest.mark.slow
def test_a_restart_in_mid_call_is_worth_a_retry_and_the_retry_is_answered(model, small_model):
    heard, waits = [], []

    def kill_once(piece: str) -> None:
        if not heard:
            small_model.kill()
        heard.append(piece)

    def restart(error: ModelUnavailable, _: float) -> None:
        waits.append(error)
        small_model.start()

    asked = control(on_text=kill_once)
    request = ModelRequest(messages=STORY.messages, max_tokens=40)
    assert with_retries(lambda: model.write(request, asked), 3, 0, asked, restart).text.strip()
    assert len(waits) == 1


@pytest.mark.slow
def test_the_gate_refuses_what_it_takes_for_a_summary(model):
    turns = refresh_talk(2)
    asked = f"Summarize under these headings:\n{headings()}\n\n{quote_turns(turns)[-1].body}"
    answer = model.write(ModelRequest(messages=(ModelMessage("user", asked),), max_tokens=100), control())
    assert answer.text.strip()
    assert check_answer(answer, evidence_of(turns)).wrong


TARGET = 1_000
RULES = " ".join(f"Rule {number}: say what you do in step {number}." for number in range(20))


def short_work() -> list:
    """Some rules, which are kept, and little work: a model of this size takes its time to read."""
    talk = talk_in("openai-chat").system(RULES).user("Add refresh tokens to the login flow. Never touch legacy/.")
    talk.step(read("src/auth/jwt.ts", "export function verifyToken(token: string) { return check(token) }"))
    talk.step(bash("npm test -- refresh", "TypeError: Cannot read properties of undefined (reading 'exp')", True))
    for step in range(8):
        talk.step(read(f"src/part_{step}.py", "\n".join(f"value_{step}_{n} = compute_{n}()" for n in range(8))))
    return talk.user("Go on with the handler.").messages


WORK = short_work()
DIGEST = compact(WORK, target_tokens=TARGET)


def assert_judged(report: Report, messages: list) -> None:
    """Every call has an outcome, and the context is the one without a model unless the story passed the gate."""
    assert (report.status, report.tokens_after <= TARGET) == ("success", True)
    assert report.model_calls
    assert all(call.outcome for call in report.model_calls)
    assert (report.metrics.failures_share, report.metrics.pins_share) == (1.0, 1.0)
    if not report.summarized_by:
        assert messages == DIGEST.messages
        assert "the one without a model stands" in report.reason


@pytest.mark.slow
def test_a_compaction_with_it_is_judged_and_no_worse_than_without(small_model):
    short = "{messages}\nSay only: done."  # a story of its own would be as poor, and takes it long to write
    settings = Settings(summarizer_window=WINDOW, retry_delay_seconds=0.0, deadline_seconds=15.0, compact_prompt=short)
    result: Compaction = compact(WORK, target_tokens=TARGET, summarizer=small_model.name, settings=settings)
    assert_judged(result.report, result.messages)


@pytest.mark.slow
def test_a_session_with_it_goes_on_whatever_it_says(small_model):
    settings = structs.replace(CALM, summarizer=small_model.name, summarizer_window=WINDOW, deadline_seconds=5.0)
    with Session.open("run", window=1_000_000, store="memory:", settings=settings) as session:
        session.append(WORK)
        report = session.compact(target_tokens=TARGET)
        assert_judged(report, session.context())
        session.append([{"role": "user", "content": "And on we go."}])
        assert session.context()[-1]["content"] == "And on we go."
