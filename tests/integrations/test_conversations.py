"""What the integrations share, without any framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_compactor import Session
from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.integrations import conversations as shared
from context_compactor.integrations.conversations import Conversations, importing, own_messages
from context_compactor.sessions.sync import SyncedMessages
from tests.sessions.talk import messages


def _made(folder: Path, **options) -> Conversations:
    return Conversations(store=f"sqlite:///{folder / 'agents.db'}", window=16_000, **options)


def test_each_conversation_has_a_session_of_its_own_and_one_session_serves_them_all_if_given(tmp_path: Path):
    found = _made(tmp_path)
    found.session("a").sync(messages(0, 4))
    assert found.session("a") is found.session("a")
    assert found.session("b").history() == []
    assert found.session().id == "default"
    found.close()
    with Session.open("one", store=f"sqlite:///{tmp_path / 'other.db'}") as one:
        assert Conversations(one).session("any") is one
    named = Conversations("named", store="memory:")
    assert named.session("any").id == "named"
    named.close()


def test_a_session_that_was_closed_for_others_can_be_used_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared, "_MOST_OPEN", 3)
    found = _made(tmp_path)
    first = found.session("a")
    for name in "bcdef":
        found.session(name).sync(messages(0, 2))
    first.sync(messages(0, 4))
    assert found.session("a").history() == messages(0, 4)
    found.close()


def test_after_closing_the_next_request_opens_a_conversation_again(tmp_path: Path):
    found = _made(tmp_path)
    found.session("a").sync(messages(0, 4))
    found.close()
    found.close()
    assert found.session("a").history() == messages(0, 4)
    found.close()


def test_nothing_is_written_but_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = _made(tmp_path)
    found.session("a").sync(messages(0, 400))
    assert found.session("a").compactions()
    found.close()
    assert {path.name.partition("-")[0] for path in tmp_path.rglob("*")} == {"agents.db"}


@pytest.mark.parametrize("wrong", [7, object(), {"id": "a"}])
def test_what_is_no_session_is_refused(wrong: object):
    with pytest.raises(BadSetting, match="expected a Session or its id"):
        Conversations(wrong)  # type: ignore[arg-type]


def test_an_option_that_is_misspelt_is_refused_at_once():
    with pytest.raises(BadSetting, match="windw"):
        Conversations(windw=16_000)


def test_a_framework_that_is_missing_or_too_old_gets_one_clear_error():
    with pytest.raises(MissingExtra, match=r"pip install '\.\[langchain\]'"), importing("langchain", "langchain>=1.0"):
        import no_such_framework  # noqa: F401
    with (
        pytest.raises(BadSetting, match=r"langchain>=1\.0.*too old"),
        importing("langchain", "langchain>=1.0"),
    ):
        from json import no_such_name  # noqa: F401


def test_own_messages_go_back_as_the_objects_that_they_were():
    given = [object(), object()]
    sent = SyncedMessages([{"a": 1}, {"b": 2}], [None, 1])
    assert own_messages(given, sent, lambda raw: raw) == [{"a": 1}, given[1]]
