"""The summary request behind the conversation's own messages: when, what is sent, and what it is expected to cost."""

from __future__ import annotations

import json

import pytest

from context_compactor import Session
from context_compactor.engine.compact import run_request
from context_compactor.engine.request import CompactionRequest
from context_compactor.engine.result import Compaction
from context_compactor.errors import BadSetting, ModelDenied, ModelError, ModelStopped
from context_compactor.library import estimating_summarizer, summarizer_for
from context_compactor.settings import ModelEntry, Settings
from context_compactor.summarize.clients.names import describe_model
from context_compactor.summarize.input import is_agent_model
from context_compactor.summarize.model import ModelAnswer
from context_compactor.testing import ScriptedModel
from context_compactor.tokens.prices import ModelUsage
from tests.engine.test_model import DAY, SHORT, TARGET
from tests.failures.scenarios import working
from tests.llm.asking import ask, control
from tests.llm.formats import FORMATS
from tests.llm.provider import Reply
from tests.summarize.samples import GOOD

NAME = "openai/gpt-4.1-mini"
AGENT = {"tools": [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}]}
WARM = ModelAnswer(text=GOOD, stop="complete", usage=ModelUsage(input=500, cache_read=20_000, output=300))
COLD = ModelAnswer(text=GOOD, stop="complete", usage=ModelUsage(input=20_500, output=300))


def scripted(*answers, name: str = NAME, window: int = 128_000) -> ScriptedModel:
    return ScriptedModel(answers or [WARM], name=name, window=window)


def compacted(model: ScriptedModel, agents: str | None = "gpt-4.1-mini", summarizer=None, **settings) -> Compaction:
    all_settings = Settings(**{"agent_request": AGENT, "retry_delay_seconds": 0.0, **settings})
    asked = CompactionRequest(target_tokens=TARGET, settings=all_settings, model=agents)
    return run_request(DAY, asked, summarizer=summarizer or summarizer_for(all_settings, model))


def test_the_agents_own_model_is_sent_the_agents_own_messages_and_tools():
    model = scripted()
    report = compacted(model).report
    (request,) = model.requests
    assert request.prefix == tuple(DAY[: len(request.prefix)])
    assert len(request.prefix) > 10
    assert request.beside == AGENT
    assert report.summarized_by == NAME
    assert [call.cache_read for call in report.model_calls] == [20_000]


def test_the_question_comes_last_and_holds_no_copy_of_the_conversation():
    model = scripted()
    compacted(model)
    assert "compute_7()" in json.dumps(model.requests[0].prefix)
    assert "compute_7()" not in model.requests[0].messages[-1].text


@pytest.mark.parametrize(
    ("name", "agents", "settings"),
    [
        (NAME, "gpt-4.1", {}),
        (NAME, None, {}),
        (NAME, "anthropic/gpt-4.1-mini", {}),
        (f"litellm/{NAME}", "gpt-4.1-mini", {}),
        ("anthropic/claude-haiku-4-5", "claude-haiku-4-5", {}),
        (NAME, "gpt-4.1-mini", {"agent_request": {}}),
    ],
    ids=["another model", "unknown", "another provider", "litellm", "another dialect", "nothing known of its requests"],
)
def test_any_other_model_is_shown_a_copy(name, agents, settings):
    model = scripted(GOOD, name=name)
    compacted(model, agents, **settings)
    assert model.requests
    assert all(request.prefix == () for request in model.requests)


def test_a_window_that_is_too_small_for_all_of_it_is_shown_a_copy():
    model = scripted(GOOD, window=12_000)
    compacted(model)
    assert all(request.prefix == () for request in model.requests)


def test_where_the_cache_makes_nothing_cheaper_the_cheaper_way_is_taken():
    flat = {NAME: ModelEntry(input=1.0, output=1.0)}
    heavy = {"tools": [{"description": "a long description " * 20_000}]}
    model = scripted(GOOD, window=1_000_000)
    compacted(model, agent_request=heavy, models=flat)
    assert all(request.prefix == () for request in model.requests)


def test_a_cache_that_was_not_read_is_not_counted_on_again():
    model = scripted(COLD)
    settings = Settings(agent_request=AGENT)
    summarizer = summarizer_for(settings, model)
    for _ in range(2):
        compacted(model, summarizer=summarizer)
    assert model.requests[0].prefix
    assert all(request.prefix == () for request in model.requests[1:])


def test_a_server_that_does_not_take_the_messages_as_they_are_is_shown_a_copy():
    model = scripted(ModelError("400: tools.0: unknown field"), GOOD)
    assert compacted(model, summarizer_input_tokens=60_000).report.summarized_by == NAME
    assert [bool(request.prefix) for request in model.requests][:2] == [True, False]


def test_a_wrong_key_is_no_reason_to_ask_in_another_way():
    model = scripted(ModelDenied("wrong key"), GOOD)
    assert compacted(model).report.summarized_by == ""
    assert len(model.requests) == 1


def test_over_the_wire_the_request_begins_as_the_agents_does(provider):
    wire = FORMATS["openai"]
    provider.replies = [Reply(pieces=[*wire.text(GOOD), *wire.end()])]
    name = f"{provider.url}/v1#local"
    settings = Settings(agent_request=AGENT, summarizer_window=128_000)
    run_request(
        DAY,
        CompactionRequest(target_tokens=TARGET, settings=settings, model="local"),
        summarizer=summarizer_for(settings, name),
    )
    body = provider.bodies[0]
    assert body["tools"] == AGENT["tools"]
    sent = body["messages"]
    assert sent[:-1] == DAY[: len(sent) - 1]
    assert sent[-1]["role"] == "user"


def test_anthropic_gets_system_and_tools_of_the_agent_and_one_mark_at_the_end_of_its_messages(provider):
    wire = FORMATS["anthropic"]
    provider.replies = [Reply(pieces=[*wire.text(GOOD), *wire.end()])]
    client = wire.client(provider.url)
    talk = working("anthropic", 3).messages
    prefix = tuple(raw for raw in talk if raw["role"] != "system")
    beside = {"system": "You are an agent.", "tools": [{"name": "Read", "input_schema": {"type": "object"}}]}
    client.write(ask(prefix=prefix, beside=beside), control())
    body = provider.bodies[0]
    assert body["system"][0] == {"type": "text", "text": "You are an agent."}
    assert body["tools"] == beside["tools"]
    marks = [at for at, raw in enumerate(body["messages"]) if "cache_control" in json.dumps(raw)]
    assert marks == [len(prefix) - 1]


def test_a_fifth_mark_is_not_set(provider):
    wire = FORMATS["anthropic"]
    provider.replies = [Reply(pieces=[*wire.text(GOOD), *wire.end()])]
    marked = [{"name": f"T{n}", "cache_control": {"type": "ephemeral"}, "input_schema": {}} for n in range(4)]
    prefix = ({"role": "user", "content": "Hi"},)
    wire.client(provider.url).write(ask(prefix=prefix, beside={"tools": marked}), control())
    assert provider.bodies[0]["messages"][0] == prefix[0]


@pytest.mark.parametrize(
    ("name", "agents", "dialect", "same"),
    [
        ("openai/gpt-5", "gpt-5", "openai-chat", True),
        ("openai/gpt-5", "openai/gpt-5", "openai-chat", True),
        ("openai/gpt-5", "gpt-5", "openai-responses", False),
        ("openai/gpt-5", "gpt-5-mini", "openai-chat", False),
        ("http://127.0.0.1:8080/v1#local", "local", "openai-chat", True),
        ("anthropic/claude-opus-5", "claude-opus-5", "anthropic", True),
        ("anthropic/claude-opus-5", "claude-opus-5", "openai-chat", False),
        ("scripted", "scripted", "openai-chat", False),
    ],
)
def test_a_model_is_the_agents_when_name_provider_and_dialect_are_the_same(name, agents, dialect, same):
    assert is_agent_model(name, agents, dialect) is same


def expected(model: str, agents: str | None = None, **settings):
    all_settings = Settings(summarizer=model, **settings)
    asked = CompactionRequest(target_tokens=TARGET, settings=all_settings, model=agents)
    return run_request(DAY, asked, summarizer=estimating_summarizer(all_settings), dry_run=True).report


def test_what_a_dry_run_expects_is_about_what_is_then_asked():
    settings = Settings(summarizer=NAME)
    asked = CompactionRequest(target_tokens=2_000, settings=settings)
    report = run_request(SHORT, asked, summarizer=estimating_summarizer(settings), dry_run=True).report
    model = ScriptedModel([GOOD], name=NAME, window=1_047_576, most_output=32_768)
    real = run_request(SHORT, asked, summarizer=summarizer_for(settings, model)).report
    assert report.model_calls == ()
    assert report.expected.calls == len(real.model_calls)
    shown = sum(call.tokens_shown for call in real.model_calls)
    assert shown * 0.8 <= report.expected.tokens_shown <= shown * 1.5
    assert report.expected.cost == pytest.approx(
        report.expected.tokens_shown * 0.4e-6 + report.expected.tokens_written * 1.6e-6
    )


def test_a_dry_run_needs_no_key_and_cannot_send_anything(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert expected("anthropic/claude-haiku-4-5").expected.cost > 0
    with pytest.raises(ModelStopped, match="no request was sent"):
        describe_model("anthropic/claude-haiku-4-5", Settings()).write(ask(), control())


def test_an_unknown_price_is_unknown_before_too():
    report = expected("http://127.0.0.1:1/v1#local")
    assert report.expected.cost is None
    assert "cost unknown" in report.expected.in_words()


def test_with_the_agents_own_messages_less_is_expected_to_be_paid():
    copied = expected(NAME, "gpt-4.1-mini").expected
    own = expected(NAME, "gpt-4.1-mini", agent_request=AGENT).expected
    assert (own.with_prefix, own.calls) == (True, 1)
    assert own.cost < copied.cost


def test_where_no_model_would_be_asked_nothing_is_expected():
    settings = Settings(summarizer=NAME)
    asked = CompactionRequest(window=2_000_000, settings=settings)
    assert run_request(DAY, asked, summarizer=estimating_summarizer(settings), dry_run=True).report.expected is None


def test_smaller_parts_mean_more_calls():
    assert expected(NAME, summarizer_input_tokens=3_000).expected.calls > expected(NAME).expected.calls


def test_a_session_sends_what_it_really_shows_the_agent_with_what_was_remembered_for_it(tmp_path):
    learned = tmp_path / ".compactor" / "learned"
    store = f"sqlite:///{tmp_path}/.compactor/compactor.db"
    settings = Settings(agent_request=AGENT, automatic=False, idle_seconds=0.0)
    with Session.open("first", window=10_000, store=store, settings=settings) as first:
        first.append([*SHORT, {"role": "user", "content": "We decided to use PostgreSQL for the architecture."}])
        first.compact(level="aggressive")
    with Session.open("second", window=10_000, store=store, settings=settings, model="gpt-4.1-mini") as session:
        session.append(SHORT)
        shown = session.context()
        model = scripted()
        session._core.use_summarizer(summarizer_for(settings, model))
        session.compact(level="aggressive")
    prefix = list(model.requests[0].prefix)
    assert prefix
    assert prefix == shown[: len(prefix)]
    assert (len(shown) > len(SHORT)) is any(learned.glob("*"))


@pytest.mark.parametrize("wrong", [5, [1], "no JSON", {"model": "x"}, {"messages": []}])
def test_a_request_that_cannot_be_the_agents_is_refused(wrong):
    with pytest.raises(BadSetting, match="agent_request"):
        Settings(agent_request=wrong)
