"""The same message twice: what is one message that came again, and what was said twice."""

from __future__ import annotations

from contextlib import closing
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import Session, compact
from context_compactor.dialects.messages import is_repair_text
from context_compactor.store.sqlite import SqliteStore
from tests.dialects.shapes import BUILDERS
from tests.dialects.strategies import DIALECT_NAMES
from tests.sessions.talk import illegal, message, messages, opened, plain

GO = {"role": "user", "content": "continue"}
DONE = {"role": "assistant", "content": "d"}


@pytest.fixture
def store():
    with closing(SqliteStore()) as opened_store:
        yield opened_store


def test_a_reply_that_is_appended_again_is_in_the_history_twice_and_in_the_context_once(store):
    session = opened(store)
    session.append([GO, DONE])
    before = session.usage().tokens
    session.append(DONE)
    assert session.context() == [GO, DONE]
    assert session.history() == [GO, DONE, DONE]
    assert session.usage().tokens == before
    session.append(GO)
    assert session.context() == [GO, DONE, GO]


def test_a_user_message_that_is_appended_again_without_an_answer_between_is_one(store):
    session = opened(store)
    session.append(GO)
    session.append(GO)
    session.append([DONE, GO, GO])
    assert session.context() == [GO, DONE, GO]
    assert session.history() == [GO, GO, DONE, GO, GO]


def test_what_was_said_again_after_an_answer_was_said_twice(store):
    session = opened(store)
    found = [GO, DONE] * 3
    for each in found:
        session.append(each)
    assert session.context() == found


def test_another_process_that_appends_the_same_message_again_is_told_so_too(store):
    opened(store).append([GO, DONE])
    other = opened(store)
    other.append(DONE)
    assert other.context() == [GO, DONE]


def test_a_reply_that_is_sent_again_after_the_compaction_it_caused_is_one(store):
    session = opened(store, automatic=False)
    session.append(messages(0, 57))
    reply = {"role": "assistant", "content": "The parser is fixed."}
    session.append(reply)
    session.compact(level="emergency")
    before = session.context()
    session.append(reply)
    assert session.context() == before
    assert session.history()[-2:] == [reply, reply]
    session.undo()
    assert session.context()[-1] == reply
    assert session.context()[-2] != reply
    assert illegal(session.context()) == []


def test_after_a_compaction_the_record_has_it_once(store):
    session = opened(store, automatic=False)
    wish = {"role": "user", "content": "Rename the parser to reader in src/reader.py, please."}
    for each in (wish, wish, *messages(0, 60)):
        session.append(each)
    session.compact(level="emergency")
    text = str(session.context())
    assert text.count("Rename the parser to reader") == 1


def test_while_compaction_is_off_everything_is_sent_as_it_was_appended(store):
    session = opened(store, enabled=False)
    session.append([GO, GO])
    assert session.context() == [GO, GO]


def test_the_context_of_every_moment_is_as_it_was_sent(store):
    session = opened(store)
    sent = []
    for each in (GO, DONE, DONE, GO, GO):
        session.append(each)
        sent.append(session.context())
    assert [session.context(at=count) for count in range(1, 6)] == sent


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_the_result_of_a_call_that_comes_twice_is_one(store, dialect):
    build = BUILDERS[dialect]
    session = opened(store)
    found = [plain("user", "go", dialect), *build.calls("a")]
    session.append(found)
    for _ in range(3):
        session.append(build.results(("a", "1")))
    assert session.context() == [*found, *build.results(("a", "1"))]


def test_a_reply_with_the_providers_id_is_one_wherever_it_comes_again():
    reply = {"role": "assistant", "content": "d", "id": "msg_1"}
    found = [GO, reply, GO]
    result = compact([*found, {**reply}, GO])
    assert result.messages == [*found, GO]
    other = {**reply, "content": "e"}
    assert compact([*found, other]).messages == [*found, other]


@pytest.mark.parametrize("name", ["openai-chat", "anthropic"])
def test_two_equal_replies_in_a_row_are_one_and_two_others_are_joined(name):
    blocks = [{"type": "text", "text": "d"}]
    twice = {"role": "assistant", "content": "d" if name == "openai-chat" else blocks}
    assert compact([GO, twice, twice, GO], dialect=name).messages == [GO, twice, GO]
    joined = compact([GO, {"role": "assistant", "content": "a"}, twice, GO], dialect=name).messages
    assert len(joined) == 3
    assert "a" in str(joined[1])


def test_equal_messages_of_the_user_in_a_row_are_left_as_they_are_in_a_list():
    assert compact([GO, GO]).messages == [GO, GO]


@given(data=st.data())
def test_the_history_is_what_was_appended_and_the_context_has_each_run_once(data):
    said = data.draw(st.lists(st.tuples(st.sampled_from([GO, DONE, message(0)]), st.integers(1, 3)), max_size=8))
    runs = [(each, sum(count for _, count in run)) for each, run in _runs(said)]
    found = [each for each, count in runs for _ in range(count)]
    cuts = data.draw(st.lists(st.integers(0, len(found)), max_size=3).map(sorted))
    with closing(SqliteStore()) as store:
        session = opened(store, window=100_000)
        for start, end in zip([0, *cuts], [*cuts, len(found)], strict=True):
            session.append(found[start:end])
        assert session.history() == found
        shown = [each for each in session.context() if not is_repair_text(each["content"])]
        assert shown == [each for each, _ in runs]
        assert session.verify() == []


def _runs(said):
    return groupby(said, key=lambda each: each[0])


def test_words_added_to_an_unanswered_request_can_be_found_where_the_provider_joins_them(tmp_path):
    """Bedrock takes no two messages of the user in a row: what is added becomes part of a turn that is archived."""

    def said(text):
        return {"role": "user", "content": [{"text": text}]}

    def worked(number):
        call = {"toolUse": {"toolUseId": f"c{number}", "name": "read", "input": {"path": f"part{number}.py"}}}
        result = {"toolUseId": f"c{number}", "content": [{"text": f"value {number} = {number}\n" * 60}]}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [{"toolResult": result}]}]

    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with Session.open("run", window=200_000, store=store, dialect="bedrock") as session:
        session.append([said("Please read all parts."), *(raw for number in range(20) for raw in worked(number))])
        last = worked(20)
        last[1]["content"].append({"text": "Important: never touch the zebra module."})
        session.append(last)
        session.compact(target_tokens=1_500)
        session.append(said("Also rename the giraffe table to okapi."))
        session.append([raw for number in range(21, 40) for raw in worked(number)])
        session.compact(target_tokens=600)
        found = session.search("giraffe table okapi")
    assert any("giraffe table to okapi" in hit.text for hit in found)
