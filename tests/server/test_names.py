"""Ids and places in what leaves the server: those of the caller, and no word that only looks like one is touched."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.server.event_feed import public_event
from context_compactor.server.tokens import Scope, add_token
from tests.cli.conftest import conversation
from tests.server.running import running
from tests.server.streams import event

SRC = Scope("src")


def _public_event(session_id: str, scope: Scope = SRC, store_path: str = ":memory:", **payload) -> dict:
    return json.loads(public_event(event("compaction.failed", session_id, **payload), scope, store_path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("there is no session 'src/auth'. Try: another", "there is no session 'auth'. Try: another"),
        ("session src/auth: it is busy", "session auth: it is busy"),
        ("nobody has src/auth.", "nobody has auth."),
        ("cannot read src/auth.ts", "cannot read src/auth.ts"),
        ("cannot read src/auth/jwt.ts", "cannot read src/auth/jwt.ts"),
        ("cannot read lib/src/auth", "cannot read lib/src/auth"),
        ("cannot read src/authority", "cannot read src/authority"),
        ("cannot read src/auth-old", "cannot read src/auth-old"),
    ],
)
def test_the_id_of_a_session_is_told_as_its_caller_knows_it_and_paths_are_left_alone(text, told):
    assert SRC.public_text(text, "src/auth") == told
    assert _public_event("src/auth", reason=text)["payload"] == {"reason": told}


def test_only_the_reason_of_an_event_is_told_anew():
    payload = {"text": "src/auth is the folder", "ref": "src/auth", "model_calls": [{"model": "src/auth"}]}
    found = _public_event("src/auth", **payload)
    assert found["session_id"] == "auth"
    assert found["payload"] == payload


@pytest.mark.parametrize("store_path", ["job", "compactor.db", "e"])
def test_a_store_whose_name_is_a_word_changes_no_word_of_an_event(store_path):
    found = _public_event("run", Scope(), store_path, reason="the job failed: compactor.db")
    assert found["type"] == "compaction.failed"
    assert found["payload"] == {"reason": "the job failed: compactor.db"}


@pytest.mark.parametrize("store_path", ["/var/lib/own.db", "postgresql://db.internal/own"])
def test_where_the_store_is_stays_the_servers_business(store_path):
    assert _public_event("run", Scope(), store_path, reason=f"{store_path} is full")["payload"] == {
        "reason": "the store is full"
    }


def test_an_event_of_no_session_keeps_its_reason():
    assert _public_event("src/", reason="src/ answered 500")["payload"] == {"reason": "src/ answered 500"}


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_whatever_an_event_tells_can_be_read_again(session_id, payload):
    found = _public_event(
        session_id, Scope("a"), "/x", **{"reason": "a/b", **{f"_{name}": result for name, result in payload.items()}}
    )
    assert set(found) == {"id", "type", "session_id", "created_at", "payload"}


def test_the_name_of_a_handoff_is_the_callers_own(server):
    path = server.made("run")
    server.post(f"{path}/messages", {"messages": conversation()})
    given_name = server.post(f"{path}/handoff", {"task_id": "run/with a name"}).json["request"]["task_id"]
    assert given_name == "run/with a name"


def test_an_answer_to_a_handoff_is_known_by_the_name_that_its_caller_was_given(tmp_path):
    secret = add_token(tmp_path / "tokens", "red", "red", read_only=False)
    with running(tmp_path, token_file=tmp_path / "tokens") as server:
        red = {"Authorization": f"Bearer {secret}"}
        server.post("/v1/sessions", {"id": "run", "window": 200_000}, **red)
        server.post("/v1/sessions/run/messages", {"messages": conversation(4)}, **red)
        asked = server.post("/v1/sessions/run/handoff", {"phase": "research"}, **red).json["request"]["task_id"]
        assert asked == "run-research-1"
        answer = {"task_id": asked, "phase": "research", "status": "complete", "decision": "PROCEED"}
        text = {"answer": {**answer, "context_summary": "Nothing was found."}}
        assert server.post("/v1/sessions/run/handoff/answer", text, **red).status == 200
