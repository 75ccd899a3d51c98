"""`--tools` and `--system` count what is sent beside the messages of a file."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import conversation
from tests.tokens.test_prompt import WORDS, tools_in


@pytest.fixture
def beside(tmp_path):
    """The options, with files for them."""
    (tmp_path / "tools.json").write_text(json.dumps(tools_in("openai-chat", 47)), encoding="utf-8")
    (tmp_path / "system.md").write_text(WORDS, encoding="utf-8")
    return ("--tools", tmp_path / "tools.json", "--system", tmp_path / "system.md")


def test_show_has_them_in_their_sections(run, transcript, beside):
    bare = run("show", transcript, "--json").json["usage"]
    usage = run("show", transcript, "--json", *beside).json["usage"]
    assert bare["sections"]["tools"] == 0
    assert usage["sections"]["tools"] > 2_000
    grown = sum(usage["sections"][name] - bare["sections"][name] for name in ("tools", "system"))
    assert usage["tokens"] == bare["tokens"] + grown


def test_compact_and_plan_count_them_and_the_messages_do_not_hold_them(run, transcript, beside):
    bare = run("compact", transcript, "--target", 9_000, "--json").json["report"]
    ran = run("compact", transcript, "--target", 9_000, "--json", *beside)
    assert ran.code == 0
    assert ran.json["report"]["tokens_before"] > bare["tokens_before"] + 2_000
    assert ran.json["report"]["tokens_after"] <= 9_000
    assert WORDS not in json.dumps(ran.json["messages"])
    planned = run("plan", transcript, "--target", 9_000, "--json", *beside).json["report"]
    assert planned["tokens_before"] == ran.json["report"]["tokens_before"]
    dry = run("compact", transcript, "--target", 9_000, "--json", "--dry-run", *beside).json["report"]
    assert dry["tokens_before"] == planned["tokens_before"]


def test_a_target_below_them_could_not_fit_and_says_why(run, transcript, beside):
    ran = run("compact", transcript, "--target", 1_000, "--json", *beside)
    assert ran.code == 3
    assert {"tools", "system"} <= {part["what"] for part in ran.json["report"]["floor"]}


def test_a_session_remembers_them(run, transcript, beside):
    assert run("compact", transcript, "--session", "run-42", "--target", 9_000, *beside).code == 0
    assert run("show", "run-42", "--json").json["usage"]["sections"]["tools"] > 2_000
    assert run("compact", transcript, "--session", "run-42", "--target", 8_000).code == 0
    assert run("show", "run-42", "--json").json["usage"]["sections"]["tools"] > 2_000


def test_those_of_a_request_body_are_counted_and_the_options_replace_them(run, tmp_path, beside):
    body = {"messages": conversation(), "tools": tools_in("openai-chat", 100)}
    (tmp_path / "body.json").write_text(json.dumps(body), encoding="utf-8")
    held = run("show", tmp_path / "body.json", "--json").json["usage"]["sections"]["tools"]
    assert held > run("show", tmp_path / "body.json", "--json", *beside).json["usage"]["sections"]["tools"] > 2_000


@pytest.mark.parametrize("command", ["compact", "plan", "show"])
@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("--tools", None, "--tools: there is no file"),
        ("--tools", "[{", "is not JSON"),
        ("--tools", '"read"', "tools: expected a list of tool definitions, got a text"),
        ("--tools", '["read"]', "tools[0]: expected a tool definition"),
        ("--system", None, "--system: there is no file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(run, tmp_path, transcript, command, option, content, said):
    if content is not None:
        (tmp_path / "given").write_text(content, encoding="utf-8")
    ran = run(command, transcript, option, "given")
    assert ran.code == 2
    assert said in ran.err
    assert "Try: " in ran.err


@pytest.mark.parametrize("command", ["compact", "plan", "show"])
def test_a_stored_session_already_has_them(run, stored, beside, command):
    ran = run(command, "run-42", *beside)
    assert ran.code == 2
    assert "already has these" in ran.err
