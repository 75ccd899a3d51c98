"""A, with a model: summaries that do not shrink, never end, or fail again and again."""

from __future__ import annotations

import pytest
from msgspec import structs

from context_compactor import Session, Settings, compact
from context_compactor.sessions.events import Bus
from context_compactor.settings import ModelEntry
from tests.evaluation.models import echo
from tests.failures.served import DAY, TARGET, WIRES, assert_digest, body_text, outcomes, says, serving
from tests.llm.formats import FORMATS, event
from tests.llm.provider import Reply, failure
from tests.sessions.talk import CALM
from tests.waiting import PATIENCE

OPENAI = FORMATS["openai"]
MOST_RUNGS = 3
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


def as_session(url: str, bus: Bus | None = None, **more: object) -> Session:
    chosen = {"summarizer": f"{url}/v1#some", "summarizer_window": 128_000, "retry_delay_seconds": 0.0, **more}
    return Session.open("run", window=1_000_000, store="memory:", settings=structs.replace(CALM, **chosen), bus=bus)


@every_wire
def test_a_summary_as_large_as_its_source_is_refused_after_a_few_tries_and_the_agent_goes_on(wire):
    """Row 1."""
    with serving(lambda request: says(wire, echo(request))) as provider:
        result = compact(DAY, target_tokens=TARGET, summarizer=wire.client(provider.url))
    assert_digest(result)
    assert all("not_smaller" in outcome for outcome in outcomes(result))
    chunks = {body_text(body).partition(" conversation begins")[2][:3_000] for body in provider.bodies}
    assert len(provider.bodies) <= MOST_RUNGS * len(chunks)


def test_a_session_whose_summaries_do_not_shrink_says_so_once_and_asks_nothing_twice():
    """Row 1."""
    bus, dropped = Bus(), []
    bus.subscribe(dropped.append, types=("job.dropped",))
    with serving(lambda request: says(OPENAI, echo(request))) as provider, as_session(provider.url, bus) as session:
        session.append(DAY)
        report = session.compact(target_tokens=TARGET)
        assert (report.status, report.summarized_by) == ("success", "")
        assert len(dropped) == 1
        asked = len(provider.bodies)
        assert session.compact(target_tokens=TARGET).summarized_by == ""
        assert len(provider.bodies) == asked
        session.append([{"role": "user", "content": "And on we go."}])
        assert session.context()[-1]["content"] == "And on we go."


@every_wire
def test_a_stream_without_end_is_ended_by_the_deadline_and_its_call_is_in_the_report(wire):
    """Row 4."""
    endless = Reply(pieces=wire.text("and so on "), end="endless")
    with serving(endless) as provider:
        settings = Settings(deadline_seconds=1.0, retry_delay_seconds=0.0)
        result = compact(DAY, target_tokens=TARGET, summarizer=wire.client(provider.url), settings=settings)
        assert provider.gone.wait(PATIENCE)
    assert_digest(result)
    assert "deadline" in result.report.reason
    assert any("stopped" in outcome for outcome in outcomes(result))
    assert all(call.tokens_shown > 0 for call in result.report.model_calls)


def test_a_spend_limit_ends_the_calls_and_what_was_spent_is_in_the_report():
    """Row 4."""
    usage = {"prompt_tokens": 9_000, "completion_tokens": 700, "total_tokens": 9_700}
    billed = event(
        {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    )
    with serving(Reply(pieces=[*OPENAI.text("and so on"), OPENAI.end()[0], billed])) as provider:
        name = f"{provider.url}/v1#dear"
        prices = {name: ModelEntry(input=10.0, output=10.0)}
        limited = Settings(summarizer_window=128_000, models=prices, spend_limit=0.19)
        result = compact(DAY, target_tokens=TARGET, summarizer=name, settings=limited)
        unlimited = compact(
            DAY, target_tokens=TARGET, summarizer=name, settings=structs.replace(limited, spend_limit=None)
        )
    assert_digest(result)
    assert outcomes(result)[-1] == "limit"
    assert "limit" not in outcomes(unlimited)
    spent = [call.cost for call in result.report.model_calls if call.cost]
    assert spent == [pytest.approx(0.097)]


def test_a_summary_that_failed_is_not_asked_for_again_while_nothing_has_changed():
    """Row 12."""
    with serving(says(OPENAI, "")) as provider, as_session(provider.url, retry_attempts=1) as session:
        session.append(DAY)
        session.compact(target_tokens=TARGET)
        asked = len(provider.bodies)
        assert asked
        for _ in range(3):
            session.undo()
            assert session.compact(target_tokens=TARGET).status == "success"
        assert len(provider.bodies) == asked


@pytest.mark.parametrize("status", [401, 500])
def test_a_server_that_is_back_is_asked_again(status):
    """Row 12: what failed was not the request."""
    with serving(failure(status, {"error": {"message": "down"}})) as provider, as_session(provider.url) as session:
        session.append(DAY)
        session.compact(target_tokens=TARGET)
        session.undo()
        asked = len(provider.bodies)
        provider.answer = lambda _: says(OPENAI, "")
        session.compact(target_tokens=TARGET)
        assert len(provider.bodies) > asked


def test_what_has_changed_may_be_asked_again():
    """Row 12."""
    with serving(says(OPENAI, "")) as provider, as_session(provider.url) as session:
        session.append(DAY)
        session.compact(target_tokens=TARGET)
        asked = len(provider.bodies)
        session.append(DAY[2:])
        session.compact(target_tokens=TARGET)
        assert len(provider.bodies) > asked
