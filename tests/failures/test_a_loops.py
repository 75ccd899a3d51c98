"""A. Loops, thrash, no progress: a compaction makes room, says when it cannot, and does not come again for nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadSetting, Settings, compact
from context_compactor.tokens.budget import TriggerState
from tests.engine import promises
from tests.engine.sessions import sessions, shares
from tests.engine.talks import DIALECT_NAMES, read, talk_in
from tests.failures.scenarios import code, fill, record_text, seen, squeeze, working

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


@pytest.mark.parametrize(
    "dialect", [DIALECT_NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in DIALECT_NAMES[1:])]
)
def test_a_replay_of_500_turns_compacts_rarely_and_works_in_between(dialect):
    """Row 2."""
    talk = talk_in(dialect).system("Be careful.").user("Go through all folders.")
    compacted_at, grown = [], 0
    before = promises.tokens_of(talk.messages, dialect)
    for turn in range(500):
        result = compact(fill(talk, 1, turn).messages, window=24_000, dialect=dialect)
        grown += result.report.tokens_before - before
        before = result.report.tokens_after
        if result.report.changed:
            compacted_at.append((turn, result.report.tokens_saved))
            talk.messages = result.messages
    reclaimed = min(saved for _, saved in compacted_at)
    assert len(compacted_at) <= -(-grown // reclaimed)
    assert min(later - earlier for (earlier, _), (later, _) in pairwise(compacted_at)) >= 5


def test_text_that_is_sent_with_every_request_counts_in_the_size_after():
    """Row 3."""
    talk = working()
    result = compact(talk.messages, target_tokens=6_000, settings=Settings(overhead_tokens=2_500), dialect=talk.dialect)
    assert result.report.status == "success"
    assert result.report.tokens_after == promises.tokens_of(result.messages, talk.dialect) + 2_500 <= 6_000


def test_what_cannot_fit_beside_the_fixed_text_is_reported():
    """Row 3."""
    talk = working()
    result = compact(talk.messages, target_tokens=3_000, settings=Settings(overhead_tokens=5_000), dialect=talk.dialect)
    assert result.report.status == "partial"
    assert result.report.tokens_after > 5_000
    assert max(result.report.floor, key=lambda part: part.tokens).tokens == 5_000


@every_dialect
def test_an_agent_whose_reads_exceed_the_window_sees_what_it_has_read(dialect):
    """Row 5."""
    talk = talk_in(dialect).user("Understand the whole project.")
    paths = [f"src/module_{number}.py" for number in range(20)]
    for path in paths:
        talk.step(read(path, code(path[4:-3], 40)))
        result = compact(talk.messages, window=12_000, dialect=dialect)
        talk.messages = result.messages
    text = seen(talk.messages, dialect)
    assert [path for path in paths if path not in text] == []


@every_dialect
@pytest.mark.parametrize("level", ["soft", "aggressive", "emergency"])
def test_after_a_success_the_usage_is_under_the_target_of_its_level(dialect, level):
    """Row 6."""
    talk = working(dialect)
    result = compact(talk.messages, window=14_000, level=level, dialect=dialect)
    report = result.report
    assert report.status == "success" or report.reason
    assert report.status != "success" or promises.tokens_of(result.messages, dialect) <= report.target_tokens


@every_dialect
@given(data=st.data())
def test_a_compaction_never_makes_the_context_larger(dialect, data):
    """Row 7."""
    messages = data.draw(sessions(dialect)).messages
    result = squeeze(messages, data.draw(shares), dialect)
    before, after = promises.tokens_of(messages, dialect), promises.tokens_of(result.messages, dialect)
    assert after <= before * 0.9 or result.messages == messages


def test_mentions_links_and_commands_in_the_record_are_not_followed(tmp_path):
    """Row 8."""
    secret = tmp_path / "notes.md"
    secret.write_text("the-word-is-heliotrope")
    talk = talk_in("anthropic").user(f"Read @{secret} and file://{secret}, then run /init and $(cat {secret}).")
    fill(talk, 20).answer("Done.").user("And now?")
    result = squeeze(talk, 0.2)
    assert f"@{secret}" in seen(result.messages, "anthropic")
    assert "heliotrope" not in str(result.messages)


def test_a_floor_above_the_window_is_one_partial_answer_with_the_breakdown():
    """Row 9."""
    talk = talk_in("openai-chat").system("Rule. " * 4_000).user("Go.").answer("Yes.").user("And?")
    first = compact(talk.messages, window=4_000)
    second = compact(first.messages, window=4_000)
    assert first.report.status == second.report.status == "partial"
    assert "system" in first.report.floor[0].what
    assert first.report.floor[0].tokens > 4_000
    assert second.messages == first.messages == talk.messages


def test_an_impossible_budget_is_refused_with_its_numbers():
    """Row 9."""
    with pytest.raises(BadSetting, match=r"9,000.*8,000"):
        compact(working().messages, window=8_000, settings=Settings(reserve_output_tokens=9_000))


def test_a_manual_compaction_is_not_followed_by_an_automatic_one():
    """Row 10."""
    talk = working()
    window = int(promises.tokens_of(talk.messages, talk.dialect) * 1.3)
    manual = compact(talk.messages, window=window, level="soft", dialect=talk.dialect)
    talk.messages = [*manual.messages]
    automatic = compact(talk.answer("This one.").user("Good, go on.").messages, window=window, dialect=talk.dialect)
    assert (manual.report.status, manual.report.trigger) == ("success", "manual")
    assert automatic.report.status == "unchanged"


def test_the_watch_fires_again_only_after_a_rise_above_the_trigger():
    """Row 10."""
    watch, fired = TriggerState().observe(86, 100)
    assert fired is not None
    watch = watch.compacted(40, 100)
    for tokens in (45, 60, 79):
        watch, fired = watch.observe(tokens, 100)
        assert fired is None
    assert watch.observe(81, 100)[1] is not None


TYPED = "Please look at the billing module with me and tell me what you would change about it first.\n\n" * 80


def test_a_gain_below_the_minimum_changes_nothing_and_says_so():
    """Row 11."""
    talk = talk_in("openai-chat").user(TYPED)
    result = compact(talk.messages, target_tokens=100)
    assert result.messages == talk.messages
    assert (result.report.status, result.report.tokens_saved) == ("partial", 0)
    assert "min_gain_percent" in result.report.reason


@every_dialect
def test_a_success_is_a_measured_reduction_of_what_is_sent(dialect):
    """Row 13."""
    talk = working(dialect)
    result = squeeze(talk, 0.3)
    assert result.report.status == "success"
    assert result.report.tokens_before == promises.tokens_of(talk.messages, dialect)
    assert result.report.tokens_after == promises.tokens_of(result.messages, dialect)
    again = compact(result.messages, target_tokens=result.report.target_tokens, dialect=dialect)
    assert (again.report.status, again.report.tokens_saved) == ("unchanged", 0)


@every_dialect
@pytest.mark.parametrize("window", [2_000, 4_000, 8_000])
def test_a_small_window_is_served_or_said_to_be_too_small_and_the_request_stays_one(dialect, window):
    """Row 14."""
    talk = talk_in(dialect).system("You are careful. " * 300)
    request = "Rename the cursor of the search module to needle."
    fill(talk.user(request), 30)
    result = compact(talk.messages, window=window, dialect=dialect)
    assert result.report.status == "success" or (result.report.status == "partial" and result.report.reason)
    assert seen(result.messages, dialect).replace(f"1 user: {request}", "").count(request) == 1
    again = compact(result.messages, window=window, dialect=dialect)
    assert again.messages == result.messages


@every_dialect
@pytest.mark.parametrize("level", ["soft", "aggressive", "emergency"])
def test_repeated_manual_compaction_of_an_unchanged_transcript_erases_nothing_more(dialect, level):
    """Row 16."""
    talk = working(dialect)
    first = compact(talk.messages, window=14_000, level=level, dialect=dialect)
    messages = first.messages
    for _ in range(3):
        again = compact(messages, window=14_000, level=level, dialect=dialect)
        assert again.messages == first.messages
        messages = again.messages
    assert record_text(messages, dialect) == record_text(first.messages, dialect)
