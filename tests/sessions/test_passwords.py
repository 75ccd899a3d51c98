"""A password in the address of a model is refused before it is stored, and never said again."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from context_compactor import BadSetting, Session, Settings
from context_compactor.settings import load_settings
from tests.cli.conftest import conversation, run
from tests.server.filling import Talk
from tests.server.running import running

__all__ = ["run"]

ADDRESSES = [
    "http://me:hunter2@10.0.0.1/v1#NAME",
    "https://hunter2@host.example/v1#NAME",
    "http://me:hunt%32er2@host/v1#NAME",
    "http://me:hunter2@:9/v1#NAME",
    "http://me:hun#ter2@host/v1#NAME",
]
every_address = pytest.mark.parametrize("address", ADDRESSES)


def refused(caught: pytest.ExceptionInfo[BadSetting]) -> None:
    text = str(caught.value)
    assert "MODEL_API_KEY" in text
    assert not [word for word in ("hunt", "er2", "me:") if word in text]


@every_address
def test_a_setting_with_a_password_is_refused_with_the_variable_to_use(address, monkeypatch, tmp_path):
    with pytest.raises(BadSetting) as caught:
        Settings(summarizer=address)
    refused(caught)
    with pytest.raises(BadSetting) as caught:
        load_settings({"summarizer": address})
    refused(caught)
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", address)
    with pytest.raises(BadSetting) as caught:
        load_settings()
    refused(caught)


@every_address
def test_a_session_is_not_made_with_one(address, tmp_path):
    path = tmp_path / "sessions.db"
    with pytest.raises(BadSetting) as caught:
        Session.open("run", window=1_000, store=f"sqlite:///{path}", model=address)
    refused(caught)
    assert not path.exists()


@pytest.mark.parametrize("name", ["openai/gpt-4.1", "http://127.0.0.1:8080/v1#org/name@2024", "litellm/a@b", "me@home"])
def test_names_without_one_are_fine(name):
    assert Settings(summarizer=name, model=name).summarizer == name


@every_address
def test_the_command_line_does_not_repeat_it(run, address, transcript, monkeypatch):
    got = run("compact", transcript, "--summarizer", address)
    assert got.code == 2
    assert "MODEL_API_KEY" in got.err
    assert "er2" not in got.err + got.out
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", address)
    got = run("config")
    assert got.code == 2
    assert "er2" not in got.err + got.out


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps(conversation()), encoding="utf-8")
    return path


@every_address
def test_no_route_takes_or_shows_one(address, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "context_compactor")
    with running(tmp_path) as server:
        for body in ({"settings": {"model": address}}, {"model": address}):
            got = server.post("/v1/sessions", {"id": "run", "window": 1_000, **body})
            assert got.status == 422
            assert b"er2" not in got.raw
        assert server.get("/v1/sessions/run").status == 404
    assert "er2" not in caplog.text


def test_one_that_was_stored_before_is_shown_by_no_route_and_hides_no_other_session(tmp_path):
    with running(tmp_path) as server:
        old, other = Talk(server, "old"), Talk(server, "other")
        old.turns(2)
        store = server.service.store
        profile = store.session("old").profile.replace(
            b'"settings":{', b'"settings":{"model":"%s",' % ADDRESSES[0].encode()
        )
        assert b"hunter2" in profile
        store.save_profile("old", profile)
        listed = server.get("/v1/sessions")
        assert [each["id"] for each in listed.json["sessions"]] == ["old", "other"]
        paths = ["/v1/sessions", old.path, *(f"{old.path}/{name}" for name in ("context", "history", "compactions"))]
        for path in [*paths, "/", "/sessions/old", "/activity", "/metrics", f"{old.path}/checkpoint"]:
            assert b"hunter2" not in server.get(path).raw, path
        assert other.turns(1)["appended"] == 2
