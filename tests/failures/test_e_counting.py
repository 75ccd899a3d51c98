"""E. Counting, timing, control: numbers that can be trusted, and nothing done that was not asked for."""

from __future__ import annotations

from math import nan

import pytest

from context_compactor import Settings, compact
from context_compactor.engine.compact import run_request
from context_compactor.engine.request import CompactionRequest
from context_compactor.settings import Level, LevelRule
from context_compactor.tokens.budget import PlateauAlarm, SuggestionCounters, budget_for
from context_compactor.tokens.calibration import Calibration, known_tokens
from context_compactor.tokens.counting import MessageCounter, counter_for
from context_compactor.tokens.models import Window, window_for
from context_compactor.tokens.overflow import is_overflow, limit_in
from tests.engine import promises
from tests.engine.talks import DIALECT_NAMES, bash, talk_in
from tests.failures.scenarios import fill, working

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


@pytest.mark.parametrize("reported", [None, 0, -1, nan, "many", True], ids=repr)
def test_usage_that_cannot_be_true_is_unknown_and_the_count_stands(reported):
    """Row 69."""
    assert known_tokens(reported) is None
    assert Calibration().learn(1_000, reported).estimate(1_000).tokens == 1_000


@every_dialect
def test_the_share_is_a_number_for_an_empty_and_a_full_context(dialect):
    """Row 69."""
    for messages in ([], working(dialect).messages):
        usage = compact(messages, window=50_000, dialect=dialect).usage
        assert 0 <= usage.share < 10
        assert usage.tokens == usage.sections.total


def test_a_model_with_a_million_tokens_is_not_compacted_at_200k():
    """Row 70."""
    talk = fill(talk_in("openai-chat").user("Go."), 400)
    tokens = promises.tokens_of(talk.messages, "openai-chat")
    result = run_request(talk.messages, CompactionRequest(model="gpt-4.1"))
    assert window_for("gpt-4.1").tokens > 1_000_000
    assert result.report.status == "unchanged"
    assert run_request(talk.messages, CompactionRequest(window=tokens, model="gpt-4.1")).report.status == "success"


def test_the_window_says_who_told_it_and_an_override_wins():
    """Row 70."""
    assert window_for("claude-sonnet-4-5").source
    assert window_for("claude-sonnet-4-5", 64_000).tokens == 64_000
    assert "set" in window_for("claude-sonnet-4-5", 64_000).source


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
        ("ValidationException: Input is too long for requested model.", None),
        ("prompt token count of 150000 exceeds the limit of 128000", 128_000),
        ("This model's maximum context length is 128,000 tokens.", 128_000),
        ("The number of tokens to keep from the initial prompt is greater than the context length", None),
        ("request (66202 tokens) exceeds the available context size (65536 tokens)", 65_536),
    ],
)
def test_a_rejection_is_recognised_and_its_limit_learned(message, limit):
    """Row 71."""
    assert is_overflow(message)
    assert limit_in(message) == limit
    assert budget_for(Window(400_000, "table"), 8_000).lowered(limit).window.tokens == (limit or 400_000)


def test_a_declared_limit_is_not_overridden_by_a_catalogue():
    """Row 72: a setting, then what was reported, then the table, then an assumption."""
    found = [
        window_for("gpt-4o", 40_000, 90_000).tokens,
        window_for("gpt-4o", None, 90_000).tokens,
        window_for("gpt-4o").tokens,
    ]
    assert found == [40_000, 90_000, 128_000]
    assert window_for("nobody-knows-it").tokens > 0


def test_the_reserved_output_and_the_margin_are_taken_off_the_window():
    """Row 73."""
    budget = budget_for(Window(100_000, "set"), 20_000, 0.1)
    assert budget.tokens == 100_000 - 20_000 - 8_000
    talk = fill(talk_in("openai-chat").user("Go."), 40)
    window = int(promises.tokens_of(talk.messages, "openai-chat") / 0.7)
    reserves = (0, int(window * 0.3))
    found = [
        compact(talk.messages, window=window, settings=Settings(reserve_output_tokens=reserve)).report.status
        for reserve in reserves
    ]
    assert found == ["unchanged", "success"]


def test_staying_near_the_limit_for_many_turns_raises_an_alarm():
    """Row 74."""
    plateau, alarms = PlateauAlarm(turns=10), 0
    for _ in range(30):
        plateau, alarm = plateau.observe(0.93)
        alarms += alarm
    assert alarms == 3
    assert not plateau.observe(0.5)[1]


TEXTS = {
    "en": "The token store keeps every refresh token until it expires or is revoked. ",
    "zh": "令牌存储会保留每个刷新令牌，直到它过期或被撤销。",
    "ja": "トークンストアは、期限切れまたは取り消されるまで更新トークンを保持します。",
    "ko": "토큰 저장소는 만료되거나 취소될 때까지 모든 새로 고침 토큰을 보관합니다. ",
    "code": "def refresh(self, token: str) -> Token:\n    return self.store[token].renew()\n",
    "json": '{"id": 8812, "status": "failed", "error": {"code": "E_TIMEOUT", "after_ms": 341}}\n',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_after_the_first_usage_the_estimate_is_within_ten_percent(text):
    """Row 75: a provider that counts in another way than we do, and one reply of it."""
    ours, theirs = counter_for("claude-sonnet-4-5"), counter_for("gpt-3.5-turbo")
    calibration = Calibration(hidden=False).learn(ours.count(text * 80), theirs.count(text * 80))
    for times in (100, 200, 800):
        estimate = calibration.estimate(ours.count(text * times)).tokens
        assert estimate == pytest.approx(theirs.count(text * times), rel=0.1)


@every_dialect
def test_many_small_results_suggest_a_compaction_and_start_none(dialect):
    """Row 77."""
    talk = talk_in(dialect).user("Go.")
    for number in range(120):
        talk.step(bash(f"echo {number}", str(number)))
    result = compact(talk.messages, window=200_000, dialect=dialect)
    assert result.report.status == "unchanged"
    assert result.messages == talk.messages
    assert SuggestionCounters().observe(result.usage.tool_results, result.usage.files_loaded)[1]


ASKS = [{"target_tokens": 100}, {"level": "emergency", "window": 9_000}, {"window": 4_000}]


@every_dialect
@pytest.mark.parametrize("ask", ASKS, ids=str)
def test_off_means_that_nothing_is_changed_in_any_way(dialect, ask):
    """Row 78."""
    talk = working(dialect)
    result = compact(talk.messages, dialect=dialect, settings=Settings(enabled=False), **ask)
    assert result.messages == talk.messages
    assert result.report.status == "unchanged"
    assert "`enabled`" in result.report.reason


def test_a_threshold_may_be_raised_as_well_as_lowered():
    """Row 78."""
    talk = fill(talk_in("openai-chat").user("Go."), 40)
    window = int(promises.tokens_of(talk.messages, "openai-chat") / 0.85)
    late = Settings(reserve_output_tokens=0, levels=(LevelRule(Level.EMERGENCY, 0.97, 0.15),))
    early = Settings(reserve_output_tokens=0, model_auto_compact_token_limit=1_000)
    found = [
        compact(talk.messages, window=size, settings=settings).report.status
        for size, settings in ((window, late), (2 * window, early), (2 * window, Settings()))
    ]
    assert found == ["unchanged", "success", "unchanged"]


@every_dialect
def test_the_plan_tells_every_target_with_its_reason_and_the_usage_its_forecast(dialect):
    """Row 84."""
    talk = working(dialect)
    result = compact(talk.messages, target_tokens=2_000, dialect=dialect)
    assert all(decision.reason and decision.tier and decision.target for decision in result.decisions)
    counted = MessageCounter(counter_for(None), dialect).request_tokens(promises.parsed(talk.messages, dialect))
    assert sum(decision.tokens_before for decision in result.decisions) == pytest.approx(counted, rel=0.25)
    assert result.usage.turns_left is not None
    assert result.usage.turns_left > 0
