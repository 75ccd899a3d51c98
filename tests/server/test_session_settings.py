"""What a caller may set for a session: how it is compacted, but neither places nor what the server pays for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from context_compactor.server.sessions import LIMIT_SETTINGS, SERVER_ONLY_SETTINGS
from context_compactor.settings import Settings

# Whoever adds a setting decides here whether a caller who may write is trusted with it.
SESSIONS_OWN: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "enabled": False,
    "automatic": False,
    "window": 100_000,
    "reserve_output_tokens": 1_000,
    "overhead_tokens": 10,
    "max_request_bytes": 1_000_000,
    "levels": "soft=0.70:0.30,emergency=0.90:0.15",
    "wait_for_boundary": False,
    "rearm_margin": 0.1,
    "model_auto_compact_token_limit": 50_000,
    "suggest_tool_results": 10,
    "suggest_files": 5,
    "suggest_share": 0.6,
    "replace_outputs": False,
    "agent_compaction": "steered",
    "agent_record_tokens": 4_000,
    "brief_subagents": False,
    "counters_compact": True,
    "preserve_recent_turns": 2,
    "tail_share": 0.2,
    "min_gain_percent": 20,
    "max_output_tokens": 1_000,
    "compact_prompt": "Keep the names of tests.",
    "retry_attempts": 5,
    "retry_delay_seconds": 1,
    "idle_seconds": 60,
    "extract_facts": False,
    "promote_to_memory": False,
    "notify_on_compact": True,
    "redact_secrets": True,
    "recall_tool": True,
    "layout": "record",
}
OWN: dict[str, Any] = {
    "store": "memory:",
    "archive_dir": "elsewhere",
    "compact_prompt_file": "/etc/passwd",
    "retention_days": 1,
    "proxy_mode": "off",
    "proxy_holdout": 0.5,
    "summarizer": "openai/gpt-5",
    "summarizer_window": 1_000_000,
    "summarizer_input_tokens": 1_000_000,
    "agent_request": {"n": 100},
    "models": {"openai/gpt-5": {"input": 0, "output": 0}},
}
# What the server allows, what is less, and what is more.
LIMITED: dict[str, tuple[str, Any, Any]] = {
    "spend_limit": ("0.5", 0.1, 0.6),
    "session_spend_limit": ("5", 1, 100_000),
    "attempt_limit": ("10", 0, 11),
    "session_attempt_limit": ("100", 99, 101),
    "deadline_seconds": ("60", 5, 86_400),
    "summarizer_parallel_calls": ("2", 1, 64),
    "summarize_ahead": ("off", False, True),
}


def _made(server, **settings):
    return server.post("/v1/sessions", {"window": 200_000, "settings": settings})


def test_every_setting_is_the_sessions_the_servers_or_a_limit():
    assert set(OWN) == SERVER_ONLY_SETTINGS
    assert set(LIMITED) == LIMIT_SETTINGS
    assert sorted([*SESSIONS_OWN, *OWN, *LIMITED]) == sorted(Settings.__struct_fields__)


@pytest.mark.parametrize("name", SESSIONS_OWN)
def test_how_a_session_is_compacted_is_its_own(shared, name):
    got = _made(shared, **{name: SESSIONS_OWN[name]})
    assert got.status == 201, got.raw
    assert name in got.json["settings"] or (name == "model" and got.json["model"] == SESSIONS_OWN[name])


@pytest.mark.parametrize("name", OWN)
def test_what_is_the_servers_own_cannot_be_set_from_outside(shared, name):
    got = _made(shared, **{name: OWN[name]})
    assert (got.status, got.problem) == (422, "bad-setting")
    assert name in got.json["detail"]


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_can_be_lowered_and_never_raised(shared, monkeypatch, name):
    allowed, less, more = LIMITED[name]
    monkeypatch.setenv(f"COMPACTOR_{name.upper()}", allowed)
    assert _made(shared, **{name: less}).status == 201
    assert _made(shared, **{name: allowed}).status == 201
    got = _made(shared, **{name: more})
    assert (got.status, got.problem) == (422, "bad-setting"), got.raw
    assert name in got.json["detail"]


def test_no_limit_at_all_is_more_than_any(shared, monkeypatch):
    monkeypatch.setenv("COMPACTOR_SPEND_LIMIT", "5")
    assert _made(shared, spend_limit="none").problem == "bad-setting"


def test_the_guide_names_all_that_a_session_may_not_set_or_raise():
    guide = (Path(__file__).parents[2] / "docs/how-to/server.md").read_text()
    own, _, limits = guide.partition("- The server's own,")[2].partition("So a server")[0].partition("- Limits,")
    assert set(re.findall(r"`([a-z_]+)`", own)) == SERVER_ONLY_SETTINGS
    assert set(re.findall(r"`([a-z_]+)`", limits)) == LIMIT_SETTINGS


def test_where_the_server_has_no_limit_a_session_may_have_one(shared):
    assert _made(shared, spend_limit=1_000).json["settings"] == {"spend_limit": 1_000}


def test_nothing_is_made_of_a_session_that_asks_for_too_much(shared):
    got = shared.post("/v1/sessions", {"id": "greedy", "window": 200_000, "settings": {"summarizer": "openai/gpt-5"}})
    assert got.status == 422
    assert shared.get("/v1/sessions/greedy").status == 404
