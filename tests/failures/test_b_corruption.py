"""B. Dead ends and corruption: whatever went in, a provider takes what comes out, and the input is as it was."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadInput, compact
from context_compactor.dialects.messages import Text
from tests.dialects.strategies import histories
from tests.engine import promises
from tests.engine.sessions import chains, sessions, shares
from tests.engine.talks import DIALECT_NAMES, Call, bash, read, talk_in
from tests.failures.scenarios import code, fill, record_text, seen, squeeze, working

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def orphans(messages: list[dict], dialect: str) -> list[str]:
    """Calls without their results and the other way round, found without the engine's own rules."""
    parsed = promises.parsed(messages, dialect)
    calls = [call.id for message in parsed for call in message.calls]
    results = [result.call_id for message in parsed for result in message.results]
    waiting = set(calls) - set(results)
    last = {call.id for message in parsed[-8:] for call in message.calls}
    return [*sorted(set(results) - set(calls)), *sorted(waiting - last)]


@every_dialect
def test_one_huge_read_is_stored_and_shortened_and_the_task_is_intact(dialect):
    """Row 21."""
    task = "Find out why the nightly job is slow, and never restart the worker."
    huge = "\n".join(f"2024-05-01T03:00:00Z job {number} waited {number * 37 % 900} ms" for number in range(8_000))
    talk = talk_in(dialect).user(task).step(read("nightly.log", huge))
    result = compact(talk.messages, window=20_000, dialect=dialect)
    assert result.report.status == "success"
    text = seen(result.messages, dialect)
    assert task in text
    assert "file_001" in text
    assert result.recall("file_001") == huge


@every_dialect
@given(data=st.data())
def test_every_result_has_its_call_and_every_call_its_result(dialect, data):
    """Row 22."""
    history = data.draw(histories(dialect, min_rounds=2, max_rounds=6))
    result = squeeze(history, data.draw(shares), dialect)
    assert orphans(result.messages, dialect) == []


@every_dialect
@given(data=st.data())
def test_no_orphan_appears_after_several_compactions(dialect, data):
    """Row 23."""
    messages = data.draw(sessions(dialect)).messages
    for share in data.draw(chains(5)):
        messages = squeeze(messages, share, dialect).messages
        assert orphans(messages, dialect) == []


@pytest.mark.parametrize("share", [0.6, 0.3, 0.15])
def test_a_result_that_comes_long_after_its_call_stays_with_it(share):
    """Row 22: the Responses format lets a result stand anywhere behind its call."""
    call = {"type": "function_call", "call_id": "late", "name": "Bash", "arguments": '{"command": "make"}'}
    talk = talk_in("openai-responses").user("Go.")
    talk.messages.append(call)
    fill(talk.user("Mind the docs meanwhile."), 12)
    talk.messages.append({"type": "function_call_output", "call_id": "late", "output": "built"})
    result = squeeze(talk.answer("Built.").user("And?"), share)
    assert result.report.status == "success"
    assert promises.illegal(result, "openai-responses") == []
    assert orphans(result.messages, "openai-responses") == []


@pytest.mark.parametrize("share", [0.6, 0.3, 0.1, 0.05])
def test_a_message_with_words_and_results_stays_with_its_calls(share):
    """Row 24."""
    talk = talk_in("anthropic").user("Go.")
    for number in range(12):
        calls = [bash(f"ls {number}", code("a", 20)), read(f"src/{number}.py", code("b", 20))]
        talk.step(*calls, after=f"Mind folder {number}.")
    result = squeeze(talk, share)
    assert promises.illegal(result, "anthropic") == []
    assert orphans(result.messages, "anthropic") == []


@every_dialect
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_an_aborted_call_leaves_neither_itself_nor_a_result_of_its_own_behind(dialect, share):
    """Row 25."""
    talk = fill(talk_in(dialect).user("Go."), 6)
    talk.step(bash("sleep 1000", None)).user("Stop that.")
    fill(talk.answer("Stopped."), 6).user("What now?")
    result = squeeze(talk, share)
    assert promises.illegal(result, dialect) == []
    assert orphans(result.messages, dialect) == []
    assert orphans(squeeze(result.messages, 0.5, dialect).messages, dialect) == []


@every_dialect
@given(data=st.data())
def test_signed_reasoning_is_never_edited(dialect, data):
    """Row 26."""
    messages = data.draw(histories(dialect, min_rounds=2, max_rounds=6))
    result = squeeze(messages, data.draw(shares), dialect)
    assert promises.edited_thinking(messages, result, dialect) == []


@every_dialect
@pytest.mark.parametrize("share", [0.7, 0.4, 0.1])
def test_a_repaired_history_passes_the_same_rules_and_keeps_its_reasoning(dialect, share):
    """Row 27."""
    talk = fill(talk_in(dialect).user("Go."), 4)
    talk.step(bash("make", None), bash("ls", "a b c"), text="Both.", thinking="I weigh both.")
    fill(talk, 6).user("What now?")
    result = squeeze(talk, share)
    assert result.report.repairs
    assert promises.illegal(result, dialect) == []
    assert promises.edited_thinking(talk.messages, result, dialect) == []


@every_dialect
def test_the_record_is_plain_text_that_any_provider_reads(dialect):
    """Row 28."""
    result = squeeze(working(dialect), 0.2)
    parsed = promises.parsed(result.messages, dialect)
    record = next(message for message in parsed if message.text.startswith("[Context record."))
    assert record.role == "user"
    assert isinstance(record.parts[0], Text)
    assert promises.record_of(parsed, dialect) is not None


def test_a_sealed_item_of_the_provider_is_kept_as_it_is_or_archived_as_it_is():
    """Row 28."""
    talk = talk_in("openai-responses").user("Go.")
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAB" * 40}
    talk.messages.append(sealed)
    fill(talk.user("Go on."), 12).user("What now?")
    result = squeeze(talk, 0.15)
    archived = [value for item in result.archive for value in (item.value if isinstance(item.value, list) else ())]
    assert sealed in result.messages or sealed in archived


def test_a_counter_that_breaks_down_leaves_everything_as_it_was():
    """Row 35, as far as there is no model: a fault at any step changes nothing."""
    talk = working()
    before = deepcopy(talk.messages)
    for survives in (0, 3, 40):
        counted = iter(range(survives))

        def count(text: str, counted=counted) -> int:
            next(counted)
            return len(text) // 4

        with pytest.raises(BadInput):
            compact(talk.messages, target_tokens=500, dialect=talk.dialect, count_tokens=count)
        assert talk.messages == before


@every_dialect
@given(data=st.data())
def test_every_message_is_in_the_new_context_or_in_the_archive(dialect, data):
    """Row 37, for a list that is given whole: all of it is read, none of it falls out."""
    messages = data.draw(sessions(dialect)).messages
    result = squeeze(messages, data.draw(shares), dialect)
    kept = {json.dumps(raw, sort_keys=True) for raw in result.messages}
    turns = (item.value for item in result.archive if item.id.startswith("turn_"))
    kept |= {json.dumps(raw, sort_keys=True) for turn in turns for raw in turn}
    fallen = [raw for raw in messages if json.dumps(raw, sort_keys=True) not in kept]
    joined = [raw for raw in fallen if _is_joined(raw, result.messages, dialect)]
    assert fallen == joined


def _is_joined(raw: dict, messages: list[dict], dialect: str) -> bool:
    """Whether a message stands behind the record, in one message with it."""
    first = next(message for message in promises.parsed(messages, dialect) if message.role == "user")
    parts = promises.parsed([raw], dialect)[0].parts
    return first.parts[-len(parts) :] == parts


@every_dialect
def test_the_transcript_that_went_in_is_the_same_afterwards(dialect):
    """Row 38, for a list in memory."""
    talk = working(dialect)
    before = json.dumps(talk.messages)
    squeeze(talk, 0.1)
    assert json.dumps(talk.messages) == before


def test_a_picture_among_results_does_not_break_the_pair():
    """Row 22, with pictures."""
    for dialect in DIALECT_NAMES:
        talk = talk_in(dialect).user("Go.")
        for number in range(10):
            talk.step(Call("Screenshot", {"page": number}, code("a", 10), pictures=2))
        result = squeeze(talk.answer("Done.").user("And?"), 0.1)
        assert promises.illegal(result, dialect) == []
        assert orphans(result.messages, dialect) == []
        assert record_text(result.messages, dialect)
