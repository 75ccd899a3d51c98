"""Getting back what left the context, and what must outlive it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.cli.recall import read_lines
from context_compactor.errors import BadSetting
from tests.cli.conftest import ERROR
from tests.engine.talks import bash, talk_in


def original(stored, number: int) -> str:
    """The result of the call of this number."""
    return [message["content"] for message in stored.messages if message["role"] == "tool"][number - 1]


def test_an_original_comes_back_byte_for_byte(run, stored):
    assert run("recall", "file_003").out == original(stored, 3)
    assert run("recall", "file_003", "--json").json == {
        "session_id": "run-42",
        "id": "file_003",
        "lines": None,
        "text": original(stored, 3),
    }


def test_a_turn_is_printed_as_a_conversation_and_given_to_programs_as_it_was(run, stored):
    ran = run("recall", "turn_001")
    first = next(message for message in stored.messages if message["role"] == "user")
    assert f"user: {first['content']}" in ran.out
    assert "after: turn_002" in ran.out.split("\n")[0]
    assert json.loads(run("recall", "turn_001", "--json").json["text"]) == [first]
    assert run("recall", "turn_001", "--lines", "1").out == ran.out.split("\n")[0] + "\n"


def test_the_turns_are_listed(run, stored):
    lines = run("recall", "--turns").out.splitlines()
    assert lines[0].startswith("turn_001 user: ")
    assert len(lines) > 5
    output = run("recall", "--turns", "--from", "2", "--to", "4", "--json").json
    assert [turn["id"] for turn in output["turns"]] == ["turn_002", "turn_003", "turn_004"]
    found = run("recall", "--turns", "--search", "part_2").out
    assert 0 < len(found.splitlines()) < len(lines)
    none = run("recall", "--turns", "--search", "zeppelin")
    assert (none.code, none.out) == (0, "")
    assert "No turn" in none.err


def test_every_original_of_the_report_can_be_recalled(run, stored):
    assert stored.report["archived"]
    for each in stored.report["archived"]:
        assert run("recall", each["id"]).out


@pytest.mark.parametrize(("lines", "wanted"), [("2-4", slice(1, 4)), ("49-", slice(48, None)), ("7", slice(6, 7))])
def test_some_lines_of_an_original(run, stored, lines, wanted):
    found = original(stored, 3).split("\n")[wanted]
    assert run("recall", "file_003", "--lines", lines).out == "\n".join(found) + "\n"


def test_pages_join_to_the_original(run, stored):
    ran = run("recall", "file_003", "--page", "1", "--tokens", "100", "--json").json
    pages = [run("recall", "file_003", "--page", number + 1, "--tokens", "100") for number in range(ran["pages"])]
    assert len(pages) > 3
    assert "".join(page.out for page in pages) == original(stored, 3)
    assert f"page 1 of {len(pages)}" in pages[0].err
    assert "--page 2 is next" in pages[0].err
    assert "next" not in pages[-1].err


def test_a_search_finds_lines_and_names_where_they_stand(run, stored):
    ran = run("recall", "--search", "part_7_33")
    assert ran.code == 0
    assert "part_7_33" in ran.out
    assert "file_008" in ran.out
    hits = run("recall", "--search", "part_7_33", "--limit", "1", "--json").json["hits"]
    assert len(hits) == 1
    first, last = hits[0]["first_line"], hits[0]["last_line"]
    assert run("recall", hits[0]["id"], "--lines", f"{first}-{last}").out.startswith(hits[0]["text"].split("\n")[0])


def test_a_search_can_be_narrowed(run, stored):
    assert run("recall", "--search", "parser", "--since", "2100-01-01", "--json").json["hits"] == []
    hits = run("recall", "--search", "Reading part", "--kind", "agent", "--json").json["hits"]
    assert {hit["kind"] for hit in hits} == {"agent"}


def test_a_search_that_finds_nothing_is_an_answer(run, stored):
    ran = run("recall", "--search", "zeppelin", "--since", "2100-01-01")
    assert (ran.code, ran.out) == (0, "")
    assert "Nothing was found" in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "needs either an id or --search"),
        (["file_003", "--search", "x"], "needs either an id or --search"),
        (["file_003", "--limit", "3"], "--limit"),
        (["file_003", "--lines", "1-2", "--page", "1"], "--lines, --page"),
        (["file_003", "--again", "--lines", "1-2"], "--again, --lines"),
        (["--search", "x", "--lines", "1-2"], "--lines"),
        (["file_003", "--turns"], "--turns cannot be combined with file_003"),
        (["--turns", "--limit", "3"], "--turns cannot be combined with --limit"),
        (["file_003", "--from", "2"], "--from and --to"),
        (["file_003", "--lines", "two"], "'two' is not a range of lines"),
        (["file_003", "--lines", "9-3"], "lines 9-3"),
        (["file_003", "--lines", "900-"], "it has 50 lines"),
        (["file_003", "--page", "99"], "page 99"),
        (["file_999"], "no original of session 'run-42' has the id 'file_999'"),
        (["../etc/passwd"], "is not a reference id"),
        (["--search", "x", "--since", "yesterday"], "since='yesterday' is not a time"),
        (["--search", "x", "--until", "0001-01-01T00:00+14:00"], "until="),
        (["--search", "x", "--kind", "rumour"], "is not a kind of content"),
    ],
)
def test_what_cannot_be_recalled_is_refused_with_a_reason(run, stored, arguments, told):
    ran = run("recall", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


@given(st.text())
def test_any_lines_are_read_or_refused(text):
    try:
        first, last = read_lines(text)
    except BadSetting as error:
        assert "Try:" in str(error)
    else:
        assert (first, last) == (int(text.strip().split("-")[0]), last)


# From where it came


@pytest.mark.parametrize("changed", [False, True])
def test_a_file_is_read_again_and_it_is_said_whether_it_has_changed(run, stored, tmp_path, changed):
    text = original(stored, 3) + ("\nmore" if changed else "")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "part_2.py").write_text(text)
    ran = run("recall", "file_003", "--again")
    assert (ran.code, ran.out) == (0, text)
    assert ("has changed since" in ran.err) is changed
    output = run("recall", "file_003", "--again", "--json").json
    assert (output["kind"], output["changed"], output["text"]) == ("file", changed, text)


def test_a_file_that_is_no_longer_there_leaves_with_one(run, stored):
    ran = run("recall", "file_003", "--again")
    assert ran.code == 1
    assert "src/part_2.py is no longer there" in ran.out
    assert run("recall", "file_003").out == original(stored, 3)


def test_a_command_is_shown_and_not_run(run, tmp_path):
    talk = talk_in("openai-chat").user("Look.")
    for number in range(9):
        talk.step(bash(f"touch ran-{number}; git log -n {number}", f"commit {number}\n" * 300))
    (tmp_path / "agent.json").write_text(json.dumps(talk.answer("Done.").user("Go on.").messages))
    run("compact", "agent.json", "--session", "s", "--target", "20%")
    ran = run("recall", "tool_001", "--again")
    assert "touch ran-0; git log -n 0" in ran.out
    assert list(tmp_path.glob("ran-*")) == []


def test_what_is_not_archived_cannot_be_fetched_again(run, stored):
    ran = run("recall", "tool_999", "--again")
    assert (ran.code, ran.out) == (2, "")
    assert "'tool_999'" in ran.err


# Restore, undo, diff


def test_an_original_is_put_back_into_the_context(run, stored):
    assert original(stored, 3) not in json.dumps(stored.context)
    ran = run("restore", "file_003", "--json").json
    assert ran["ref"] == "file_003"
    assert ran["tokens_after"] > stored.report["tokens_after"]
    assert "def part_2_49(value)" in json.dumps(run("context", "run-42").json)
    assert "file_004 is back in the context" in run("restore", "file_004").out


def test_undo_and_redo_go_back_and_forth(run, stored):
    assert stored.report["compaction_id"] in run("undo").out
    assert run("context", "run-42").json == stored.messages
    assert run("redo", "--json").json["report"] == stored.report
    assert run("context", "run-42").json == stored.context


@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_nothing_to_take_back_is_an_answer(run, stored, verb):
    run("undo")
    if verb == "redo":
        run("redo")
    ran = run(verb)
    assert (ran.code, ran.out) == (0, f"Nothing to {verb} in session 'run-42'.\n")
    output = run(verb, "--json").json
    assert (output["done"], output["report"]) == (False, None)


def test_diff_shows_the_last_compaction_side_by_side(run, stored):
    ran = run("diff")
    assert f"before {stored.report['compaction_id']}" in ran.out
    output = run("diff", "--json").json
    assert output["tokens"] == [stored.report["tokens_before"], stored.report["tokens_after"]]
    assert [row["before"]["raw"] for row in output["rows"] if row["before"]] == stored.messages
    assert [row["after"]["raw"] for row in output["rows"] if row["after"]] == stored.context
    assert sum(output["counts"].values()) == len(output["rows"])


def test_diff_compares_the_contexts_at_two_messages(run, stored):
    counts = run("diff", "--before", "3", "--after", "7", "--json").json["counts"]
    assert counts == {"same": 3, "removed": 0, "added": 4, "changed": 0}


# Facts


def test_facts_name_what_failed_and_where_it_stood(run, stored):
    facts = run("facts", "--kind", "failure", "--json").json["facts"]
    assert [fact["content"] for fact in facts] == ["pytest -q tests/test_parser.py"]
    assert ERROR in facts[0]["detail"]
    shown = run("facts").out
    assert "pytest -q tests/test_parser.py" in shown
    assert "Never touch legacy/" in shown
    assert facts[0]["ref"] in shown


def test_an_unknown_kind_of_fact_is_refused_with_the_known_ones(run, stored):
    ran = run("facts", "--kind", "rumour")
    assert (ran.code, ran.out) == (2, "")
    assert "known kinds: task, constraint" in ran.err


def test_no_facts_of_a_kind_are_told(run, stored):
    assert run("facts", "--kind", "denial").out == "Session 'run-42' has no facts of the kind denial.\n"


def test_text_of_a_session_cannot_drive_the_terminal(run, stored, tmp_path):
    evil = [{"role": "user", "content": "Never \x1b]0;owned\x07\x1b[31m use tabs."}, *stored.messages[2:]]
    (tmp_path / "evil.json").write_text(json.dumps(evil))
    run("compact", "evil.json", "--session", "evil", "--target", "25%")
    commands = ["facts", "diff", "checkpoint", "resume", "undo", "sessions", "handoff --phase write", "show evil"]
    commands += ["recall --search tabs", "history evil", "context evil"]
    for command in commands:
        words = command.split()
        ran = run(*words, *([] if "evil" in words or command == "sessions" else ["--session", "evil"]))
        assert ran.code == 0, command
        assert "\x1b" not in ran.out + ran.err, command


def test_all_sessions_are_searched_at_once_and_each_hit_says_of_which_it_is(run, stored, tmp_path):
    asked = [{"role": "user", "content": f"Where is zebra_{number} of part_7_33?"} for number in range(40)]
    other = [
        each for ask in asked for each in (ask, {"role": "assistant", "content": "It stands in the meadow. " * 20})
    ]
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert run("compact", tmp_path / "other.json", "--session", "run-43", "--target", "10%").code == 0
    hits = run("recall", "--search", "part_7_33", "--all", "--json").json["hits"]
    assert {hit["session_id"] for hit in hits} == {"run-42", "run-43"}
    assert "run-43: " in run("recall", "--search", "zebra", "--all").out
    only = run("recall", "--search", "zebra", "--all", "--limit", "1", "--json").json["hits"]
    assert [hit["session_id"] for hit in only] == ["run-43"]


@pytest.mark.parametrize("wrong", [["tool_001", "--all"], ["--search", "x", "--all", "--session", "run-42"]])
def test_all_is_for_searching_without_a_session(run, stored, wrong):
    ran = run("recall", *wrong)
    assert (ran.code, ran.out) == (2, "")
    assert "--all" in ran.err
