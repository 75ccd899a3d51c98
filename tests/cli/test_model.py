"""`compactor compact FILE --model M`: over real HTTP, and refused in words where it cannot be."""

from __future__ import annotations

import json

import pytest

from tests.engine.test_model import DAY, TARGET
from tests.llm.formats import FORMATS
from tests.llm.provider import Provider, Reply, failure
from tests.summarize.samples import GOOD

WIRE = FORMATS["openai"]


@pytest.fixture
def provider():
    serving = Provider()
    serving.replies = [Reply(pieces=[*WIRE.text(GOOD), *WIRE.end()])]
    yield serving
    serving.close()


@pytest.fixture
def day(run, tmp_path):
    (tmp_path / "day.json").write_text(json.dumps(DAY), encoding="utf-8")
    return "day.json"


def test_a_model_that_is_named_tells_the_story(run, day, provider, monkeypatch):
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_WINDOW", "128000")
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_INPUT_TOKENS", "60000")
    ran = run("compact", day, "--target", TARGET, "--summarizer", f"{provider.url}/v1#some", "--json")
    assert ran.code == 0
    assert ran.json["report"]["summarized_by"].endswith("#some")
    assert ran.json["report"]["model_calls"]


def test_the_model_of_the_settings_does_so_too(run, day, provider, monkeypatch):
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_WINDOW", "128000")
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_INPUT_TOKENS", "60000")
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#some")
    assert run("compact", day, "--target", TARGET, "--json").json["report"]["summarized_by"]


def test_in_a_session_too(run, day, provider, monkeypatch):
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_WINDOW", "128000")
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_INPUT_TOKENS", "60000")
    name = f"{provider.url}/v1#some"
    ran = run("compact", day, "--target", TARGET, "--summarizer", name, "--session", "s1", "--json")
    assert ran.code == 0
    assert ran.json["report"]["summarized_by"] == name


def test_a_server_that_denies_leaves_the_digest(run, day, provider):
    provider.replies = [failure(401, {"error": {"message": "wrong key"}})]
    ran = run("compact", day, "--target", TARGET, "--summarizer", f"{provider.url}/v1#some", "--json")
    assert ran.code == 0
    assert ran.json["report"]["summarized_by"] == ""
    assert "wrong key" in ran.json["report"]["reason"]


def test_a_missing_key_leaves_with_two_and_names_the_variable(run, day, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ran = run("compact", day, "--target", TARGET, "--summarizer", "openai/gpt-4.1-mini")
    assert ran.code == 2
    assert ran.out == ""
    assert "OPENAI_API_KEY" in ran.err


def test_a_missing_key_leaves_no_session_behind(run, day, monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert run("compact", day, "--summarizer", "openai/gpt-4.1-mini", "--session", "s1").code == 2
    assert not (tmp_path / ".compactor").exists()


def test_a_missing_extra_leaves_with_two_and_says_how_to_get_it(run, day, monkeypatch):
    monkeypatch.setattr("context_compactor.summarize.clients.names.find_spec", lambda _name: None)
    ran = run("compact", day, "--target", TARGET, "--summarizer", "anthropic/claude-haiku-4-5")
    assert ran.code == 2
    assert ".[anthropic]" in ran.err


def test_a_plan_asks_no_model(run, day, provider, monkeypatch):
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#some")
    assert run("plan", day, "--target", TARGET, "--json").code == 0
    assert provider.bodies == []


def test_the_report_for_people_says_who_told_it_and_what_it_took(run, day, provider, monkeypatch):
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_WINDOW", "128000")
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_INPUT_TOKENS", "60000")
    ran = run("compact", day, "--target", TARGET, "--summarizer", f"{provider.url}/v1#some", "-o", "out.json")
    assert "summary by" in ran.out
    assert "cost unknown" in ran.out


def test_the_effective_prompt_can_be_printed(run, monkeypatch):
    monkeypatch.setenv("COMPACTOR_COMPACT_PROMPT", "Say it in rhymes: {messages}")
    ran = run("config", "--prompt")
    assert ran.code == 0
    assert "Say it in rhymes: {messages}" in ran.out
    assert "compact_prompt" in ran.out


def test_an_address_as_the_agents_model_leaves_with_two_and_names_the_summarizer(run, day, provider):
    ran = run("compact", day, "--target", TARGET, "--model", f"{provider.url}/v1#some")
    assert ran.code == 2
    assert "summarizer" in ran.err
    assert provider.bodies == []


def test_a_provider_in_the_agents_model_is_noted_when_nobody_writes(run, day):
    ran = run("compact", day, "--target", TARGET, "--model", "openai/gpt-4.1", "-o", "out.json")
    assert ran.code == 0
    assert "--summarizer" in ran.out + ran.err


def test_the_model_of_an_evaluation_is_refused_with_the_option_to_use(run, day):
    ran = run("eval", day, "--model", "openai/gpt-4.1")
    assert ran.code == 2
    assert "--summarizer openai/gpt-4.1" in ran.err
