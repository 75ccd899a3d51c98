"""The client has the verbs of a session, with the answers and errors of the library."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.client import AsyncClient, Client
from context_compactor.engine.report import Report
from context_compactor.errors import (
    BadInput,
    BadMessage,
    BadSetting,
    KeyReused,
    ServerDenied,
    UnknownReference,
    UnknownSession,
)
from context_compactor.server.tokens import add_token
from context_compactor.sessions.schemas import AppendAnswer, ContextAnswer
from context_compactor.sessions.session import Session
from tests.cli.conftest import conversation
from tests.server.running import running

ASK = {"role": "user", "content": "Hello"}


@pytest.fixture
def client(shared):
    with Client(shared.url) as made:
        yield made


@pytest.fixture
def session_id(client) -> str:
    return client.create(window=200_000).id


def test_a_whole_life_of_a_session(client, session_id):
    answer = client.append(session_id, conversation())
    assert isinstance(answer, AppendAnswer)
    assert answer.messages == len(conversation())
    context = client.context(session_id)
    assert isinstance(context, ContextAnswer)
    assert context.messages == client.history(session_id).messages == conversation()
    done = client.compact(session_id, focus="the parser", target_tokens=9_000)
    assert done.compacted
    assert isinstance(done.report, Report)
    assert done.report.tokens_saved == done.tokens_saved
    assert client.compactions(session_id).compactions == [done.report]
    refs = [each.id for each in client.archive(session_id).originals if each.id[:4] in ("tool", "file")]
    whole = client.recall(session_id, refs[0])
    assert client.recall(session_id, refs[0], (1, 2)) == "\n".join(whole.split("\n")[:2])
    assert whole.startswith(client.page(session_id, refs[0], tokens=50).text)
    assert "part_7_3" in client.search(session_id, "part_7_3", limit=3).text
    assert client.restore(session_id, refs[0]).ref == refs[0]
    assert any("legacy/" in fact.content for fact in client.facts(session_id, "constraint"))
    assert client.checkpoint(session_id).checkpoint.session_id == session_id
    asked = client.handoff(session_id, "validate", "Run the tests", feature="rules", spec_path="specs/rules.md")
    assert (asked.task, asked.feature, asked.spec_path) == ("Run the tests", "rules", "specs/rules.md")
    found = {"status": "complete", "decision": "PROCEED", "context_summary": "All tests of src/parser.py pass."}
    taken = client.receive(session_id, {"task_id": asked.task_id, "phase": "validate", **found})
    assert "All tests of src/parser.py pass." in client.recall(session_id, taken.id or "")
    assert found["context_summary"] in client.handoff(session_id, "write").context_summary
    detail = client.session(session_id)
    assert detail.totals.compactions >= 1
    undone = client.undo(session_id)
    assert isinstance(undone, Report)
    assert client.redo(session_id) == undone
    assert client.redo(session_id) is None


def test_one_message_or_several(client, session_id):
    assert client.append(session_id, ASK).appended == 1
    assert client.append(session_id, [ASK, ASK]).appended == 2


def test_all_sessions_come_page_by_page(client):
    made = {client.create(window=200_000).id for _ in range(3)}
    assert made <= {each.id for each in client.every_session()}
    first = client.sessions(limit=1)
    assert len(first.sessions) == 1
    assert client.sessions(first.next, limit=1).sessions[0].id > first.sessions[0].id


def test_the_same_key_appends_once(client, session_id):
    first = client.append(session_id, ASK, key="mine")
    assert client.append(session_id, ASK, key="mine") == first
    with pytest.raises(KeyReused):
        client.append(session_id, [ASK, ASK], key="mine")
    assert client.history(session_id).total == 1


def test_errors_are_those_of_the_library(client, session_id):
    with pytest.raises(UnknownSession, match="nobody"):
        client.context("nobody")
    with pytest.raises(UnknownReference, match="tool_999"):
        client.recall(session_id, "tool_999")
    with pytest.raises(BadMessage) as bad:
        client.append(session_id, [ASK, {"role": "wizard", "content": "x"}])
    assert (bad.value.index, bad.value.field) == (1, "role")
    assert str(bad.value).count("message 1") == 1
    with pytest.raises(BadSetting):
        client.create(window=200_000, settings={"store": "memory:"})
    with pytest.raises(BadInput):
        client.compact(session_id, level="gently")
    with pytest.raises(BadInput):
        client.search(session_id, "")


def test_a_message_is_refused_with_the_same_words_as_in_the_library(client, session_id):
    bad = {"role": "wizard", "content": "x"}
    with Session.open("here", store="memory:", window=200_000) as session, pytest.raises(BadMessage) as ours:
        session.append(bad)
    with pytest.raises(BadMessage) as theirs:
        client.append(session_id, bad)
    assert str(theirs.value) == str(ours.value)


@pytest.mark.parametrize("name", ["with space", "100%", "a?b#c", "ünïcode 🚀", "semi;colon&more=1"])
def test_any_name_of_a_session_finds_it(client, name):
    assert client.create(name, window=200_000).id == name
    client.append(name, ASK)
    assert client.session(name).messages >= 1


@given(st.text(alphabet=st.characters(), max_size=100))
def test_any_text_comes_back_as_it_was(shared, text):
    with Client(shared.url) as client:
        session_id = client.create(window=200_000).id
        client.append(session_id, {"role": "user", "content": text})
        assert client.history(session_id).messages[0]["content"] == text
        assert client.context(session_id).messages[0]["content"] == text


def test_a_token_opens_the_door(tmp_path):
    secret = add_token(tmp_path / "tokens", "ci", "team", read_only=False)
    look = add_token(tmp_path / "tokens", "look", "team", read_only=True)
    with running(tmp_path, token_file=tmp_path / "tokens") as server:
        with Client(server.url, secret) as client:
            client.create("run", window=200_000)
        with Client(server.url, look) as client:
            assert client.session("run").id == "run"
            with pytest.raises(ServerDenied) as denied:
                client.append("run", ASK)
            assert denied.value.status == 403
        with Client(server.url, "cct_wrong") as client, pytest.raises(ServerDenied) as denied:
            client.session("run")
        assert denied.value.status == 401
        assert "cct_wrong" not in str(denied.value)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8377", "ftp://x", "http://", "http://h:port", "http://u:p@h", "http://h?x"]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(BadSetting) as bad:
        Client(url)
    assert ":p@" not in str(bad.value)


# Async


def test_the_async_client_has_the_same_verbs(shared):
    def verbs(kind: type) -> set[str]:
        return {name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}

    assert verbs(AsyncClient) == verbs(Client)


def test_async_verbs_do_the_same(shared):
    async def life() -> None:
        async with AsyncClient(shared.url) as client:
            session_id = (await client.create(window=200_000)).id
            await asyncio.gather(*(client.append(session_id, {"role": "user", "content": f"{at}"}) for at in range(8)))
            found = await client.history(session_id)
            assert {message["content"] for message in found.messages} == {f"{at}" for at in range(8)}
            assert session_id in [each.id async for each in client.every_session()]
            with pytest.raises(UnknownSession):
                await client.context("nobody")

    asyncio.run(life())


@pytest.mark.parametrize("token", ["cct_…", "cct_abc\n", "cct_a\r\nX-Other: 1"])
def test_a_token_that_can_be_none_is_refused_in_words(token):
    with pytest.raises(BadSetting, match="token: it contains characters that are not allowed"):
        Client("http://127.0.0.1:8377", token=token)
