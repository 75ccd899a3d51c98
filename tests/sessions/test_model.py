"""A session whose settings name a model: over real HTTP, with a provider that says what it is told to say."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from context_compactor import Session, Settings
from context_compactor.errors import BadSetting
from context_compactor.sessions.events import Bus
from context_compactor.sessions.state import read_profile
from tests.engine.test_model import working_day
from tests.llm.formats import FORMATS
from tests.llm.provider import Provider, Reply, failure
from tests.sessions.summarizing import stories
from tests.sessions.talk import CALM
from tests.summarize.samples import GOOD

DAY, TARGET = working_day(30), 6_000

WIRE = FORMATS["openai"]


@pytest.fixture
def provider():
    serving = Provider()
    yield serving
    serving.close()


def says(provider: Provider, text: str) -> None:
    provider.replies = [Reply(pieces=[*WIRE.text(text), *WIRE.end()])]


def calm(provider: Provider | None = None, **more: object) -> Settings:
    name = f"{provider.url}/v1#some-model" if provider else None
    usual = {
        "summarizer": name,
        "summarizer_window": 128_000,
        "summarizer_input_tokens": 50_000,
        "retry_delay_seconds": 0.0,
    }
    return structs.replace(CALM, **{**usual, **more})


def opened(settings: Settings, window: int = 1_000_000, bus: Bus | None = None) -> Session:
    return Session.open("run", window=window, store="memory:", settings=settings, bus=bus)


def test_a_compaction_that_was_asked_for_is_told_by_the_model_of_the_settings(provider):
    says(provider, GOOD)
    with opened(calm(provider)) as session:
        session.append(DAY)
        report = session.compact(target_tokens=TARGET)
        assert report.summarized_by.endswith("#some-model")
        assert "blocked: the staging secret is missing (turn_005)" in stories(session)
        assert session.compactions()[0].model_calls == report.model_calls


@pytest.mark.parametrize(("window", "level"), [(40_000, "soft"), (36_000, "aggressive")])
def test_a_compaction_by_itself_is_told_by_it_too(provider, window, level):
    says(provider, GOOD)
    with opened(calm(provider), window=window) as session:
        report = session.append(DAY)
        assert report.level == level
        assert report.summarized_by


def test_an_emergency_does_not_wait_for_it(provider):
    says(provider, GOOD)
    with opened(calm(provider), window=30_000) as session:
        report = session.append(DAY)
        assert report.level == "emergency"
        assert report.changed
    assert provider.bodies == []


def test_a_refused_summary_leaves_the_digest_and_an_event(provider):
    says(provider, "I cannot do that.")
    bus, heard = Bus(), []
    bus.subscribe(heard.append, types=("job.dropped",))
    with opened(calm(provider), bus=bus) as session:
        session.append(DAY)
        report = session.compact(target_tokens=TARGET)
        assert report.status == "success"
        assert "could not be used" in report.reason
        assert not any("staging secret" in line for line in stories(session)[:1])
    assert heard[0].payload["what"] == "summary by a model"


def test_a_server_that_fails_costs_no_compaction(provider):
    provider.replies = [failure(500, {"error": {"message": "down"}})]
    with opened(calm(provider, retry_attempts=2), window=40_000) as session:
        report = session.append(DAY)
        assert report.status == "success"
        assert report.model_calls
        assert not report.summarized_by


def test_a_dry_run_asks_no_model(provider):
    says(provider, GOOD)
    with opened(calm(provider)) as session:
        session.append(DAY)
        assert session.compact(target_tokens=TARGET, dry_run=True).model_calls == ()
    assert provider.bodies == []


def test_neither_restoring_nor_a_fresh_window_waits_for_a_model(provider):
    says(provider, GOOD)
    with opened(calm(provider)) as session:
        session.append(DAY)
        assert session.fresh().model_calls == ()
    assert provider.bodies == []


def test_a_model_that_cannot_be_opened_is_an_error_when_asked_for_and_done_without_otherwise(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with opened(calm(summarizer="openai/gpt-4.1-mini"), window=40_000) as session:
        report = session.append(DAY)
        assert report.status == "success"
        assert "OPENAI_API_KEY" in report.reason
        with pytest.raises(BadSetting, match="OPENAI_API_KEY"):
            session.compact(target_tokens=2_000)


def test_what_is_sent_has_no_tools_and_none_of_the_agents_own_instructions(provider):
    says(provider, GOOD)
    with opened(calm(provider)) as session:
        session.append(DAY)
        session.compact(target_tokens=TARGET)
    assert all("tools" not in body for body in provider.bodies)
    assert "Never touch legacy/" in json.dumps(provider.bodies)


def test_a_session_of_an_earlier_version_keeps_its_summarizer():
    stored = b'{"window": 1000, "model": "gpt-5", "settings": {"model": "openai/x", "model_window": 9000}}'
    profile = read_profile(stored)
    assert (profile.model, profile.settings) == ("gpt-5", {"summarizer": "openai/x", "summarizer_window": 9000})


def test_the_agents_model_of_the_settings_is_that_of_the_session():
    with opened(structs.replace(CALM, model="claude-sonnet-4-5")) as session:
        profile = read_profile(session._core.row().profile)
    assert (profile.model, profile.settings.get("model")) == ("claude-sonnet-4-5", None)
