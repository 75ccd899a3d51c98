"""The context as its reader meets it: who waits for an answer, what is left out, and where the rest is."""

from __future__ import annotations

import re

import pytest

from context_compactor import compact
from context_compactor.engine.required import LEFT_OUT
from tests.engine.talks import Call, bash, edit, read, talk_in
from tests.failures.scenarios import again_and_again, code, fill, listing, record_text, seen, squeeze
from tests.failures.test_c_loss import more_work

every_dialect = pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])


def test_words_beside_a_result_wait_for_an_answer_outside_of_the_record():
    talk = fill(talk_in("anthropic").user("Merge the branch."), 12)
    talk.step(bash("git merge main", listing(200)), after="I was mistaken: there are conflicts with main.")
    for share in (0.4, 0.2, 0.1):
        result = squeeze(talk, share)
        assert "there are conflicts with main" in str(result.messages[-1])
        assert result.messages[-1]["role"] == "user"
        assert len(result.messages) > 1


@every_dialect
def test_the_count_of_what_a_quote_leaves_out_stays_true(dialect):
    sentences = [
        f"Point {number} says that module {number} needs a look before it is released." for number in range(400)
    ]
    asked = "\n".join(sentences)
    talk = fill(talk_in(dialect).user(asked), 10)
    for result in again_and_again(talk, 3, 0.3, more_work):
        text = record_text(result.messages, dialect)
        quote = re.search(r"<user turn_001[^>]*>\n(.*?)\n</user turn_001>", text, re.DOTALL)
        assert quote is not None
        left = re.search(rf"\n\[… ([\d,]+) {LEFT_OUT}[^\n]*\n", quote[1])
        assert left is not None
        kept = len(quote[1]) - len(left[0])
        assert abs(int(left[1].replace(",", "")) + kept - len(asked)) <= 4
        assert all(line in sentences for line in quote[1].replace(left[0], "\n").split("\n") if line)


@every_dialect
def test_paths_are_shown_from_one_folder_through_every_compaction(dialect):
    talk = talk_in(dialect).user("Tidy up.")
    for name in "abcdef":
        talk.step(read(f"/srv/code/app/src/{name}.py", code(name, 12)))
    first = squeeze(fill(talk, 6), 0.3)
    talk.messages = list(first.messages)
    for name in "uvwxyz":
        talk.step(
            edit(f"/srv/code/app/web/deep/er/{name}.py", "a = 1", "a = 2"),
            read(f"/srv/code/app/web/deep/er/{name}.py", code(name, 12)),
        )
    second = squeeze(fill(talk, 6, 50), 0.4)
    roots = [re.findall(r"paths are below (\S+) or absolute", seen(each.messages, dialect)) for each in (first, second)]
    assert roots == [["/srv/code/app/"]] * 2


@every_dialect
def test_lines_of_a_call_name_the_turn_that_has_the_rest_of_it(dialect):
    text = "\n".join(f"value_{number} = compute_value_{number}(first, second, third)" for number in range(80))
    talk = (
        talk_in(dialect)
        .user("Write the table.")
        .step(Call("Write", {"file_path": "src/table.py", "content": text}, "ok"))
    )
    result = compact(fill(talk, 10).messages, target_tokens=900, dialect=dialect)
    shown = re.search(r"^\[(\w+) Write src/table\.py · \d+/\d+\]$", record_text(result.messages, dialect), re.MULTILINE)
    assert shown is not None
    assert "compute_value_79(first, second, third)" in result.recall(shown[1])


@every_dialect
def test_a_long_line_of_which_a_part_is_kept_says_so(dialect):
    line = " ".join(f"field_{number}=value_{number}" for number in range(120))
    talk = talk_in(dialect).user("Look at field_60.").step(bash("cat fields.env", line))
    result = compact(fill(talk, 10).messages, target_tokens=1_500, dialect=dialect)
    text = record_text(result.messages, dialect)
    pieces = [part for part in text.split("\n") if "field_" in part and "=value_" in part]
    assert pieces
    for piece in pieces:
        core = piece.split("] ")[-1].lstrip(" …>").rstrip("…")
        assert core in line
        assert piece.rstrip().endswith("…") or core.endswith("field_119=value_119")


@every_dialect
def test_a_call_that_never_ran_is_no_failure(dialect):
    talk = talk_in(dialect).user("Go.")
    talk.step(bash("git worktree list", "<tool_use_error>Sibling tool call errored</tool_use_error>", failed=True))
    assert "## Failed before" not in record_text(squeeze(fill(talk, 12), 0.2).messages, dialect)
