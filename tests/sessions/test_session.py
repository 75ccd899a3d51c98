"""A session: what goes in comes out, what was seen can be seen again, and what was taken out can be put back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from context_compactor.errors import BadInput, BadMessage, BadSetting, CompactorError, StoreError
from context_compactor.sessions.session import Session
from context_compactor.store.postgres import PostgresStore
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite import SqliteStore
from tests.dialects.strategies import DIALECT_NAMES
from tests.postgres import STORES
from tests.sessions.talk import CALM, Raw, illegal, message, messages, opened, output, references


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[SqlStore]:
    is_sqlite = request.param == "sqlite"
    with closing(
        SqliteStore() if is_sqlite else PostgresStore(request.getfixturevalue("postgres_url"))
    ) as opened_store:
        yield opened_store


# In and out


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_what_goes_in_comes_out_in_order_and_the_dialect_is_found(store: SqlStore, dialect: str):
    said = messages(0, 80, dialect)
    with opened(store) as session:
        for raw in said:
            session.append(raw)
        assert session.history() == said
        assert illegal(session.context(), dialect) == []
        assert len(session.compactions()) >= 1
    with opened(store) as session:
        assert session.history() == said
        assert illegal(session.context(), dialect) == []


def test_one_message_or_several_or_none_may_be_appended(store: SqlStore):
    with opened(store) as session:
        session.append(message(0))
        session.append(messages(1, 4))
        session.append([])
        session.append(tuple(messages(4, 6)))
        assert session.history() == messages(0, 6)


def test_what_was_given_and_what_is_returned_can_be_changed_without_harm(store: SqlStore):
    with opened(store) as session:
        given = messages(0, 4)
        session.append(given)
        given[0]["content"] = "changed"
        given[1]["tool_calls"].clear()
        for returned in (session.context(), session.history()):
            returned[1]["tool_calls"][0]["id"] = "changed"
            returned.clear()
        assert session.history() == session.context() == messages(0, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "nobody", "content": "x"},
        {"role": "user", "content": 7},
        {"content": "no role"},
        "not a message",
        7,
        None,
        {"role": "user", "content": "x", "extra": {1: "a key that is not text"}},
        {"role": "user", "content": "x", "extra": {"a set"}},
        {"role": "user", "content": "x", "extra": object()},
    ],
)
def test_of_several_messages_all_are_appended_or_none(store: SqlStore, wrong: object):
    with opened(store) as session:
        session.append(messages(0, 4))
        before = store.session("run")
        with pytest.raises(BadInput):
            session.append([*messages(4, 6), wrong])  # type: ignore[list-item]
        assert store.session("run") == before
        assert session.history() == messages(0, 4)
        session.append(messages(4, 8))
        assert session.context() == messages(0, 8)


def test_a_message_that_is_refused_does_not_settle_the_dialect(store: SqlStore):
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "Read", "input": {}}]}
    with opened(store) as session:
        with pytest.raises(BadMessage):
            session.append([call, {"role": "nobody", "content": "x"}])
        session.append(messages(0, 8, "openai-chat"))
        assert session.history() == messages(0, 8, "openai-chat")


HALF = "\ud800"


@pytest.mark.parametrize(
    "told",
    [
        [{"role": "user", "content": f"Never touch the file {HALF}.py"}, {"role": "assistant", "content": "ok"}],
        [{"role": "user", "content": "go"}, {"role": "assistant", "content": f"We decided to use {HALF} because."}],
        [
            {"role": "user", "content": "run it"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": f"call {HALF}",
                        "type": "function",
                        "function": {"name": f"Bash{HALF}", "arguments": json.dumps({"command": f"make {HALF}"})},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": f"call {HALF}", "content": f"Exit code 1\nerror: {HALF} is bad\n" * 9},
        ],
    ],
    ids=["constraint", "decision", "failure"],
)
def test_half_a_character_stops_neither_an_append_nor_a_compaction(store: SqlStore, told: list[Raw]):
    said = [*messages(0, 8), *told, *messages(8, 32)]
    with opened(store, automatic=False, max_output_tokens=50) as session:
        session.append(said)
        assert session.compact(level="emergency").changed
        assert session.history() == said
        assert illegal(session.context()) == []
        for original in store.originals("run"):
            session.recall(original.ref)
        assert session.facts()
        session.checkpoint()
    with opened(store, automatic=False) as session:
        assert session.compactions()
        assert session.history() == said


# Opening


def test_a_session_goes_on_as_it_was_opened_last(store: SqlStore):
    settings = structs.replace(CALM, preserve_recent_turns=2)
    Session.open("run", window=4_000, store=store, dialect="anthropic", settings=settings).close()
    with Session.open("run", store=store) as session:
        assert session.settings.preserve_recent_turns == 2
        assert session.usage().budget_tokens < 4_000
        session.append(messages(0, 4, "anthropic"))
        assert session.history() == messages(0, 4, "anthropic")


def test_a_window_that_leaves_no_room_is_refused_before_anything_is_written(store: SqlStore):
    tight = structs.replace(CALM, reserve_output_tokens=5_000)
    with pytest.raises(BadSetting, match="reserve_output_tokens"):
        Session.open("run", window=1_000, store=store, settings=tight)
    assert store.sessions() == []


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 301, "\ud800", 7, None])
def test_what_is_no_name_of_a_session_is_refused(store: SqlStore, name: object):
    with pytest.raises(BadSetting, match="session id"):
        Session.open(name, store=store, settings=CALM)  # type: ignore[arg-type]
    assert store.sessions() == []


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        opened(tmp_path / "file")


def test_a_closed_session_says_so_and_closing_twice_does_nothing(tmp_path: Path):
    session = opened(tmp_path)
    session.close()
    session.close()
    with pytest.raises(StoreError, match="closed"):
        session.append(message(0))


def test_the_first_request_after_opening_is_checked_too(store: SqlStore):
    with opened(store, automatic=False) as session:
        session.append(messages(0, 60))
        assert session.context() == messages(0, 60)
    with opened(store) as session:
        assert len(session.context()) < 60
        assert len(session.compactions()) == 1
        assert session.context() == session.context()
        assert len(session.compactions()) == 1


def test_a_full_disk_leaves_the_session_as_it_was(tmp_path: Path):
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store, opened(store, automatic=False) as session:
        session.append(messages(0, 28))
        before = session.history(), session.context()
        pages = store._database.row("PRAGMA page_count")[0]
        store._database._live().execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="disk is full"):
            session.append(messages(28, 400))
        assert (session.history(), session.context()) == before
        store._database._live().execute("PRAGMA max_page_count = 100000")
        assert session.compact().changed
        assert list(store.verify()) == []


# What was seen


def test_every_context_that_was_ever_sent_can_be_seen_again(store: SqlStore):
    with opened(store, max_output_tokens=300) as session:
        seen: list[list[Raw]] = []
        for number in range(100):
            seen.append(session.context())
            session.append(message(number))
            if number % 17 == 16:
                session.compact()
            if number % 31 == 30:
                session.undo()
        seen.append(session.context())
        assert len(session.compactions()) >= 4
        assert [session.context(at=number) for number in range(101)] == seen
        for wrong in (-1, 101):
            with pytest.raises(BadSetting, match="100 messages"):
                session.context(at=wrong)


def test_a_diff_holds_both_contexts(store: SqlStore):
    with opened(store, automatic=False) as session:
        session.append(messages(0, 28))
        before = session.context()
        session.compact()
        found = session.diff()
        assert [row.before.raw for row in found.rows if row.before is not None] == before
        assert [row.after.raw for row in found.rows if row.after is not None] == session.context()
        assert found.tokens[0] > found.tokens[1]
        assert found.counts()["removed"] > 0
        assert "before" in found.to_text()


def test_undo_gives_the_old_context_with_everything_said_since(store: SqlStore):
    with opened(store, automatic=False) as session:
        session.append(messages(0, 28))
        report = session.compact()
        session.append(messages(28, 32))
        undone = session.undo()
        assert undone == report
        assert session.context() == messages(0, 32)
        assert session.undo() is None
        assert session.totals().undone == 1
        assert session.redo() == report
        assert session.context()[-4:] == messages(28, 32)


def test_after_an_undo_the_session_is_not_compacted_again_at_once(store: SqlStore):
    with opened(store) as session:
        number = 0
        while not session.compactions():
            session.append(message(number))
            number += 1
        session.undo()
        assert session.context() == messages(0, number)
        assert len(session.compactions()) == 1
    with opened(store) as session:
        assert session.context() == messages(0, number)
        assert len(session.compactions()) == 1


# What was taken out


def test_an_output_that_is_too_long_is_cut_and_its_original_is_there(store: SqlStore):
    with opened(store, window=100_000, max_output_tokens=200) as session:
        session.append(messages(20, 24))  # the output of turn 5 is long
        shown = session.context()[2]["content"]
        assert len(shown) < len(output(5))
        (ref,) = references([session.context()[2]])
        assert session.recall(ref) == output(5)
        assert session.history()[2]["content"] == output(5)
        restored = session.restore(ref)
        assert restored.in_place
        assert session.context() == messages(20, 24)


def test_an_output_that_was_cut_and_kept_by_a_compaction_can_be_put_back_in_place(store: SqlStore):
    with opened(store, window=6_000, automatic=False, max_output_tokens=100) as session:
        session.append(messages(0, 52))
        session.compact(target_tokens=1_400)
        shown = next(raw for raw in session.context() if raw.get("tool_call_id") == "call_12")
        (ref,) = references([shown])
        assert session.restore(ref).in_place
        whole = next(raw for raw in session.context() if raw.get("tool_call_id") == "call_12")
        assert whole["content"] == output(12)


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_whatever_was_restored_can_be_read_in_the_context(store: SqlStore, dialect: str):
    with opened(store, window=8_000, dialect=dialect, automatic=False, max_output_tokens=300) as session:
        session.append(messages(0, 52, dialect))
        session.compact(target_tokens=1_500)
        for original in store.originals("run"):
            text = session.original(original.ref).text
            try:
                restored = session.restore(original.ref)
            except CompactorError as error:
                assert "tokens" in str(error)
                continue
            context = session.context()
            assert json.dumps(text)[1:-1] in json.dumps(context) or text in str(context)
            assert illegal(context, dialect) == []
            assert restored.tokens_after == session.usage().tokens


def test_what_was_restored_goes_with_the_next_compaction_and_is_archived_once(store: SqlStore):
    with opened(store, window=8_000, automatic=False) as session:
        session.append(messages(0, 52))
        session.compact(target_tokens=1_500)
        before = [each.ref for each in store.originals("run")]
        ref = next(ref for ref in before if ref.startswith("file"))
        session.restore(ref)
        session.compact(target_tokens=1_400)
        assert [each.ref for each in store.originals("run")][: len(before)] == before
        assert session.recall(ref) == output(int(ref[-3:]) - 1)


def test_an_original_is_byte_equal_through_ten_compactions(store: SqlStore):
    with opened(store, max_output_tokens=300) as session:
        for number in range(360):
            session.append(message(number))
        assert len(session.compactions()) >= 10
        for turn in range(50):
            assert session.recall(f"file_{turn + 1:03d}") == output(turn)
    assert list(store.verify()) == []


def test_a_session_is_not_opened_in_a_dialect_that_its_messages_are_not(tmp_path):
    store = f"sqlite:///{tmp_path}/sessions.db"
    found = [{"role": "user", "content": "Hello"}, {"role": "tool", "tool_call_id": "c1", "content": "done"}]
    with Session.open("run", store=store, dialect="openai-chat") as session:
        session.append(found[0])
    with Session.open("run", store=store, dialect="openai-responses") as session:  # plain words are any dialect's
        assert session.context() == found[:1]
    with Session.open("run", store=store, dialect="openai-chat") as session:
        session.append(found[1])
    with pytest.raises(BadSetting, match="the messages of 'run' are openai-chat, not anthropic"):
        Session.open("run", store=store, dialect="anthropic")
    with Session.open("run", store=store) as session:
        assert session.history() == found


USES_TOOL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]}
CALLS_TOOL = {
    "role": "assistant",
    "content": "reading",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
}
THINKS = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]}


@pytest.mark.parametrize(
    ("known", "other", "names"),
    [
        (CALLS_TOOL, USES_TOOL, ("openai-chat", "anthropic")),
        (USES_TOOL, CALLS_TOOL, ("anthropic", "openai-chat")),
        (USES_TOOL, {"type": "function_call", "call_id": "b", "name": "x"}, ("anthropic", "openai-responses")),
        (CALLS_TOOL, {"type": "reasoning", "summary": []}, ("openai-chat", "openai-responses")),
    ],
)
def test_a_message_of_another_dialect_is_refused_and_both_are_named(store: SqlStore, known: Raw, other: Raw, names):
    session = opened(store)
    session.append([{"role": "user", "content": "go"}, known])
    with pytest.raises(BadMessage, match=f"it is {names[1]}, but session 'run' is {names[0]}"):
        session.append([{"role": "user", "content": "on"}, other])
    assert session.history() == [{"role": "user", "content": "go"}, known]


def test_a_dialect_that_was_named_reads_messages_of_others_too(store: SqlStore):
    opened(store, dialect="openai-chat").append([CALLS_TOOL, USES_TOOL])
    session = opened(store)
    session.append(USES_TOOL)
    assert session.history() == [CALLS_TOOL, USES_TOOL, USES_TOOL]


def test_a_named_dialect_that_cannot_read_a_message_is_named_beside_its_own(store: SqlStore):
    session = opened(store, dialect="anthropic")
    with pytest.raises(BadMessage, match="it is openai-chat, but session 'run' is anthropic"):
        session.append({"role": "tool", "tool_call_id": "a", "content": "1"})


def test_thinking_alone_does_not_settle_the_dialect(store: SqlStore):
    session = opened(store)
    session.append([{"role": "user", "content": "go"}, THINKS])
    session.append([CALLS_TOOL, {"role": "tool", "tool_call_id": "a", "content": "1"}])
    assert session.history()[1:3] == [THINKS, CALLS_TOOL]
    with pytest.raises(BadMessage, match="anthropic"):
        session.append(USES_TOOL)
