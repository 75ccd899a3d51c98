"""What happened is told exchange by exchange: whose words, what was done, and how it ended."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import compact
from context_compactor.dialects.record import Record, StoryLine
from context_compactor.engine.actions import prose_lines, sentences_of
from context_compactor.engine.apply import story_share
from context_compactor.engine.classify import classify
from context_compactor.engine.story import story_units
from tests.engine import promises
from tests.engine.sessions import sessions
from tests.engine.talks import DIALECT_NAMES, Call, Talk, bash, edit, read, talk_in
from tests.facts.conversations import agent, turns_of, user

FILLER = "\n".join(f"    value_{number} = compute(step={number}, table='t{number}')" for number in range(400))


def told(talk: Talk, share: float = 0.1, **options: object) -> tuple[StoryLine, ...]:
    """The lines of what happened after a compaction to a share of a conversation."""
    record = record_after(talk, share, **options)
    return record.happened


def record_after(talk: Talk, share: float, **options: object) -> Record:
    target = int(promises.tokens_of(talk.messages, talk.dialect) * share)
    result = compact(talk.messages, target_tokens=target, dialect=talk.dialect, **options)
    assert result.report.status == "success", result.report.reason
    record = promises.record_of(promises.parsed(result.messages, talk.dialect), talk.dialect)
    assert record is not None
    return record


def texts(lines: tuple[StoryLine, ...], voice: str) -> list[str]:
    return [line.text for line in lines if line.voice == voice]


def long_talk(*, reply: str = "yes, do it", proposal: str = "Shall I rotate the tokens on every use?") -> Talk:
    """A session of four exchanges with much code in between."""
    talk = talk_in("anthropic").user("Add refresh tokens to the login flow. Keep the cookies as they are.")
    talk.step(read("src/auth/jwt.py", FILLER), text="Let me look at the token code.")
    talk.answer(f"The store has no place for a second token. {proposal}").user(reply)
    talk.step(edit("src/auth/jwt.py", "old = 1", "def rotate(old: str) -> str:\n    return issue(old)"))
    talk.step(bash("pytest tests/auth", f"{FILLER}\nE   assert 401 == 200\n1 failed, 40 passed", failed=True))
    talk.step(edit("src/auth/jwt.py", "return issue(old)", "return issue(old, leeway=5)"))
    talk.step(bash("pytest tests/auth", f"{FILLER}\n41 passed in 2.1s"))
    talk.answer("The cause was clock skew: `exp` was checked without leeway. All 41 tests pass now.")
    talk.user("commit it please")
    talk.step(
        bash(
            "git commit -am 'Rotate refresh tokens on use'",
            "[feat/refresh 3f9c2ab] Rotate refresh tokens on use\n 2 files",
        )
    )
    talk.answer("Committed as 3f9c2ab.").user("now look at the logout page, its button does nothing")
    talk.step(read("src/pages/logout.py", FILLER), text="Let me open the page.")
    return talk.answer("The button calls `end_session`, which was renamed to `close_session` in March.").user("ok")


def test_the_users_words_stand_in_their_order():
    said = " ".join(texts(told(long_talk()), "user"))
    places = [said.index(words) for words in ("(quoted above)", "yes, do it", "commit it please")]
    assert places == sorted(places)


def test_what_the_agent_concluded_is_worth_more_than_what_it_was_about_to_do():
    turns = turns_of(
        user("Go on."), agent("Let me look at the token code. The cause was clock skew. It has two tables.")
    )
    units = story_units(turns, classify(turns), None, [turn.number for turn in turns])
    intention, conclusion, other = [unit.weight for unit in units if unit.voice == "agent"]
    assert conclusion > other > 3 * intention


def test_a_short_reply_comes_with_the_question_it_answers():
    assert 'yes, do it (to: "Shall I rotate the tokens on every use?")' in texts(told(long_talk()), "user")


def test_the_number_of_an_option_comes_with_the_option():
    proposal = "There are two ways:\n\n1. Cookies that are httpOnly\n2. Server sessions in Redis\n\nWhich one?"
    assert '2 (to: "Server sessions in Redis")' in texts(told(long_talk(reply="2", proposal=proposal)), "user")


def test_a_slash_command_is_told_with_what_was_typed_behind_it():
    command = "<command-name>/review</command-name>\n<command-args>the header only</command-args>"
    talk = talk_in("anthropic").user("Write the page.").step(read("a.py", FILLER)).answer("It is written.")
    talk.user(command).step(read("b.py", FILLER)).answer("The header is fine.").user("ok").answer("Good.").user("bye")
    assert any(text.startswith("/review the header only") for text in texts(told(talk), "user"))


def test_a_command_for_the_client_is_not_told_and_what_was_typed_after_it_is_the_users():
    talk = talk_in("anthropic").user("Write the page.").step(read("a.py", FILLER)).answer("It is written.")
    rows = ("<command-name>/compact</command-name>", "<local-command-stdout>Compacted (ctrl+o)</local-command-stdout>")
    blocks = [{"type": "text", "text": text} for text in (*rows, "now the footer")]
    talk.messages.append({"role": "user", "content": blocks})
    talk.step(read("b.py", FILLER)).answer("The footer is fine.").user("ok").answer("Good.").user("bye")
    lines = told(talk)
    assert any(text.startswith("now the footer") for text in texts(lines, "user"))
    assert not any("compact" in line.text.lower() for line in lines)


def test_reading_a_file_is_not_told_where_the_file_is_then_changed_or_run():
    talk = talk_in("anthropic").user("Fix the parser.").step(read("src/parser.py", FILLER))
    talk.step(read("tests/test_parser.py", FILLER)).step(read("docs/format.md", FILLER))
    talk.step(edit("src/parser.py", "a = 1", "def parse(row: str) -> list[str]:\n    return row.split()"))
    talk.step(bash("pytest tests/test_parser.py", f"{FILLER}\n3 passed")).answer("It is fixed.")
    talk.user("thanks").answer("Good.").user("bye")
    looks = texts(told(talk, 0.15), "look")
    assert any("docs/format.md" in text for text in looks)
    assert not any("parser.py" in text for text in looks)


def test_a_command_that_was_run_again_is_one_line_with_all_its_ends():
    (run,) = [text for text in texts(told(long_talk()), "run") if "pytest" in text]
    assert re.search(r"`pytest tests/auth` \(×2\) → .*assert 401 == 200.*; then .*41 passed", run)


def test_an_edit_is_told_by_its_file_and_what_it_defines():
    assert any("jwt.py: def rotate(old: str) -> str:" in text for text in texts(told(long_talk()), "edit"))


def test_a_commit_is_told_by_its_name():
    assert any(
        "3f9c2ab" in text and "Rotate refresh tokens on use" in text for text in texts(told(long_talk()), "commit")
    )


def test_what_the_user_said_to_a_refused_call_is_the_users_word():
    refused = (
        "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"
        "use the existing helper for that"
    )
    talk = talk_in("anthropic").user("Write the parser.").step(read("a.py", FILLER))
    talk.step(edit("a.py", "x", "y", refused, failed=True)).answer("I will use the helper.").user("thanks")
    assert any("use the existing helper for that (refused: Edit a.py" in text for text in texts(told(talk), "user"))


def test_a_log_that_the_user_pasted_is_not_told_as_the_users_words():
    log = "\n".join(f'2026-02-15T15:05:{at:02d} INFO {{"msg": "step {at}", "ok": true}}' for at in range(40))
    talk = talk_in("anthropic").user(f"the worker stops after step 12, see\n{log}").step(read("w.py", FILLER))
    talk.answer("The queue is full.").user("and the other worker?").answer("It is idle.").user("ok")
    assert not any("INFO" in text for text in texts(told(talk, 0.2), "user"))


def test_a_sentence_that_stands_in_the_task_is_not_told_again():
    record = record_after(long_talk(), 0.3)
    assert "Keep the cookies as they are." in record.quotes[0].text
    assert not any("Keep the cookies as they are." in line.text for line in record.happened)


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_what_was_told_first_is_still_told_after_five_compactions(dialect):
    talk = talk_in(dialect).user("Find out why the import of invoices is slow.")
    talk.step(read("src/a.py", FILLER)).answer("The import is slow because `parse_row` opens the file for each row.")
    messages = talk.messages
    for number in range(5):
        more = talk_in(dialect).user(f"Now look at part {number}.").step(read(f"src/part_{number}.py", FILLER))
        more.answer(f"Part {number} reads table_{number} twice.")
        target = max(int(promises.tokens_of([*messages, *more.messages], dialect) * 0.25), 700)
        messages = compact([*messages, *more.messages], target_tokens=target, dialect=dialect).messages
    words = promises.words(promises.parsed(messages, dialect))
    assert "`parse_row` opens the file for each row" in words
    assert all(f"Part {number} reads table_{number} twice" in words for number in range(5))


@given(session=st.sampled_from(DIALECT_NAMES).flatmap(sessions), share=st.sampled_from((0.05, 0.1, 0.3)))
def test_lines_are_told_in_the_order_of_the_conversation(session, share):
    target = max(int(promises.tokens_of(session.messages, session.dialect) * share), 1)
    result = compact(session.messages, target_tokens=target, dialect=session.dialect)
    record = promises.record_of(promises.parsed(result.messages, session.dialect), session.dialect)
    turns = [line.turn for line in record.happened] if record else []
    assert turns == sorted(turns)


@given(text=st.text())
def test_every_sentence_is_a_part_of_a_line_of_the_text(text):
    lines = [" ".join(line.split()) for line in text.split("\n")]
    for sentence in sentences_of(text, is_quote=True):
        assert any(" ".join(sentence.split()) in line for line in lines)
    assert set(prose_lines(text)) <= {line.strip() for line in text.split("\n")}


def test_the_less_may_stay_the_more_of_it_is_story():
    shares = [story_share(kept) for kept in (0.01, 0.04, 0.08, 0.2, 0.4, 0.9)]
    assert shares == sorted(shares, reverse=True)
    assert all(0.0 < share <= 1.0 for share in shares)


def test_decisions_say_how_much_of_a_text_is_told():
    talk = long_talk(proposal=" ".join(f"Table_{year} holds the old rows of {year}." for year in range(2001, 2031)))
    whole, part = promises.tokens_of(talk.messages, talk.dialect) // 10, 700
    reasons = [
        next(each.reason for each in compact(talk.messages, target_tokens=target).decisions if each.turn == 3)
        for target in (whole, part)
    ]
    assert reasons[0] == "in the record, word for word"
    assert re.fullmatch(r"in the record \(\d+ of 31 sentences\)", reasons[1])


LAUNCHED = (
    "Async agent launched successfully. (Never quote the agentId below.)\nagentId: a2a9fa6c0233a4d55 (internal ID)"
)
ENDED = (
    "<task-notification>\n<task-id>a2a9fa6c0233a4d55</task-id>\n<status>completed</status>\n"
    '<summary>Agent "Find callers" finished</summary>\n<result>is_valid is called in login.py only.\n{more}</result>\n'
    "</task-notification>"
)


def delegating() -> Talk:
    """A sub-agent that was started in the background."""
    talk = long_talk()
    asked = {"description": "Find callers", "prompt": "Who calls is_valid?"}
    return talk.step(Call("Agent", asked, LAUNCHED)).answer("I wait for it.")


@pytest.mark.parametrize("is_folded_before", [False, True])
def test_the_report_of_a_sub_agent_in_the_background_is_told_as_a_report(is_folded_before: bool) -> None:
    talk = delegating()
    if is_folded_before:
        for name in ("a", "b", "c"):
            talk.step(read(f"src/{name}.py", FILLER)).answer(f"Read {name}.").user(f"Look at {name} as well.")
        target = promises.tokens_of(talk.messages, talk.dialect) // 10
        talk.messages = compact(talk.messages, target_tokens=target, dialect=talk.dialect).messages
        assert "- running: Find callers · Who calls is_valid?, id a2a9fa6c0233a4d55" in str(talk.messages[0])
    talk.user(ENDED.format(more="\n".join(f"- point {number}: never deploy at night" for number in range(900))))
    talk.step(read("src/auth/jwt.py", FILLER)).answer("Only one caller, then.").user("Go on with the tests.")
    record = record_after(talk, 0.12)
    said = texts(record.happened, "report")
    assert any(line.startswith('Agent "Find callers" finished: is_valid is called in login.py only.') for line in said)
    standing = [(entry.status, entry.text) for entries in record.sections.values() for entry in entries]
    assert not [text for status, text in standing if status == "running"]
    assert not [line for line in texts(record.happened, "user") if "deploy" in line]
    assert not [each for each in record.excerpts if each.label.startswith("user") and "deploy" in str(each.lines)]
