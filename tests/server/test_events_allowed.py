"""Whoever follows events is allowed to at every one of them: a token that is taken away, or changed, ends it before."""

from __future__ import annotations

import pytest

from context_compactor.server import events as following_module
from context_compactor.server import tokens as tokens_module
from context_compactor.server.problems import RequestRefused
from context_compactor.server.tokens import Scope, add_token, remove_token
from tests.server.running import running
from tests.server.streams import following, tell


def test_what_happens_after_a_token_was_taken_away_is_not_told_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens_module, "_RELOAD_SECONDS", 0.0)
    tokens = tmp_path / "tokens"
    add_token(tokens, "stays", "", read_only=True)
    token = add_token(tokens, "wall", "", read_only=True)
    with (
        running(tmp_path, token_file=tokens) as server,
        following(server, Authorization=f"Bearer {token}") as stream,
    ):
        server.get("/v1/sessions", Authorization=f"Bearer {token}")  # from now on the file is looked at each time
        remove_token(tokens, "wall")
        tell(server, 1)
        assert [frame.kind for frame in stream.until_end()] == ["end"]


def _never_again() -> Scope:
    raise RequestRefused(401, "This token is not known.")


@pytest.mark.parametrize("second", [_never_again, lambda: Scope("other"), lambda: Scope(may_write=False)])
@pytest.mark.parametrize("looks", [2, 4])
def test_what_was_missed_is_told_page_by_page_for_as_long_as_it_may_be(server, monkeypatch, looks, second):
    monkeypatch.setattr(following_module, "_PAGE", 1)
    tell(server, *range(6))
    left = [looks]

    def authenticate(*_args, **_options) -> Scope:
        left[0] -= 1
        return Scope() if left[0] >= 0 else second()

    monkeypatch.setattr(server.service.authenticator, "authenticate", authenticate)
    with following(server, "?last_event_id=0") as stream:
        *found, end = stream.until_end()
        assert len(found) < looks
        assert end.kind == "end"
        assert "token" in end.json["reason"]
