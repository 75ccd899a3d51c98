"""F. Money, cache, media: one change of the prefix per compaction, and pictures weigh tokens and bytes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import Settings, compact
from context_compactor.messages.boundaries import find_problems
from context_compactor.messages.detect import DIALECTS
from tests.engine import promises
from tests.engine.sessions import sessions, shares
from tests.engine.talks import DIALECT_NAMES, Call, bash, talk_in
from tests.failures.scenes import fill, listing, record_text, seen, squeeze, working
from tests.messages.strategies import picture

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def common_prefix(before: list[dict], after: list[dict]) -> int:
    """How many messages at the beginning are the same."""
    return next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))


@every_dialect
def test_below_the_threshold_nothing_is_pruned_and_the_cache_lives(dialect):
    """Row 85."""
    talk = working(dialect)
    result = compact(talk.messages, window=200_000, dialect=dialect)
    assert result.messages == talk.messages
    assert result.report.cache.prefix_tokens_rewritten == 0


@every_dialect
def test_the_report_says_how_much_of_the_prefix_is_kept_and_rewritten(dialect):
    """Row 85."""
    talk = working(dialect)
    result = squeeze(talk, 0.3)
    cache = result.report.cache
    same = common_prefix(talk.messages, result.messages)
    assert cache.prefix_tokens_kept + cache.prefix_tokens_rewritten == result.report.tokens_before
    assert same >= 1
    assert cache.prefix_tokens_kept <= promises.tokens_of(talk.messages[:same], dialect)


@every_dialect
def test_between_two_compactions_the_context_only_grows_at_its_end(dialect):
    """Row 86."""
    talk = talk_in(dialect).system("Be careful.").user("Go through all folders.")
    sent: list[dict] = list(talk.messages)
    for turn in range(120):
        fill(talk, 1, turn)
        result = compact(talk.messages, window=16_000, dialect=dialect)
        if not result.report.changed:
            assert common_prefix(sent, result.messages) == len(sent)
        talk.messages = result.messages
        sent = list(result.messages)


@every_dialect
@given(data=st.data())
def test_one_pass_changes_the_prefix_at_one_place_and_a_second_pass_nowhere(dialect, data):
    """Row 87."""
    messages = data.draw(sessions(dialect)).messages
    target = max(1, int(promises.tokens_of(messages, dialect) * data.draw(shares)))
    first = compact(messages, target_tokens=target, dialect=dialect)
    second = compact(first.messages, target_tokens=target, dialect=dialect)
    assert second.messages == first.messages
    assert second.report.cache.prefix_tokens_rewritten == 0


@every_dialect
def test_shortening_and_folding_are_one_rewrite(dialect):
    """Row 89."""
    talk = talk_in(dialect).user("Go.")
    fill(talk, 30)
    talk.step(bash("cat big.log", listing(2_000)))
    result = compact(talk.messages, window=12_000, dialect=dialect)
    assert result.report.status == "success"
    assert record_text(result.messages, dialect).count("[Context record.") == 1
    again = compact(result.messages, window=12_000, dialect=dialect)
    assert again.report.status == "unchanged"


@every_dialect
def test_the_record_is_never_larger_than_the_target(dialect):
    """Row 90, as far as there is no model."""
    result = squeeze(working(dialect, 30), 0.1)
    assert result.report.status == "success"
    assert len(record_text(result.messages, dialect)) < 12 * result.report.target_tokens


def with_pictures(dialect: str, count: int, size: int) -> list[dict]:
    """A conversation with heavy pictures in results and in the user's words."""
    heavy = base64.b64encode(base64.b64decode(picture(640, 480)) + b"\0" * size).decode()
    talk = talk_in(dialect).user("Look at all pages.")
    for number in range(count):
        talk.step(Call("Screenshot", {"page": number}, f"page {number}", pictures=1))
    text = str(talk.user("And?").messages)
    assert picture(640, 480) in text
    return _replaced(talk.messages, picture(640, 480), heavy)


def _replaced(value, old: str, new: str):
    if isinstance(value, dict):
        return {key: _replaced(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, old, new) for each in value]
    return value.replace(old, new) if isinstance(value, str) else value


@every_dialect
def test_pictures_that_make_a_request_too_large_leave_lines_that_recall_them(dialect):
    """Row 93."""
    messages = with_pictures(dialect, 12, 200_000)
    result = compact(messages, window=200_000, dialect=dialect, settings=Settings(max_request_bytes=1_000_000))
    assert result.report.status == "success"
    assert sum(len(str(raw)) for raw in result.messages) < 1_000_000
    assert "image" in seen(result.messages, dialect)
    assert promises.illegal(result, dialect) == []
    assert promises.not_recalled(messages, result, dialect) == []


@every_dialect
def test_a_request_below_both_limits_keeps_its_pictures(dialect):
    """Row 93."""
    messages = with_pictures(dialect, 3, 1_000)
    assert compact(messages, window=200_000, dialect=dialect).messages == messages


def test_pictures_that_the_provider_takes_only_when_they_are_few_are_found_and_cleared():
    """Row 94."""
    large = picture(2_400, 1_000)
    talk = talk_in("anthropic").user("Look at all pages.")
    for number in range(24):
        talk.step(Call("Screenshot", {"page": number}, f"page {number} {listing(10)}", pictures=1))
    messages = _replaced(talk.user("And?").messages, picture(640, 480), large)
    problems = find_problems(DIALECTS["anthropic"].parse(messages), DIALECTS["anthropic"])
    assert {problem.rule for problem in problems} == {"media"}
    result = squeeze(messages, 0.5, "anthropic")
    assert result.report.status in ("success", "partial")
    assert promises.illegal(result, "anthropic") == []
