"""The checks of `promises.py` notice what they are there to notice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from context_compactor import Compaction, compact
from context_compactor.archive.originals import Archive
from tests.engine import promises
from tests.engine.talks import Talk, bash, read, talk_in

FAILURE = ("make release --fast", "error: undefined reference to `main'")


def session() -> Talk:
    talk = talk_in("anthropic").system("Be careful.").user("Release it.")
    talk.step(bash(FAILURE[0], f"Exit code 2\nld: {FAILURE[1]}", failed=True))
    for number in range(10):
        talk.step(read(f"src/part_{number}.py", f"value_{number} = {number}\n" * 60), text="Reading on. " * 30)
    talk.step(bash("ls", "a b c"), thinking="I weigh it.")
    return talk.answer("Nearly.").user("And now?")


@pytest.fixture(scope="module")
def made() -> tuple[list[dict[str, Any]], Compaction]:
    messages = session().messages
    return messages, compact(messages, target_tokens=1_200, dialect="anthropic")


def tampered(result: Compaction, old: str, new: str) -> Compaction:
    text = json.dumps(result.messages)
    assert old in text
    return replace(result, messages=json.loads(text.replace(old, new)))


def test_an_honest_result_passes_all_of_them(made):
    messages, result = made
    assert result.report.status == "success"
    assert promises.illegal(result, "anthropic") == []
    assert promises.misfit(messages, result, 1_200, "anthropic") == []
    assert promises.lost_pins(messages, result, "anthropic") == []
    assert promises.forgotten([FAILURE], result, "anthropic") == []
    assert promises.not_recalled(messages, result, "anthropic") == []
    assert promises.edited_thinking(messages, result, "anthropic") == []


def test_changed_instructions_are_noticed(made):
    messages, result = made
    assert promises.lost_pins(messages, tampered(result, "Be careful.", "Be careless."), "anthropic")


def test_a_question_that_is_not_last_is_noticed(made):
    messages, result = made
    assert promises.lost_pins(messages, replace(result, messages=result.messages[:-1]), "anthropic")


def test_a_result_without_its_call_is_noticed(made):
    _, result = made
    assert promises.illegal(
        tampered(result, '"type": "tool_use", "id": "', '"type": "tool_use", "id": "x'), "anthropic"
    )


def test_edited_and_outdated_reasoning_is_noticed():
    messages = session().messages
    result = compact(messages, target_tokens=1_200, dialect="anthropic", model="claude-sonnet-4-5")
    assert "I weigh it." in json.dumps(result.messages)
    assert promises.edited_thinking(messages, result, "anthropic")
    assert promises.edited_thinking(messages, tampered(result, "I weigh it.", "I weigh."), "anthropic")


def test_a_forgotten_failure_is_noticed(made):
    _, result = made
    assert promises.forgotten([FAILURE], tampered(result, "undefined reference", "something"), "anthropic")
    assert promises.forgotten([FAILURE], tampered(result, "make release", "make"), "anthropic")


def test_an_original_that_is_not_the_original_is_noticed(made):
    messages, result = made
    first, *rest = result.archive
    for changed in (Archive([replace(first, value="else"), *rest]), Archive([replace(first, value=[{}]), *rest])):
        assert promises.not_recalled(messages, replace(result, archive=changed), "anthropic")


def test_an_id_that_nothing_is_archived_under_is_noticed(made):
    messages, result = made
    shown = tampered(result, "And now?", 'And now? recall(\\"tool_998\\")')
    assert "tool_998 is visible and not archived" in promises.not_recalled(messages, shown, "anthropic")


def test_a_wrong_count_and_a_missed_target_are_noticed(made):
    messages, result = made
    assert promises.misfit(messages, result, 10, "anthropic")
    wrong = replace(result, report=replace(result.report, tokens_after=7))
    assert promises.misfit(messages, wrong, 1_200, "anthropic")


def test_an_id_with_two_meanings_is_noticed(made):
    _, result = made
    first, *rest = result.archive
    other = replace(result, archive=Archive([replace(first, value="else"), *rest]))
    assert promises.reused([result, other])
