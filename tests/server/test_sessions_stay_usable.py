"""What would break a session later is refused when it comes, and what the server lacks breaks no request."""

from __future__ import annotations

import pytest

from tests.server.running import Running, running


@pytest.fixture
def server(shared) -> Running:
    return shared


@pytest.mark.parametrize(
    "settings",
    [
        {"idle_seconds": 1e300},
        {"retry_delay_seconds": 1e300},
        {"window": 10**30},
        {"overhead_tokens": 10**30},
        {"preserve_recent_turns": 10**30},
        {"suggest_files": 10**30},
        {"session_attempt_limit": 10**30},
        {"deadline_seconds": 1e300},
        {"model": "http://127.0.0.1:1/v1#zzz"},
        {"prices": {"openai/x": {"input": 1e308, "output": 1e308}}},
    ],
    ids=str,
)
def test_a_setting_that_nobody_can_reckon_with_is_refused_when_a_session_is_made(server, settings):
    got = server.post("/v1/sessions", {"id": "odd", "window": 8_000, "settings": settings})
    assert (got.status, got.problem) == (422, "bad-setting")
    assert server.get("/v1/sessions/odd").status == 404


def test_the_largest_settings_still_make_a_session_that_works(server):
    most = {"idle_seconds": 31_536_000, "retry_delay_seconds": 3_600, "preserve_recent_turns": 10**12}
    path = server.made(settings={**most, "suggest_files": 10**12})
    assert server.post(f"{path}/messages", {"messages": _talk()}).status == 200
    assert server.post(f"{path}/compact").status == 200
    assert server.get(f"{path}/context").status == 200


@pytest.mark.parametrize("count", ["9" * 400, "1e308", "1000000000001"])
def test_usage_that_cannot_be_true_is_as_if_it_had_not_come(server, count):
    path = server.made()
    body = f'{{"messages": [{{"role": "user", "content": "hello"}}], "usage": {{"prompt_tokens": {count}}}}}'
    got = server.post(f"{path}/messages", body.encode())
    assert got.status == 200
    assert got.json["tokens"] < 100


@pytest.mark.parametrize("model", ["openai/gpt-4o", "zzz"])
def test_who_asks_a_server_whose_model_cannot_be_opened_gets_the_digest_and_is_told(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", model)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with running(tmp_path) as server:
        path = server.made(window=20_000)
        server.post(f"{path}/messages", {"messages": _talk()})
        got = server.post(f"{path}/compact")
        assert got.status == 200, got.raw
        assert got.json["compacted"] is True
        assert "no model was asked" in got.json["reason"]
        assert server.post(f"{path}/handoff").status == 200


def _talk() -> list[dict[str, str]]:
    return [
        {"role": role, "content": f"{role} {at}: the file src/part{at}.py. " + f"word{at} " * 150}
        for at in range(12)
        for role in ("user", "assistant")
    ]
