"""The layout `record`: a context that is one message, with the newest turns and the open question in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadSetting, compact
from context_compactor.dialects.record import CLOSING, NEWEST, is_record
from tests.engine import promises
from tests.engine.sessions import sessions
from tests.engine.talks import DIALECT_NAMES, bash, read, talk_in

CODE = "\n".join(f"def step_{number}(table): return table.rows[{number}]" for number in range(300))


def talk_of(dialect, question="why is the second run slower?"):
    talk = talk_in(dialect).user("Make the import faster.").step(read("src/load.py", CODE))
    talk.answer("`load` reads each row twice.").user("fix that").step(read("src/rows.py", CODE))
    talk.step(bash("python bench.py", "first run 2.0 s\nsecond run 3.1 s"), text="The fix is in; timing it.")
    return talk.answer("It is faster now.").user(question)


def compacted(talk, share=0.3):
    target = int(promises.tokens_of(talk.messages, talk.dialect) * share)
    return compact(talk.messages, target_tokens=target, dialect=talk.dialect, layout="record")


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_the_context_is_one_message_that_ends_with_the_open_question(dialect):
    result = compacted(talk_of(dialect))
    (message,) = promises.parsed(result.messages, dialect)
    assert message.text.startswith("[Context record.")
    assert message.text.rstrip().endswith("why is the second run slower?")
    assert CLOSING in message.text


def test_the_newest_turns_stand_in_it_as_they_were():
    (message,) = promises.parsed(compacted(talk_of("anthropic")).messages, "anthropic")
    newest = message.text.partition(f"## {NEWEST}")[2]
    assert "The fix is in; timing it." in newest
    assert "second run 3.1 s" in newest


def test_a_question_that_was_answered_leaves_a_record_alone():
    talk = talk_of("anthropic").answer("The second run reads a cold cache.")
    (message,) = promises.parsed(compacted(talk).messages, "anthropic")
    assert is_record(message.text)


def test_a_call_that_still_runs_stays_behind_the_record():
    talk = talk_of("anthropic").step(bash("python bench.py --long", None), text="Measuring again.")
    result = compacted(talk)
    assert promises.illegal(result, "anthropic") == []
    assert [message.role for message in promises.parsed(result.messages, "anthropic")][-1] == "assistant"


@given(session=st.sampled_from(DIALECT_NAMES).flatmap(sessions), share=st.sampled_from((0.1, 0.3, 0.6)))
def test_it_fits_and_is_legal_whatever_the_session(session, share):
    target = max(int(promises.tokens_of(session.messages, session.dialect) * share), 1)
    result = compact(session.messages, target_tokens=target, dialect=session.dialect, layout="record")
    assert promises.illegal(result, session.dialect) == []
    last = promises.legal(session.messages, session.dialect)[-1]
    if last.role == "user" and not last.results:
        assert promises.parsed(result.messages, session.dialect)[-1].text.endswith(last.text)
    if result.report.status == "success":
        assert result.report.tokens_after <= target


def test_it_can_be_compacted_again_and_tells_what_it_told():
    first = compacted(talk_of("anthropic"))
    more = talk_in("anthropic").answer("The cache is cold on the second run.").user("and the third?")
    more.step(read("src/third.py", CODE)).answer("The third run is as fast as the first.").user("good")
    second = compact([*first.messages, *more.messages], target_tokens=900, dialect="anthropic", layout="record")
    words = promises.words(promises.parsed(second.messages, "anthropic"))
    assert "`load` reads each row twice" in words
    assert "The third run is as fast as the first." in words


def test_another_word_for_a_layout_is_refused_with_the_known_ones():
    with pytest.raises(BadSetting, match="auto, tail, record"):
        compact([{"role": "user", "content": "hello"}], layout="both")
