"""With `redact_secrets` no secret reaches a model, by whichever way it is told something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from context_compactor import Settings, compact
from context_compactor.dialects.record import is_record, record_span
from context_compactor.store.connect import connect
from context_compactor.testing import ScriptedModel
from tests.engine.test_model import working_day
from tests.sessions.summarizing import FIRST, opened, steps
from tests.summarize.samples import GOOD

TOKEN, PASSWORD = "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "hunter2hunter2"
KEY = f"-----BEGIN PRIVATE KEY-----\n{'MIIEvQIBADANBgkqhkiG9w0BAQEFAASC' * 4}\n-----END PRIVATE KEY-----"
SAID = f"push with {TOKEN}\nexport DB_PASSWORD={PASSWORD}\n{KEY}\n"


def secret_day() -> list[dict]:
    """A day whose request, calls and results all hold secrets."""
    day = [
        {**raw, "content": SAID + str(raw["content"])} if raw["role"] != "system" else raw for raw in working_day(12)
    ]
    for raw in day:
        for call in raw.get("tool_calls") or ():
            call["function"]["arguments"] = json.dumps({"command": f"curl -u me:{PASSWORD} x", "password": PASSWORD})
    return day


def sent(model: ScriptedModel) -> str:
    return "\n".join(str(request) for request in model.requests)


def is_leaking(text: str) -> bool:
    return any(secret in text for secret in (TOKEN[4:], PASSWORD, "MIIEvQIBADAN"))


@pytest.mark.parametrize("chunk", [3_000, 50_000])
def test_a_model_is_told_no_secret(chunk):
    model = ScriptedModel([GOOD])
    settings = Settings(
        redact_secrets=True,
        summarizer_input_tokens=chunk,
        agent_request={"system": f"the token is {TOKEN}"},
    )
    first = compact(
        secret_day(), target_tokens=6_000, summarizer=model, settings=settings, focus=f"what {TOKEN} is for"
    )
    again = [*first.messages, *secret_day()[1:]]
    compact(again, target_tokens=6_000, summarizer=model, settings=settings)
    assert len(model.requests) >= 1
    assert not is_leaking(sent(model))
    assert "[redacted:github_token]" in sent(model)
    assert all(not request.prefix and not request.beside for request in model.requests)


@pytest.mark.parametrize("target", [900, 2_000, 6_000])
def test_the_record_tells_no_part_of_a_secret_which_a_later_compaction_could_not_know_for_one(target):
    made = compact(secret_day(), target_tokens=target, settings=Settings(redact_secrets=True))
    record = next(str(raw["content"]) for raw in made.messages if raw["role"] == "user")
    assert is_record(record[slice(*record_span(record))])
    assert not any(part in record for part in (TOKEN[4:10], PASSWORD[:7], "MIIEvQ"))


def test_turns_that_stay_are_as_they_were():
    day = [*secret_day(), {"role": "user", "content": f"push with {TOKEN}"}]
    made = compact(day, target_tokens=2_000, settings=Settings(redact_secrets=True))
    assert made.report.changed
    assert made.messages[-1]["content"].endswith(f"push with {TOKEN}")


def test_without_the_setting_everything_is_sent():
    model = ScriptedModel([GOOD])
    compact(secret_day(), target_tokens=6_000, summarizer=model)
    assert is_leaking(sent(model))


def test_what_was_appended_before_the_setting_was_on_is_not_sent_either(tmp_path: Path):
    with opened(None, tmp_path) as session:
        session.append([*FIRST, {"role": "user", "content": SAID}, *steps(0, 34)])
    model = ScriptedModel([GOOD])
    with opened(model, tmp_path, redact_secrets=True) as session:
        session.prepare()
        session.compact(level="soft")
    assert model.requests
    assert not is_leaking(sent(model))


def test_a_store_gets_no_secret_from_a_single_compaction(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/kept.db"
    made = compact(secret_day(), target_tokens=6_000, store=url, settings=Settings(redact_secrets=True))
    store = connect(url)
    archived = store.originals(made.report.session_id)
    texts = [store.get([each.content])[each.content].decode() for each in archived]
    store.close()
    assert texts
    assert not any(map(is_leaking, texts))
