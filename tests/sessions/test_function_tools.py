"""Recall, search and facts as function tools of the agent, and what its context says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from context_compactor import Session, compact
from context_compactor.errors import BadSetting
from context_compactor.settings import Settings
from context_compactor.testing import StrictServer
from tests.sessions.talk import WINDOW, Raw, count, messages, opened, references

NAMES = ["recall", "search_archive", "facts"]
RECALL = {"type": "function", "function": {"name": "recall", "description": "", "parameters": {"type": "object"}}}


def _names(declared: list[Raw]) -> list[str]:
    found = [each.get("function") or each.get("toolSpec") or each for each in declared]
    return [inner["name"] for each in found for inner in each.get("functionDeclarations", [each])]


@pytest.mark.parametrize("flavour", ["openai", "responses", "anthropic", "gemini", "bedrock", "openai-chat"])
def test_the_tools_are_declared_as_each_provider_wants_them(tmp_path: Path, flavour: str):
    with opened(tmp_path) as session:
        assert _names(session.tools(flavour)) == NAMES


def test_without_a_flavour_the_tools_are_in_the_dialect_of_the_messages(tmp_path: Path):
    with opened(tmp_path, dialect="anthropic") as session:
        assert all("input_schema" in tool for tool in session.tools())


@pytest.mark.parametrize(
    ("flavour", "path", "body"),
    [
        ("openai", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi."}]}),
        ("responses", "/v1/responses", {"input": "Hi."}),
        ("anthropic", "/v1/messages", {"max_tokens": 10, "messages": [{"role": "user", "content": "Hi."}]}),
        ("gemini", "/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}),
    ],
)
def test_a_request_with_the_tools_is_accepted(tmp_path: Path, flavour: str, path: str, body: Raw):
    with opened(tmp_path) as session:
        status, answer = StrictServer().respond(path, {"model": "m", **body, "tools": session.tools(flavour)})
    assert status == 200, answer


def test_an_unknown_flavour_is_refused(tmp_path: Path):
    with opened(tmp_path) as session, pytest.raises(BadSetting, match="cobol"):
        session.tools("cobol")


def _compacted(folder: Path) -> Session:
    session = opened(folder)
    session.append(messages(0, 80))
    return session


def test_a_call_of_recall_returns_the_original(tmp_path: Path):
    with _compacted(tmp_path) as session:
        ref = next(each.id for each in session.compactions()[0].archived if each.id.startswith(("tool", "file")))
        answer = session.call("recall", {"id": ref})
        assert session.recall(ref)[:500] in answer
        assert session.call("recall", json.dumps({"id": ref})) == answer
        assert session.call("recall", {"id": ref, "lines": None, "page": 1}) == answer


def test_a_call_of_search_finds_lines_with_their_ids_and_of_facts_the_rules(tmp_path: Path):
    with _compacted(tmp_path) as session:
        assert "compute_3" in session.call("search_archive", {"text": "compute_3"})
        assert "Never touch release" in session.call("facts", {"kind": "constraint"})
        assert session.call("facts").startswith("[facts: ")


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("recall", {"id": "tool_999"}, "tool_999"),
        ("recall", {"id": "nonsense"}, "not a reference id"),
        ("recall", {}, "id"),
        ("recall", {"id": "turn_001", "page": 99}, "page 99"),
        ("recall", "{broken", "recall(id"),
        ("recall", "[1]", "expected an object"),
        ("recall", '{"id": "\ud800"}', "recall(id"),
        ("recall", "[" * 200_000, "recall(id"),
        ("search_archive", {"text": ""}, "text"),
        ("search_archive", {"text": "x", "wrong": 1}, "wrong"),
        ("facts", {"kind": "nonsense"}, "unknown kind"),
    ],
)
def test_what_is_wrong_with_a_call_is_an_answer_that_the_model_can_act_on(tmp_path, name, arguments, answer):
    with _compacted(tmp_path) as session:
        assert answer in session.call(name, arguments)


def test_a_call_of_somebody_elses_tool_is_refused(tmp_path: Path):
    with opened(tmp_path) as session, pytest.raises(BadSetting, match=r"read_file.*recall, search_archive, facts"):
        session.call("read_file", {})


# What the context says


def _shows_recall(context: list[Raw]) -> bool:
    return "recall(" in json.dumps(context)


def test_a_context_names_recall_only_where_the_agent_can_call_it(tmp_path: Path):
    with _compacted(tmp_path / "without") as session:
        assert references(session.context())
        assert not _shows_recall(session.context())
    with opened(tmp_path / "with") as session:
        session.tools("openai")
        session.append(messages(0, 80))
        assert _shows_recall(session.context())
    with opened(tmp_path / "with") as session:  # and in every other program
        session.append(messages(80, 130))
        assert _shows_recall(session.context())


def test_a_long_output_is_cut_with_a_call_only_where_the_agent_can_make_it(tmp_path: Path):
    call = {"id": "a", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    talk = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "\n".join(f"line {number}" for number in range(3_000))},
    ]
    for folder, offers in (("without", False), ("with", True)):
        with opened(tmp_path / folder, window=200_000) as session:
            if offers:
                session.tools("openai")
            session.append(talk)
            assert "tool_001" in str(session.context())
            assert ('recall("tool_001")' in str(session.context())) is offers
            session.compact(target_tokens=600)
            assert session.recall("tool_001").endswith("line 2999")


def test_compact_names_recall_where_its_tools_or_settings_say_so():
    def context(**options) -> list[Raw]:
        return compact(messages(0, 80), target_tokens=1_500, count_tokens=count, **options).messages

    assert not _shows_recall(context())
    assert not _shows_recall(context(tools=[{"name": "read", "input_schema": {}}]))
    assert _shows_recall(context(tools=[RECALL]))
    assert _shows_recall(context(tools=[{"name": "mcp__compactor__recall", "input_schema": {}}]))
    assert _shows_recall(context(settings=Settings(recall_tool=True)))
    assert not _shows_recall(context(tools=[RECALL], settings=Settings(recall_tool=False)))


def test_a_chain_of_compactions_without_the_tool_keeps_every_id(tmp_path: Path):
    with opened(tmp_path) as session:
        for start in range(0, 240, 20):
            session.append(messages(start, start + 20))
        assert len(session.compactions()) >= 3
        assert not _shows_recall(session.context())
        assert all(session.recall(ref) for ref in references(session.context()))


# The profile for programs


def test_an_embedded_session_writes_nothing_but_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path / 'agents.db'}"
    with Session.open("run", window=WINDOW, store=store, count_tokens=count, profile="embedded") as session:
        session.append(messages(0, 80))
        session.checkpoint()
        assert session.compactions()
    assert {path.name.partition("-")[0] for path in tmp_path.rglob("*")} == {"agents.db"}


def test_an_embedded_session_learns_nothing_from_others(tmp_path: Path):
    store = f"sqlite:///{tmp_path / '.compactor' / 'compactor.db'}"
    learned = tmp_path / ".compactor" / "learned"
    for number in range(3):
        with Session.open(
            f"run-{number}", window=WINDOW, store=store, count_tokens=count, profile="embedded"
        ) as session:
            session.append(messages(0, 80))
            assert session.history()[0] == session.history(limit=1)[0]
            assert "learned" not in str(session.context()).casefold()
    assert not learned.exists()


def test_an_unknown_profile_is_refused(tmp_path: Path):
    with pytest.raises(BadSetting, match=r"quiet.*project, embedded"):
        Session.open("run", store=f"sqlite:///{tmp_path / 'x.db'}", profile="quiet")  # type: ignore[arg-type]
