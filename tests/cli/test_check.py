"""`compactor check`: a line for each rule that is broken, and the exit code."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from tests.cli.conftest import conversation

LATE = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "user", "content": "Wait."},
    {"role": "tool", "tool_call_id": "a", "content": "x = 1"},
    {"role": "assistant", "content": "I look."},
    {"role": "assistant", "content": "Done."},
]
LINES = [
    "message 3 · late-result · a result that is not directly behind its call",
    "message 5 · alternation · two assistant messages in a row",
]


@pytest.fixture
def late(tmp_path):
    path = tmp_path / "late.json"
    path.write_text(json.dumps(LATE), encoding="utf-8")
    return path


def test_a_legal_conversation_ends_with_0_and_says_whose_rules_it_keeps(run, transcript):
    ran = run("check", transcript)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{len(conversation()):,} messages break no rule of the provider (openai-chat).\n"


def test_each_broken_rule_is_a_line_and_the_exit_code_is_1(run, late):
    ran = run("check", late)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.splitlines() == LINES


def test_json_is_one_document_with_every_broken_rule(run, late):
    ran = run("check", late, "--json", "--model", "gpt-6")
    assert ran.code == 1
    first, second = ran.json.pop("violations")
    assert first == {"index": 3, "rule": "late-result", "what": "a result that is not directly behind its call"}
    assert second["rule"] == "alternation"
    assert ran.json | {"violations": None} == {
        "source": "openai-chat",
        "dialect": "openai-chat",
        "model": "gpt-6",
        "messages": 6,
        "legal": False,
        "violations": None,
    }


def test_json_of_a_legal_conversation_says_so(run, transcript):
    ran = run("check", transcript, "--json")
    assert (ran.code, ran.json["legal"], ran.json["violations"]) == (0, True, [])


def test_a_packed_file_is_read(run, late):
    packed = late.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(late.read_bytes()))
    assert run("check", packed).out.splitlines() == LINES


def test_a_dash_is_standard_input(run, late, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(late.read_bytes())))
    assert run("check", "-").out.splitlines() == LINES


def test_the_dialect_can_be_named(run, tmp_path):
    path = tmp_path / "blank.json"
    path.write_text(json.dumps([{"role": "user", "content": "Look."}, {"role": "user", "content": ""}]))
    assert run("check", path).code == 0
    assert run("check", path, "--dialect", "anthropic").out == "message 1 · empty · a message without content\n"


def test_the_context_of_a_session_is_checked(run, stored):
    ran = run("check", "run-42", "--json")
    assert (ran.code, ran.json["source"], ran.json["legal"]) == (0, "session", True)
    assert ran.json["messages"] == len(stored.context)


def test_a_session_has_its_dialect_already(run, stored):
    ran = run("check", "run-42", "--dialect", "anthropic")
    assert ran.code == 2
    assert "already has its dialect" in ran.err


def test_messages_of_two_dialects_are_read_as_the_one_that_is_named(run, tmp_path):
    path = tmp_path / "mixed.json"
    uses_tool = {"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "read", "input": {}}]}
    path.write_text(json.dumps([*LATE, uses_tool]))
    ran = run("check", path)
    assert ran.code == 2
    assert "--dialect openai-chat" in ran.err
    assert run("check", path, "--dialect", "openai-chat").out.splitlines()[: len(LINES)] == LINES


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "there is nothing in it"),
        ("[]", "the list is empty"),
        ("[{", "JSON"),
        ('[{"role": "user", "content": "Look."}, {"role": "human", "content": "x"}]', "unknown role 'human'"),
        ('{"messages": 7}', "Try:"),
    ],
)
def test_what_cannot_be_read_ends_with_2_and_the_reason(run, tmp_path, content, said):
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    ran = run("check", path)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_missing_file_and_an_unknown_dialect_end_with_2(run, transcript):
    assert run("check", "nowhere.json").code == 2
    ran = run("check", transcript, "--dialect", "telegraph")
    assert ran.code == 2
    assert "known dialects" in ran.err
