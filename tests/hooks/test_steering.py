"""With `agent_compaction = "steered"` the agent's own model is asked for our format, once, and nobody else is."""

from __future__ import annotations

import json

import pytest

from context_compactor.agents.steering import OPENING
from tests.hooks.place import Place, Talk, worked

STEERED = {"COMPACTOR_AGENT_COMPACTION": "steered"}
MOST_CHARS = 10_000  # what Claude Code takes of a hook's output here


def test_the_request_is_printed_before_a_compaction_with_the_facts_of_the_session(talk: Talk, place: Place):
    worked(talk)
    text = place.call("pre-compact", talk.said("PreCompact", trigger="manual"), **STEERED)
    assert text.startswith(OPENING)
    assert '"Never touch the file config/secrets.yaml."' in text
    assert "`pytest tests/test_jwt.py` → E KeyError: 'exp'" in text
    assert "6,000 tokens" in text
    assert "request given" in [line["what"] for line in place.hook_log()]


@pytest.mark.parametrize("way", ["ours", "beside"])
def test_nothing_is_printed_unless_it_is_steered(talk: Talk, place: Place, way: str):
    worked(talk)
    said = talk.said("PreCompact", trigger="manual")
    assert place.call("pre-compact", said, COMPACTOR_AGENT_COMPACTION=way) == ""


def test_the_size_that_is_asked_for_is_the_setting(talk: Talk, place: Place):
    worked(talk)
    env = STEERED | {"COMPACTOR_AGENT_RECORD_TOKENS": "4000"}
    assert "At most 4,000 tokens" in place.call("pre-compact", talk.said("PreCompact", trigger="auto"), **env)


def test_however_much_is_known_the_request_is_as_short_as_the_agent_takes_it(talk: Talk, place: Place):
    talk.user("Find out why the build fails. Never touch vendor/.")
    for step in range(80):
        talk.run(f"make target-{step} {'x' * 80}", f"Error {step}: {'y' * 200}", is_error=True)
    text = place.call("pre-compact", talk.said("PreCompact", trigger="auto"), **STEERED)
    assert len(text) <= MOST_CHARS
    assert "make target-79" in text
    assert "Never touch vendor/." in text


def test_what_the_mod_has_given_is_not_given_again_by_the_hook(talk: Talk, place: Place):
    worked(talk)
    call = talk.said("", trigger="manual", custom_instructions="Keep the exact error.")
    given = json.loads(place.call("compact --agent claude-code", call, **STEERED))["instructions"]
    assert given.startswith(OPENING)
    assert "Keep the exact error." in given
    said = talk.said("PreCompact", trigger="manual", custom_instructions=given)
    assert place.call("pre-compact", said, **STEERED) == ""
    assert "request given before" in [line["what"] for line in place.hook_log()]


def test_codex_is_steered_by_its_configuration_and_not_by_a_hook(talk: Talk, place: Place):
    worked(talk)
    said = talk.said("PreCompact", trigger="manual", turn_id="t")
    assert place.call("pre-compact --agent codex", said, **STEERED) == ""


def test_without_a_log_the_format_is_asked_for_alone(talk: Talk, place: Place):
    said = talk.said("PreCompact", trigger="auto") | {"transcript_path": "/nowhere"}
    text = place.call("pre-compact", said, **STEERED)
    assert text.startswith(OPENING)
    assert "facts begins" not in text


def test_the_next_start_completes_what_was_steered_with_what_it_lost(talk: Talk, place: Place):
    worked(talk)
    place.call("pre-compact", talk.said("PreCompact", trigger="auto"), **STEERED)
    talk.compact("## Task\n> Fix the login in src/auth/jwt.py. Never touch the file config/secrets.yaml.")
    said = talk.said("SessionStart", source="compact")
    brief = json.loads(place.call("session-start", said, **STEERED))["hookSpecificOutput"]["additionalContext"]
    assert "pytest tests/test_jwt.py" in brief
    assert "Never touch" not in brief


@pytest.mark.parametrize("way", ["steered", "beside"])
def test_a_session_knows_who_compacts_in_it_from_its_start(talk: Talk, place: Place, way: str):
    place.call("session-start", talk.said("SessionStart", source="startup"), COMPACTOR_AGENT_COMPACTION=way)
    assert place.rows()[talk.id].compaction == way


def test_our_record_is_expected_only_where_something_of_ours_has_asked_for_it(talk: Talk, place: Place):
    talk.hook("SessionStart", "session-start", source="startup")
    assert place.rows()[talk.id].compaction == "beside"
    worked(talk)
    place.call("compact --agent claude-code", talk.said("", trigger="manual"))
    talk.hook("SessionStart", "session-start", source="resume")
    assert place.rows()[talk.id].compaction == "ours"
