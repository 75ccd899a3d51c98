"""What `compact` answers to each way of asking."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest

from context_compactor import Settings, UnknownReference, acompact, compact
from tests.engine import promises
from tests.engine.talks import DIALECT_NAMES, Talk, bash, read, talk_in
from tests.failures.scenarios import fill, record_text, squeeze

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def session(dialect: str = "anthropic", rounds: int = 12) -> Talk:
    talk = talk_in(dialect).system("Be careful.").user("Look at every part.")
    for number in range(rounds):
        talk.step(read(f"src/part_{number}.py", f"value_{number} = compute_{number}(key)\n" * 80))
        talk.answer(f"Part {number} computes a value.").user(f"And part {number + 1}?")
    return talk


def window_for_share(talk: Talk, share: float) -> int:
    """A window of whose budget this share is used."""
    tokens = promises.tokens_of(talk.messages, talk.dialect)
    size = round(tokens / share)
    budget = compact(talk.messages, window=size, dialect=talk.dialect, settings=PLAIN).usage.budget_tokens
    return round(size * size / budget)


PLAIN = Settings(reserve_output_tokens=0)


@every_dialect
@pytest.mark.parametrize(
    ("share", "level"), [(0.78, None), (0.82, "soft"), (0.9, "aggressive"), (0.97, "emergency"), (1.4, "emergency")]
)
def test_with_a_window_alone_the_fill_decides_about_the_level(dialect, share, level):
    talk = session(dialect)
    report = compact(talk.messages, window=window_for_share(talk, share), dialect=dialect, settings=PLAIN).report
    assert report.level == level
    assert report.trigger == "threshold"
    assert report.status == ("success" if level else "unchanged")


@every_dialect
def test_a_level_works_at_any_fill_and_is_manual(dialect):
    talk = session(dialect)
    window = window_for_share(talk, 0.6)
    report = compact(talk.messages, window=window, level="aggressive", dialect=dialect, settings=PLAIN).report
    assert (report.trigger, report.level, report.status) == ("manual", "aggressive", "success")


@every_dialect
def test_a_target_wins_over_the_level(dialect):
    talk = session(dialect)
    report = compact(talk.messages, target_tokens=2_000, level="soft", window=10_000, dialect=dialect).report
    assert report.target_tokens == 2_000
    assert report.tokens_after <= 2_000


@every_dialect
def test_the_harder_the_level_the_smaller_the_context(dialect):
    talk = session(dialect)
    sizes = [
        compact(talk.messages, window=9_000, level=level, dialect=dialect).report.tokens_after
        for level in ("soft", "aggressive", "emergency")
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_nothing_to_do_is_an_answer_with_a_reason():
    result = compact(session().messages, window=1_000_000)
    assert result.report.status == "unchanged"
    assert "80%" in result.report.reason
    assert result.report.archived == ()


def test_an_id_that_names_nothing_is_refused_with_the_ids_there_are():
    result = compact(session().messages, target_tokens=1_500)
    with pytest.raises(UnknownReference, match="tool_999") as caught:
        result.recall("tool_999")
    assert "turn_001" in str(caught.value)
    with pytest.raises(UnknownReference, match="nothing was archived"):
        compact(session().messages, window=1_000_000).recall("turn_001")


@every_dialect
def test_what_a_caller_does_to_the_result_reaches_neither_the_input_nor_the_archive(dialect):
    talk = session(dialect)
    before = deepcopy(talk.messages)
    result = compact(talk.messages, target_tokens=1_500, dialect=dialect)
    kept = {item.id: deepcopy(item.value) for item in result.archive}
    for message in result.messages:
        message.clear()
    for message in talk.messages:
        message.clear()
    assert {item.id: item.value for item in result.archive} == kept
    assert promises.parsed(before, dialect)


@every_dialect
def test_the_async_form_gives_the_same(dialect):
    talk = session(dialect)
    result = asyncio.run(acompact(talk.messages, target_tokens=1_500, dialect=dialect))
    assert result.messages == compact(talk.messages, target_tokens=1_500, dialect=dialect).messages


@every_dialect
def test_every_archived_entry_says_what_it_is_and_how_to_get_it_back(dialect):
    result = compact(session(dialect).messages, target_tokens=1_500, dialect=dialect)
    for item in result.report.archived:
        assert item.kind
        assert item.summary
        assert item.location
        assert item.recovery.startswith(f'recall("{item.id}")')


@every_dialect
def test_the_reports_counts_are_those_of_the_messages(dialect):
    talk = session(dialect)
    result = compact(talk.messages, target_tokens=1_500, dialect=dialect)
    report = result.report
    assert (report.messages_before, report.messages_after) == (len(talk.messages), len(result.messages))
    assert report.messages_removed == report.messages_before - report.messages_after
    assert report.tokens_saved == report.tokens_before - report.tokens_after
    assert (
        f"Tokens: {report.tokens_before:,} → {report.tokens_after:,} (saved {report.tokens_saved:,})" in report.short()
    )


def test_a_context_of_running_calls_keeps_them():
    talk = session().answer("I start it.").user("Go.")
    talk.step(bash("make all", None), bash("make docs", None), text="Both at once.")
    result = compact(talk.messages, target_tokens=1_500)
    assert result.messages[-1] == talk.messages[-1]
    assert promises.illegal(result, "anthropic") == []


@every_dialect
def test_a_task_that_is_quoted_is_said_once(dialect):
    talk = fill(talk_in(dialect).user("Port the parser to Rust."), 6).answer("The parser is ported.")
    result = squeeze(fill(talk.user("Now write the changelog for version 2."), 10), 0.2)
    text = record_text(result.messages, dialect)
    assert [text.count(words) for words in ("Port the parser to Rust.", "Now write the changelog")] == [1, 1]
