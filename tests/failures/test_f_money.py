"""F. Money, cache, media: one change of the prefix per compaction, and pictures weigh tokens and bytes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import Session, Settings, compact
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import find_violations
from context_compactor.engine.compact import run_request
from context_compactor.engine.request import CompactionRequest
from context_compactor.library import estimating_summarizer, summarizer_for
from context_compactor.summarize.model import ModelAnswer
from context_compactor.testing import ScriptedModel
from context_compactor.tokens.models import Price
from context_compactor.tokens.prices import ModelUsage, price_of
from tests.dialects.strategies import picture
from tests.engine import promises
from tests.engine.sessions import sessions, shares
from tests.engine.talks import DIALECT_NAMES, Call, bash, talk_in
from tests.engine.test_model import SHORT
from tests.failures.scenarios import fill, listing, record_text, seen, squeeze, working
from tests.summarize.samples import GOOD

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def common_prefix(before: list[dict], after: list[dict]) -> int:
    """How many messages at the beginning are the same."""
    return next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))


def test_the_agents_own_model_is_not_asked_for_summaries_unless_it_is_named(tmp_path, monkeypatch):
    """Row 81."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    store = f"sqlite:///{tmp_path}/s.db"
    with Session.open("s", window=10_000, store=store, model="claude-opus-5", settings=Settings()) as session:
        session.append(SHORT)
        report = session.compact(level="aggressive")
    assert (report.model_calls, report.summarized_by) == ((), "")


def test_what_a_summary_costs_is_said_before_and_after_and_by_which_model():
    """Row 81."""
    name = "openai/gpt-4.1-mini"
    settings = Settings(summarizer=name)
    asked = CompactionRequest(target_tokens=2_000, settings=settings, model="claude-opus-5")
    before = run_request(SHORT, asked, summarizer=estimating_summarizer(settings), dry_run=True).report
    usage = ModelUsage(input=before.expected.tokens_shown, output=before.expected.tokens_written // 2)
    model = ScriptedModel([ModelAnswer(text=GOOD, stop="complete", usage=usage, model="gpt-4.1-mini")], name=name)
    after = run_request(SHORT, asked, summarizer=summarizer_for(settings, model)).report
    assert before.expected.model == after.summarized_by == name
    assert 0 < after.spent_on_models <= before.expected.cost
    assert after.cost.spent == after.spent_on_models
    assert f"{after.cost.break_even_turns:,} requests" in after.to_markdown()


class Provided:
    """A provider with a prompt cache: what a request shares with the one before is read, the rest is written."""

    def __init__(self, price: Price, dialect: str) -> None:
        self._price = price
        self._dialect = dialect
        self._last: list[dict] = []
        self.paid = 0.0

    def send(self, messages: list[dict]) -> None:
        same = common_prefix(self._last, messages) if self._last else 0
        read = promises.tokens_of(messages[:same], self._dialect)
        written = promises.tokens_of(messages, self._dialect) - read
        self.paid += (read * self._price.cache_read + written * self._price.cache_write) / 1_000_000
        self._last = list(messages)


@every_dialect
def test_in_a_simulated_cache_a_compaction_has_paid_for_itself_when_the_report_says_so(dialect):
    """Row 85."""
    model = "claude-sonnet-4-5"
    price = price_of(model)
    talk = fill(talk_in(dialect).system("Be careful.").user("Go through all folders."), 40)
    with_it, without = Provided(price, dialect), Provided(price, dialect)
    for provider in (with_it, without):
        provider.send(talk.messages)
        provider.paid = 0.0
    result = run_request(talk.messages, CompactionRequest(window=14_000, model=model), dialect=dialect)
    assert result.report.changed
    turns = result.report.cost.break_even_turns
    assert turns >= 1
    for _ in range(turns + 1):  # the report counts whole contexts, the cache whole messages: one request of slack
        with_it.send(result.messages)
        without.send(talk.messages)
    assert with_it.paid <= without.paid


def cleared(messages: list[dict], step: int) -> list[dict]:
    """The outputs of all but the last few steps replaced, as tools do that tidy up on every turn."""
    return [_replaced(raw, listing(12), "[cleared]") for raw in messages[:-step]] + messages[-step:]


@every_dialect
def test_over_a_long_run_it_costs_less_than_clearing_old_outputs_on_every_turn(dialect):
    """Row 85."""
    price = price_of("claude-sonnet-4-5")
    ours, theirs = Provided(price, dialect), Provided(price, dialect)
    talk = talk_in(dialect).system("Be careful.").user("Go through all folders.")
    whole = list(talk.messages)
    compactions = 0
    for turn in range(70):
        had = len(talk.messages)
        fill(talk, 1, turn)
        whole += talk.messages[had:]
        step = 5 * (len(talk.messages) - had)
        result = compact(talk.messages, window=14_000, dialect=dialect)
        compactions += result.report.changed
        talk.messages = result.messages
        ours.send(talk.messages)
        theirs.send(cleared(whole, step))
    assert compactions >= 3
    assert ours.paid < theirs.paid


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


def test_a_summary_without_end_stays_within_its_budget():
    """Row 90."""
    endless = (
        GOOD + "## Findings\n" + "\n".join(f"- value_{n}_{n} is compute_{n}() and more of it" for n in range(4_000))
    )
    model = ScriptedModel([endless, endless, GOOD + "- and so on, and on\n" * 4_000])
    result = compact(SHORT, target_tokens=2_000, summarizer=model, settings=Settings(retry_delay_seconds=0.0))
    assert result.report.status == "success"
    assert result.report.tokens_after <= 2_000
    assert all(request.max_tokens <= 8 * 2_000 + 1_000 for request in model.requests)
    assert len(record_text(result.messages, "openai-chat")) < 12 * 2_000


def test_the_report_has_what_the_provider_really_read_from_and_wrote_to_its_cache():
    """Row 90."""
    usage = ModelUsage(input=400, cache_read=11_000, cache_write=1_200, output=300)
    model = ScriptedModel([ModelAnswer(text=GOOD, stop="complete", usage=usage)], name="anthropic/claude-haiku-4-5")
    (call,) = compact(SHORT, target_tokens=2_000, summarizer=model).report.model_calls
    assert (call.cache_read, call.cache_write, call.tokens_shown) == (11_000, 1_200, 12_600)
    assert call.cost == pytest.approx((400 + 11_000 * 0.1 + 1_200 * 1.25 + 300 * 5) / 1_000_000)


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
    problems = find_violations(DIALECTS["anthropic"].parse(messages), DIALECTS["anthropic"])
    assert {problem.rule for problem in problems} == {"media"}
    result = squeeze(messages, 0.5, "anthropic")
    assert result.report.status in ("success", "partial")
    assert promises.illegal(result, "anthropic") == []
