"""A framework gives its whole history before each request: what is new is appended, where it diverged it branches."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import AsyncSession, Session, compact, delete_session
from context_compactor.errors import BadMessage, BadSetting, SessionExists, UnknownSession
from context_compactor.store.connect import connect
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import WINDOW, Raw, count, illegal, messages, opened, plain

DIALECTS = ["openai-chat", "openai-responses", "anthropic", "gemini", "bedrock"]
SYSTEM = {"role": "system", "content": "Be careful."}


def other(text: str) -> Raw:
    return {"role": "user", "content": text}


def said(session: Session) -> str:
    return str(session.context())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_history_that_grows_is_appended_once_and_stays_legal(tmp_path: Path, dialect: str):
    with opened(tmp_path, dialect=dialect) as session:
        for end in range(1, 90, 4):
            sent = session.sync(messages(0, end, dialect))
            assert illegal(sent, dialect) == []
        assert session.history() == messages(0, 89, dialect)
        assert len(session.compactions()) >= 2
        assert session.id == "run"


def test_below_the_soft_level_the_history_is_sent_as_it_was_given(tmp_path: Path):
    history = [SYSTEM, *messages(0, 10)]
    with opened(tmp_path) as session:
        sent = session.sync(history)
        assert sent == history
        assert sent.sources == tuple(range(11))
        assert sent.report is None


def test_sources_name_the_messages_that_are_sent_unchanged(tmp_path: Path):
    history = [SYSTEM, *messages(0, 80)]
    with opened(tmp_path) as session:
        sent = session.sync(history)
        assert sent.report is not None
        known = [source for source in sent.sources if source is not None]
        assert known == sorted(known)
        assert sent.sources[0] == 0
        assert None in sent.sources
        assert all(sent[at] == history[source] for at, source in enumerate(sent.sources) if source is not None)


def test_compact_says_where_its_messages_come_from(tmp_path: Path):
    history = [SYSTEM, *messages(0, 80)]
    result = compact(history, target_tokens=1_500, count_tokens=count)
    assert len(result.sources) == len(result.messages)
    pairs = [(at, source) for at, source in enumerate(result.sources) if source is not None]
    assert len(pairs) > 1
    assert all(result.messages[at] == history[source] for at, source in pairs)
    assert compact(history[:3], window=100_000).sources == (0, 1, 2)


def test_between_two_compactions_the_prefix_never_changes(tmp_path: Path):
    with opened(tmp_path) as session:
        sent = [session.sync(messages(0, end)) for end in range(1, 120)]
        rewritten = sum(after[: len(before)] != before for before, after in pairwise(sent))
        assert rewritten <= len(session.compactions())


def test_giving_the_same_history_again_changes_nothing(tmp_path: Path):
    with opened(tmp_path) as session:
        first = session.sync(messages(0, 30))
        assert session.sync(messages(0, 30)) == first
        assert session.history() == messages(0, 30)


def test_a_regenerated_answer_goes_on_in_a_branch_without_the_old_one(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync([*messages(0, 10), {"role": "assistant", "content": "The first answer."}])
        sent = session.sync([*messages(0, 10), {"role": "assistant", "content": "The second answer."}])
        assert session.id == sent.session_id == "run~2"
        assert "first answer" not in str(sent)
        assert "second answer" in str(sent)
    with opened(tmp_path, branch="run") as left:
        assert "first answer" in said(left)


def test_a_rewind_keeps_the_compactions_before_it_and_their_originals(tmp_path: Path):
    with opened(tmp_path) as session:
        sent_then = {end: session.sync(messages(0, end)) for end in range(1, 101)}
        first, *_ = session.compactions()
        at = next(end for end, sent in sent_then.items() if sent.report == first) + 2
        ref = next(each.id for each in first.archived if each.id.startswith(("tool", "file")))
        original = session.recall(ref)
        sent = session.sync(messages(0, at))
        assert session.id == "run~2"
        assert sent == sent_then[at]
        assert [report.compaction_id for report in session.compactions()] == [first.compaction_id]
        assert session.recall(ref) == original
        assert session.search("compute_3")
        assert session.verify() == []


def test_going_back_to_the_left_branch_continues_it(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync(messages(0, 40))
        session.sync([*messages(0, 20), other("Something else.")])
        assert session.id == "run~2"
        session.sync(messages(0, 44))
        assert session.id == "run"
        session.sync([*messages(0, 20), other("Something else."), {"role": "assistant", "content": "Yes."}])
        assert session.id == "run~2"


def test_an_id_in_a_branch_never_stands_for_what_was_said_in_the_one_that_was_left(tmp_path: Path):
    history = messages(0, 100)
    with opened(tmp_path) as session:
        session.sync(history)
        at = next(n for n in range(20, 100) if history[n]["role"] == "tool")
        changed = [*history[:at], {**history[at], "content": "A different output. " * 50}, *history[at + 1 :]]
        session.sync(changed)
        assert session.history() == changed
        number = sum(message["role"] == "tool" for message in history[: at + 1])
        found = [ref for ref in (f"tool_{number:03d}", f"file_{number:03d}") if _recalls(session, ref)]
        assert session.recall(found[0]).startswith("A different output.")


def _recalls(session: Session, ref: str) -> bool:
    try:
        return bool(session.recall(ref))
    except BadSetting:
        return False


def test_a_sliding_window_continues_the_session_that_remembers_more(tmp_path: Path):
    history = messages(0, 60)
    with opened(tmp_path, window=100_000) as session:
        for end in range(10, 61, 5):
            sent = session.sync([SYSTEM, *history[max(0, end - 12) : end]])
        assert session.id == "run"
        assert session.history() == history
        assert sent == [SYSTEM, *history]
        assert sent.sources == (0, *(None if at < 48 else at - 47 for at in range(60)))


def test_other_instructions_are_sent_and_counted_and_do_not_branch(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync([SYSTEM, *messages(0, 10)])
        before = session.usage().tokens
        sent = session.sync([{"role": "system", "content": "Be careful. " * 200}, *messages(0, 10)])
        assert session.id == "run"
        assert sent[0]["content"].startswith("Be careful. Be careful.")
        assert session.usage().tokens > before + 300
        assert session.history() == messages(0, 10)


def test_usage_of_a_reply_says_nothing_of_messages_that_were_put_before_it(tmp_path: Path):
    answer = {"role": "assistant", "content": "Yes."}
    with opened(tmp_path) as session:
        session.sync([other("One.")])
        sent = session.sync(
            [other("One."), *messages(0, 100), answer, other("Next.")],
            usage={"prompt_tokens": 20, "completion_tokens": 5},
        )
        assert sent.report is not None
        assert session.usage().tokens < WINDOW


def test_usage_of_a_reply_to_somebody_else_is_not_taken_for_ours(tmp_path: Path):
    with opened(tmp_path) as session:
        sent = session.sync(messages(0, 100), usage={"prompt_tokens": 300, "completion_tokens": 5})
        assert sent.report is not None
        assert session.usage().tokens < WINDOW


def test_usage_of_a_reply_counts_where_it_follows_what_was_sent(tmp_path: Path):
    answer = {"role": "assistant", "content": "Yes."}
    with opened(tmp_path) as session:
        session.sync([other("One.")])
        session.sync([other("One."), answer], usage={"prompt_tokens": 1_200, "completion_tokens": 5})
        assert session.usage().tokens >= 1_200


def test_a_long_output_that_reasoning_stands_behind_is_sent_as_it_was(tmp_path: Path):
    long = "\n".join(f"line {number} of many" for number in range(4_000))
    call = {"type": "tool_use", "id": "a", "name": "run", "input": {}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": long}]}
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    reply = {"role": "assistant", "content": [thinking, {"type": "text", "text": "Done."}]}
    history = [other("Go."), {"role": "assistant", "content": [call]}, result, reply, other("And now?")]
    with opened(tmp_path, window=200_000, dialect="anthropic") as session:
        assert session.sync(history) == history
    with opened(tmp_path, "seen", window=200_000, dialect="anthropic") as session:
        assert len(str(session.sync(history[:3]))) < len(long)  # nobody has seen it yet


def test_tools_and_system_beside_the_history_are_counted(tmp_path: Path):
    tools = [{"type": "function", "function": {"name": "read", "description": "word " * 400, "parameters": {}}}]
    with opened(tmp_path) as session:
        session.sync(messages(0, 4), tools=tools, system="Be brief. " * 100)
        sections = session.usage().sections
        assert sections.tools > 300
        assert sections.system > 200


def test_a_text_and_one_block_with_it_are_the_same_and_cache_marks_do_not_count(tmp_path: Path):
    history = messages(0, 8, "anthropic")
    marked = deepcopy(history)
    for message in marked:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}]
    with opened(tmp_path, dialect="anthropic") as session:
        session.sync(history)
        sent = session.sync(marked)
        assert session.id == "run"
        assert sent == marked


def test_arguments_of_a_call_that_are_written_in_another_way_are_the_same(tmp_path: Path):
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path":"a","n":1}'}}
    again = {**call, "function": {"name": "read", "arguments": '{"n": 1, "path": "a"}'}}
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    with opened(tmp_path) as session:
        session.sync([other("Go."), {"role": "assistant", "content": None, "tool_calls": [call]}])
        session.sync([other("Go."), {"role": "assistant", "content": None, "tool_calls": [again]}, result])
        assert session.id == "run"


def test_two_pictures_of_one_size_are_not_the_same(tmp_path: Path):
    def picture(letter: str) -> Raw:
        source = {"type": "base64", "media_type": "image/png", "data": letter * 40}
        return {"role": "user", "content": [{"type": "image", "source": source}]}

    with opened(tmp_path, dialect="anthropic") as session:
        session.sync([picture("A")])
        session.sync([picture("B")])
        assert session.id == "run~2"


def test_a_message_that_the_caller_has_changed_in_its_place_is_noticed(tmp_path: Path):
    history = messages(0, 12)
    with opened(tmp_path) as session:
        session.sync(history)
        history[0]["content"] = "Another task."
        sent = session.sync(history)
        assert session.id == "run~2"
        assert sent[0]["content"] == "Another task."


def test_what_is_returned_can_be_changed_without_changing_the_session(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync(messages(0, 6))[0]["content"] = "Changed."
        assert session.sync(messages(0, 6)) == messages(0, 6)


def test_another_program_continues_the_history(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync([SYSTEM, *messages(0, 60)])
        before = session.context()
    with opened(tmp_path) as session:
        assert session.sync([SYSTEM, *messages(0, 60)])[1:] == before
        session.sync([SYSTEM, *messages(0, 64)])
        assert session.history() == messages(0, 64)


def test_a_history_that_grows_costs_no_reading_of_what_is_stored(tmp_path: Path):
    class Counting(SqliteStore):
        read = 0

        def entries(self, *args, **kwargs):
            found = super().entries(*args, **kwargs)
            self.read += len(found)
            return found

        def lineage(self, *args, **kwargs):
            raise AssertionError("the whole lineage was read")

    store = Counting(tmp_path / "sessions.db")
    with opened(store, window=10_000_000) as session:
        session.sync(messages(0, 400))
    with opened(store, window=10_000_000) as session:
        session.sync(messages(0, 400))
        store.read = 0
        for end in range(401, 421):
            session.sync(messages(0, end))
        assert store.read <= 20
    store.close()


def test_appending_and_syncing_can_be_mixed(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append([SYSTEM, *messages(0, 5)])
        sent = session.sync([SYSTEM, *messages(0, 8)])
        assert session.id == "run"
        assert session.history() == [SYSTEM, *messages(0, 8)]
        assert sent == [SYSTEM, *messages(0, 8)]
        assert session.sync(messages(0, 8)) == [SYSTEM, *messages(0, 8)]


def test_secrets_that_are_replaced_do_not_look_like_another_history(tmp_path: Path):
    secret = "sk-ant-api03-" + "Zx81" * 23 + "AA"
    history = [other(f"Use the key {secret} for it."), *messages(0, 7)[1:]]
    with opened(tmp_path, redact_secrets=True) as session:
        session.sync(history)
        sent = session.sync([*history, other("Go on.")])
        assert session.id == "run"
        assert secret not in str(sent)
    with opened(tmp_path, redact_secrets=True) as session:
        session.sync([*history, other("Go on."), {"role": "assistant", "content": "Done."}])
        assert session.id == "run"


def test_two_runs_at_once_never_mix(tmp_path: Path):
    store = connect(f"sqlite:///{tmp_path / 'sessions.db'}")

    def run(name: str) -> list[str]:
        history = messages(0, 20)
        with opened(store) as session:
            for number in range(30):
                history = [
                    *history,
                    other(f"{name} {number}"),
                    {"role": "assistant", "content": f"{name} says {number}"},
                ]
                sent = session.sync(history)
                assert f"{name} says {number}" in str(sent)
                assert session.history() == history
            return [session.id, said(session)]

    with ThreadPoolExecutor(2) as pool:
        (one, left), (two, right) = pool.map(run, ["Ann", "Ben"])
    assert one != two
    assert "Ben" not in left
    assert "Ann" not in right
    store.close()


def test_one_session_object_may_be_used_by_two_threads(tmp_path: Path):
    with opened(tmp_path) as session, ThreadPoolExecutor(4) as pool:
        sent = list(pool.map(lambda number: session.sync([other(f"Talk {number}."), other("Go.")]), range(20)))
    assert [each[0]["content"] for each in sent] == [f"Talk {number}." for number in range(20)]


def test_a_history_that_is_edited_before_each_request_is_warned_of_once(tmp_path: Path, caplog):
    with opened(tmp_path) as session:
        for number in range(8):
            session.sync([other(f"The time is {number}."), *messages(1, 4)])
    assert sum("edits it before each request" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("wrong", ["a text", None, {"role": "user", "content": "Hello."}, 7])
def test_what_is_no_list_is_refused(tmp_path: Path, wrong: object):
    with opened(tmp_path) as session, pytest.raises(BadMessage, match="expected a list"):
        session.sync(wrong)


def test_a_bad_message_is_named_by_its_index_and_nothing_is_written(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync([SYSTEM, *messages(0, 4)])
        for bad in ({"role": "wizard", "content": "x"}, object(), "text"):
            with pytest.raises(BadMessage) as refused:
                session.sync([SYSTEM, *messages(0, 6), bad])
            assert refused.value.index == 7
        assert session.history() == messages(0, 4)


def test_a_history_of_another_provider_is_refused_by_name(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync(messages(0, 8))
        with pytest.raises(BadMessage, match="openai-chat"):
            session.sync([*messages(0, 8), *messages(8, 16, "anthropic")])


@pytest.mark.parametrize("usage", [7, "many", [1]])
def test_usage_that_is_none_is_refused_and_nothing_is_written(tmp_path: Path, usage: object):
    with opened(tmp_path) as session:
        with pytest.raises(BadSetting, match="usage"):
            session.sync(messages(0, 4), usage=usage)
        assert session.history() == []


def test_an_empty_history_is_an_empty_conversation(tmp_path: Path):
    with opened(tmp_path) as session:
        assert session.sync([]) == []


def test_objects_of_an_sdk_are_messages(tmp_path: Path):
    class Said:
        def model_dump(self, **_):
            return {"role": "assistant", "content": "Hello."}

    with opened(tmp_path) as session:
        assert session.sync([other("Hi."), Said()]).sources == (0, 1)
        session.sync([other("Hi."), Said(), other("And now?")])
        assert session.id == "run"


def test_an_async_session_syncs_forks_and_truncates(tmp_path: Path):
    async def run() -> tuple[int, str, str]:
        store = f"sqlite:///{tmp_path / 'sessions.db'}"
        async with await AsyncSession.open("run", window=WINDOW, store=store) as session:
            sent = await session.sync(messages(0, 12))
            async with await session.fork(4, "copy") as copied:
                assert len(await copied.history()) == 4
            await session.truncate(6)
            answer = await session.call("recall", {"id": "turn_001"})
            return len(sent), session.id, answer

    length, name, answer = asyncio.run(run())
    assert (length, name) == (12, "run~2")
    assert "turn_001" in answer


# Branches that are easily mixed up


def reply(text: str) -> Raw:
    return {"role": "assistant", "content": text}


def test_what_somebody_else_says_while_a_compaction_runs_is_not_sent(tmp_path: Path):
    with opened(tmp_path) as ann, opened(tmp_path) as ben:
        ben.sync(messages(0, 10))
        history = messages(0, 60)

        def interrupt(_: object) -> None:
            leave()
            ben.sync([*ann.history(), reply("Ben answers."), other("Ben asks.")])

        leave = ann.bus.subscribe(interrupt, types=("session.compacted",))
        sent = ann.sync(history)
        assert "Ben" not in str(sent)
        assert ann.history() == history
        assert sent.report is not None


def test_options_given_on_opening_hold_for_the_branch_that_is_continued(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync(messages(0, 10))
        session.truncate(6)
    tools = [{"name": "read", "description": "word " * 300, "input_schema": {}}]
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with Session.open("run", window=100_000, model="gpt-5", tools=tools, store=store) as session:
        usage = session.usage()
        assert session.id == "run~2"
        assert usage.budget_tokens > 80_000
        assert usage.sections.tools > 200


def test_the_prompt_is_counted_in_the_branch_that_the_history_belongs_to(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync(messages(0, 10))
        session.sync([*messages(0, 4), other("Another way.")])
        session.sync([{"role": "system", "content": "Be careful. " * 300}, *messages(0, 12)])
        assert session.id == "run"
        assert session.usage().sections.system > 500


def test_instructions_that_are_no_longer_given_are_no_longer_counted(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync([{"role": "system", "content": "Be careful. " * 300}, *messages(0, 4)])
        session.sync(messages(0, 4))
        assert session.usage().sections.system < 5


def test_a_conversation_does_not_expire_while_a_branch_of_it_is_used(tmp_path: Path):
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def today() -> datetime:
        return now

    with opened(tmp_path, clock=today, retention_days=7) as session:
        session.sync(messages(0, 10))
        session.truncate(6)
    for _ in range(12):
        now += timedelta(days=1)
        with opened(tmp_path, clock=today, retention_days=7) as session:
            assert session.id == "run~2"
            session.append(other(f"Day {now:%d}."))


def test_a_window_whose_first_message_repeats_is_still_one_conversation(tmp_path: Path):
    history: list[Raw] = []
    with opened(tmp_path, window=100_000) as session:
        for number in range(10):
            history += [other("continue"), reply(f"answer {number}")]
            session.sync(history[-6:])
        assert session.id == "run"
        assert session.history() == history


def test_another_conversation_that_begins_with_the_last_words_shares_nothing(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync([other("The secret is 17."), reply("ok"), other("hello")])
        sent = session.sync([other("hello")])
        assert sent == [other("hello")]
        assert session.id == "run~2"


def test_a_window_of_one_question_and_its_answer_continues_the_conversation(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync([other("What is this?")])
        session.sync([other("What is this?"), reply("Answer 0."), other("Go on.")])
        session.sync([other("Go on."), reply("Answer 1."), other("Go on.")])
        assert session.id == "run"
        assert len(session.history()) == 5


def test_a_window_goes_on_in_the_branch_that_has_most_of_it(tmp_path: Path):
    with opened(tmp_path, window=100_000) as session:
        session.sync([*messages(0, 20), other("go on"), reply("yes"), other("go on")])
        session.sync([other("Something else."), reply("x"), other("go on"), reply("yes")])
        assert session.id == "run~2"
        session.sync([other("go on"), reply("yes"), other("go on"), reply("more")])
        assert session.id == "run"


def test_a_regenerated_answer_behind_a_window_keeps_what_was_before_the_window(tmp_path: Path):
    history = messages(0, 40)
    with opened(tmp_path, window=100_000) as session:
        for end in range(12, 41, 4):
            session.sync(history[max(0, end - 12) : end])
        sent = session.sync([*history[28:39], reply("Another answer.")])
        assert session.id == "run~2"
        assert session.history() == [*history[:39], reply("Another answer.")]
        assert sent == session.history()
        assert sent.sources == (*(None for _ in range(28)), *range(12))


def test_a_branch_that_was_left_is_continued_although_a_shorter_one_could_be(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync(messages(0, 80))
        session.sync(messages(0, 3))
        assert session.id == "run~2"
        session.sync(messages(0, 84))
        assert session.id == "run"


def test_a_branch_is_not_opened_in_the_place_of_a_session_of_that_id(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync(messages(0, 4))
        session.truncate(2)
    with pytest.raises(BadSetting, match=r"branch of 'run'.*branch='run~2'"):
        opened(tmp_path, "run~2")
    with opened(tmp_path, "run~2", branch="run~2") as session:
        assert session.history() == messages(0, 2)


@pytest.mark.parametrize("wrong", ["nope", "other"])
def test_what_is_no_branch_of_a_conversation_is_refused(tmp_path: Path, wrong: str):
    for name in ("other", "run"):
        with opened(tmp_path, name) as session:
            session.append(other("Hello."))
    with pytest.raises((BadSetting, UnknownSession), match=wrong):
        opened(tmp_path, branch=wrong)
    with pytest.raises(UnknownSession):
        opened(tmp_path, "new", branch="nope")
    with closing(connect(f"sqlite:///{tmp_path / 'sessions.db'}")) as kept:
        assert [row.id for row in kept.sessions()] == ["other", "run"]


def test_names_of_speakers_tell_messages_apart(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync([{**other("yes"), "name": "alice"}])
        sent = session.sync([{**other("yes"), "name": "bob"}])
        assert session.id == "run~2"
        assert session.history() == sent


def test_arguments_that_are_nested_without_end_are_compared_as_text(tmp_path: Path):
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "[" * 100_000}}
    history = [other("Go."), {"role": "assistant", "content": None, "tool_calls": [call]}]
    with opened(tmp_path, window=1_000_000) as session:
        session.sync(history)
        session.sync(history)
        assert session.id == "run"


def _log(folder: Path) -> list[str]:
    found = next(folder.rglob("compaction.json"), None)
    return found.read_text().splitlines() if found else []


def test_the_log_of_a_project_has_every_event_once_however_often_branches_change(tmp_path: Path):
    with opened(tmp_path) as session:
        for number in range(6):
            session.sync([other(f"Talk {number}."), *messages(1, 4)])
        for _ in range(3):
            session.sync([other("Talk 0."), *messages(1, 4)])
            session.sync([other("Talk 5."), *messages(1, 4)])
        session.append(messages(4, 60))
    lines = _log(tmp_path)
    assert len(lines) > 1
    assert len(lines) == len(set(lines))


def test_closing_a_fork_leaves_the_session_as_it_was(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(messages(0, 5))
        session.fork(2).close()
        session.append(messages(5, 80))
    assert _log(tmp_path)


def test_a_fork_of_a_session_that_was_folded_whole_has_its_last_turn(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(messages(0, 80))
        session.compact(target_tokens=50, preserve=0)
        last = session.turns()[-1].id
        with session.fork() as forked:
            assert forked.recall(last) == session.recall(last)
            assert forked.turns()[-1].id == last


# Fork and truncate


def test_a_fork_is_a_session_of_its_own(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(messages(0, 80))
        with session.fork(30, "copy") as copied:
            assert copied.id == "copy"
            assert copied.history() == messages(0, 30)
            copied.append(other("Only here."))
            assert illegal(copied.context()) == []
        assert session.history() == messages(0, 80)
        with session.fork() as whole:
            assert whole.id == "run~2"
            assert whole.history() == messages(0, 80)
            assert whole.context() == session.context()
            assert [fact.content for fact in whole.facts()] == [fact.content for fact in session.facts()]


def test_a_fork_cannot_take_the_id_of_another_session(tmp_path: Path):
    with opened(tmp_path, "taken") as taken, opened(tmp_path) as session:
        taken.append(other("Mine."))
        session.append(messages(0, 4))
        with pytest.raises(SessionExists, match="taken"):
            session.fork(2, "taken")
        assert taken.history() == [other("Mine.")]


@pytest.mark.parametrize("at", [-1, 5, "3", True, 2.0])
def test_a_place_that_is_not_in_the_history_is_refused(tmp_path: Path, at: object):
    with opened(tmp_path) as session:
        session.append(messages(0, 4))
        for go in (session.fork, session.truncate):
            with pytest.raises(BadSetting, match="this session has 4 messages"):
                go(at)
        assert session.id == "run"


def test_a_truncated_session_is_found_by_its_first_id_and_loses_nothing(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(messages(0, 80))
        session.truncate(11)
        assert session.history() == messages(0, 11)
        session.append(other("Another way."))
        name = session.id
    with opened(tmp_path) as session:
        assert session.id == name == "run~2"
        assert session.history() == [*messages(0, 11), other("Another way.")]
    with opened(tmp_path, branch="run") as first:
        assert first.history() == messages(0, 80)


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 37])
def test_a_conversation_can_go_on_from_any_message(tmp_path: Path, at: int):
    with opened(tmp_path) as session:
        session.append(messages(0, 60))
        session.truncate(at)
        assert session.history() == messages(0, at)
        session.append(other("Go on."))
        assert illegal(session.context()) == []
        assert session.context()[-1]["content"] == "Go on."


def test_deleting_a_conversation_deletes_its_branches(tmp_path: Path):
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with opened(tmp_path, "other") as spared:
        spared.append(other("Stay."))
    for delete in (
        lambda session: session.delete(),
        lambda session: session.close() or delete_session("run", store=store),
    ):
        session = opened(tmp_path)
        session.sync(messages(0, 10))
        session.sync([*messages(0, 4), other("Another way.")])
        delete(session)
        with closing(connect(store)) as kept:
            assert [row.id for row in kept.sessions()] == ["other"]


def test_a_branch_that_was_deleted_leaves_the_conversation_where_it_began(tmp_path: Path):
    with opened(tmp_path) as session:
        session.sync(messages(0, 10))
        session.sync([*messages(0, 4), other("Another way.")])
    delete_session("run~2", store=f"sqlite:///{tmp_path / 'sessions.db'}")
    with opened(tmp_path) as session:
        assert session.id == "run"
    with pytest.raises(UnknownSession):
        delete_session("run~2", store=f"sqlite:///{tmp_path / 'sessions.db'}")


def test_branches_in_postgresql(postgres_url: str):
    with Session.open("run", window=WINDOW, store=postgres_url, count_tokens=count) as session:
        for end in range(5, 81, 5):
            session.sync(messages(0, end))
        session.sync([*messages(0, 41), other("Another way.")])
        assert session.id == "run~2"
        assert session.history() == [*messages(0, 41), other("Another way.")]
        session.sync(messages(0, 84))
        assert session.id == "run"
        assert session.verify() == []
        session.delete()


# Any history, in any order


@st.composite
def _moves(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(["grow", "grow", "grow", "rewind", "edit", "again", "new"])
    return draw(st.lists(st.tuples(kinds, st.integers(1, 25)), min_size=1, max_size=10))


@given(moves=_moves(), dialect=st.sampled_from(DIALECTS))
def test_whatever_becomes_of_a_history_what_is_sent_is_legal_and_of_that_history_alone(
    tmp_path_factory, moves, dialect
):
    history, length = list(messages(0, 6, dialect)), 6
    with opened(tmp_path_factory.mktemp("sync"), dialect=dialect) as session:
        for turn, (kind, amount) in enumerate(moves):
            marker = f"marker-{turn}-{amount}"
            if kind == "grow":
                history, length = [*history, *messages(length, length + amount, dialect)], length + amount
            elif kind == "rewind":
                history = history[: max(1, len(history) - amount)]
            elif kind == "edit":
                at = len(history) - 1 - amount % len(history)
                history = [*history[:at], plain("user", marker, dialect), *history[at + 1 :]]
            elif kind == "new":
                history = [plain("user", marker, dialect)]
            sent = session.sync(history)
            assert session.history() == history
            assert illegal(sent, dialect) == []
            assert all(sent[at] == history[source] for at, source in enumerate(sent.sources) if source is not None)
            gone = {f"marker-{n}-{m}" for n, (_, m) in enumerate(moves[:turn]) if f"marker-{n}-{m}" not in str(history)}
            assert not any(each in str(sent) for each in gone)
