"""What a stranger can cause is no error of the server, and what lasts is said once."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import pytest

from context_compactor.errors import StoreError
from context_compactor.server.tokens import TokenFile, add_token
from tests.server.running import running
from tests.waiting import PATIENCE, wait_for


@pytest.fixture
def said(caplog) -> Callable[[], list[str]]:
    """What the log says from now on."""
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_webhook_store_that_does_not_answer_is_spoken_of_once_until_it_does(server, said, monkeypatch):
    looks = []

    def claim(*_args) -> None:
        looks.append(1)
        raise StoreError("the disk is full")

    sender = server.service.sender
    sender.poll_seconds = 0.01
    with monkeypatch.context() as broken:
        broken.setattr(server.service.service_store.webhooks, "claim", claim)
        wait_for(lambda: len(looks) >= 5)
    assert sum("deliveries" in line for line in said()) == 1


def test_a_browser_that_goes_away_in_the_middle_of_a_form_is_no_error(tmp_path, said):
    tokens = tmp_path / "tokens"
    add_token(tokens, "red", "", read_only=False)
    with running(tmp_path, token_file=tokens) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\ntoken=")
        assert server.get("/healthz").status == 200
    assert said() == []


def test_a_wish_to_speak_otherwise_is_answered_and_not_logged(shared, said):
    wish = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "x" * 24,
    }
    assert shared.get("/healthz", **wish).status == 200
    assert said() == []


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o640, False), (0o644, True), (0o606, True)])
def test_a_token_file_that_everybody_can_read_or_write_is_warned_of(tmp_path, said, mode, is_told):
    path = tmp_path / "tokens"
    add_token(path, "red", "", read_only=False)
    path.chmod(mode)
    TokenFile(path)
    assert [str(path) in line for line in said()] == [True] * is_told
