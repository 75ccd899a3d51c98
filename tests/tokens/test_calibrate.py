from __future__ import annotations

from itertools import pairwise
from math import isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.tokens.calibration import Calibration, anchored_tokens, known_tokens
from context_compactor.tokens.counting import VocabularyCounter, counter_for

NOT_USAGE = [None, 0, -3, nan, float("inf"), float("-inf"), "12", True, 0.4, [1]]


def replies(offset: float, ratio: float, counts):
    return [(count, round(offset + ratio * count)) for count in counts]


def taught(pairs, **what) -> Calibration:
    calibration = Calibration(**what)
    for counted, reported in pairs:
        calibration = calibration.learn(counted, reported)
    return calibration


def test_before_any_reply_the_count_stands_with_the_margin_of_its_family():
    assert Calibration("claude-opus-4-6").estimate(1_000).tokens == 1_000
    assert Calibration("claude-opus-4-6").estimate(1_000).margin == 0.15
    assert Calibration("claude-opus-4-6").estimate(1_000).upper == 1_150


def test_a_hidden_system_prompt_becomes_the_offset_and_not_the_ratio():
    calibration = taught(replies(30_000, 1.0, [200, 900, 2_500, 4_000, 6_000]), model="claude-opus-4-6")
    assert calibration.ratio == pytest.approx(1.0)
    assert calibration.offset == pytest.approx(30_000)
    assert calibration.estimate(100_000).tokens == pytest.approx(130_000, rel=0.01)


def test_offset_and_ratio_are_learned_apart():
    calibration = taught(replies(27_000, 1.2, range(1_000, 90_000, 3_000)), model="claude-sonnet-4-5")
    assert calibration.ratio == pytest.approx(1.2, rel=0.05)
    assert calibration.offset == pytest.approx(27_000, rel=0.15)
    assert calibration.estimate(120_000).tokens == pytest.approx(171_000, rel=0.02)


def test_a_compaction_in_between_does_not_disturb_it():
    before, after = [1_000, 40_000, 90_000], [20_000, 24_000, 30_000]
    calibration = taught(replies(30_000, 1.1, before + after), model="claude-opus-4-6")
    assert calibration.estimate(60_000).tokens == pytest.approx(96_000, rel=0.02)


def test_one_wrong_report_does_not_spoil_it():
    pairs = replies(30_000, 1.0, range(1_000, 40_000, 2_000))
    pairs[9] = (pairs[9][0], 400_000)
    pairs[-2] = (pairs[-2][0], 90)
    calibration = taught(pairs, model="claude-opus-4-6")
    assert calibration.estimate(60_000).tokens == pytest.approx(90_000, rel=0.03)


@pytest.mark.parametrize("reported", NOT_USAGE)
def test_usage_that_cannot_be_true_teaches_nothing(reported):
    calibration = taught(replies(5_000, 1.0, [100, 900]))
    assert calibration.learn(1_000, reported) is calibration
    assert calibration.learn(reported, 1_000) is calibration
    assert known_tokens(reported) is None
    assert anchored_tokens(reported, 10) is None


def test_the_gauge_is_the_last_report_plus_what_came_after():
    assert anchored_tokens(150_000, 1_200) == 151_200
    assert anchored_tokens(150_000, 1_000, ratio=1.1) == 151_100
    assert anchored_tokens(1_000, -5_000) == 1


def test_the_margin_shrinks_with_what_is_confirmed_and_grows_with_what_is_new():
    pairs = replies(30_000, 1.0, range(1_000, 60_000, 2_000))
    early, late = taught(pairs[:2], model="claude-opus-4-6"), taught(pairs, model="claude-opus-4-6")
    assert late.estimate(90_000).margin < early.estimate(90_000).margin <= 0.15
    assert late.estimate(60_000).margin < late.estimate(120_000).margin


def test_a_provider_that_reports_nothing_of_the_cache_cannot_pull_the_estimate_to_nothing():
    calibration = taught([(1_000 * n, 12) for n in range(1, 30)])
    assert calibration.estimate(100_000).tokens >= 25_000


def test_a_long_session_forgets_slowly_and_follows_a_change():
    old = replies(20_000, 1.0, range(1_000, 150_000, 1_500))
    new = replies(20_000, 1.3, range(150_000, 600_000, 3_000))
    assert taught(old + new).ratio == pytest.approx(1.3, rel=0.05)


PASSAGES = {
    "en": "The second worker still sees the old schema, so we have to restart it before the migration runs again. ",
    "zh": "第二个工作进程仍然看到旧的数据库结构，所以在再次运行迁移之前我们必须重新启动它，并检查日志。",
    "ja": "二番目のワーカーはまだ古いスキーマを見ているので、移行をもう一度実行する前に再起動しなければなりません。",
    "ko": "두 번째 작업자가 여전히 이전 스키마를 보고 있으므로 마이그레이션을 다시 실행하기 전에 재시작해야 합니다. ",
    "code": "def refresh(self, token: str) -> str:\n    if token.expires_at < now:\n        raise Expired(token.id)\n",
    "json": '{"id": 8812, "status": "failed", "error": {"code": "E_TIMEOUT", "retry": true}, "tags": ["a", "b"]}\n',
}


@pytest.mark.parametrize("vocabulary", ["qwen3", "llama3", "deepseek_v3", "mistral_v3", "gemma3", "llama2"])
@pytest.mark.parametrize("language", PASSAGES)
def test_after_the_first_usage_an_unknown_model_is_within_ten_percent(language, vocabulary):
    ours, theirs = counter_for(None), VocabularyCounter(vocabulary)
    first, later = PASSAGES[language] * 40, PASSAGES[language] * 160
    calibration = Calibration(hidden=False).learn(ours.count(first), theirs.count(first))
    assert calibration.estimate(ours.count(later)).tokens == pytest.approx(theirs.count(later), rel=0.10)


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(-10, 10**7)), max_size=30), st.integers(0, 10**7))
def test_no_reports_make_an_estimate_negative_or_endless(pairs, counted):
    for hidden in (True, False):
        estimate = taught(pairs, hidden=hidden).estimate(counted)
        assert estimate.tokens >= 0
        assert estimate.tokens <= estimate.upper
        assert isfinite(estimate.margin)
        assert 0 < estimate.margin <= 0.25


@given(st.integers(0, 60_000), st.floats(0.7, 1.5), st.lists(st.integers(1_000, 4_000), min_size=40, max_size=60))
def test_steady_reports_are_learned_whatever_the_offset_and_the_ratio(offset, ratio, steps):
    counts = [sum(steps[: n + 1]) for n in range(len(steps))]
    calibration = taught(replies(offset, ratio, counts))
    truth = offset + ratio * (counts[-1] + 3_000)
    assert calibration.estimate(counts[-1] + 3_000).tokens == pytest.approx(truth, rel=0.05)


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=20))
def test_estimates_rise_with_the_count(counts):
    calibration = taught(replies(10_000, 1.1, counts))
    estimates = [calibration.estimate(count).tokens for count in range(0, 500_000, 25_000)]
    assert all(lower <= higher for lower, higher in pairwise(estimates))
