"""The five promises, over generated sessions in every dialect and chains of compactions at random targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import Compaction, Settings, compact
from context_compactor.tokens.counting import FunctionCounter, MessageCounter
from tests.dialects.strategies import histories
from tests.engine import promises
from tests.engine.sessions import chains, play, sessions, shares
from tests.engine.talks import DIALECT_NAMES, bash
from tests.waiting import PATIENCE

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)
levels = st.sampled_from((None, "soft", "aggressive", "emergency"))
asks = st.fixed_dictionaries(
    {"level": levels, "window": st.integers(64, 20_000), "focus": st.one_of(st.none(), st.text(max_size=40))}
)
odd_settings = st.builds(
    Settings,
    preserve_recent_turns=st.integers(0, 40),
    tail_share=st.floats(0, 1),
    min_gain_percent=st.floats(0, 100),
    overhead_tokens=st.integers(0, 3_000),
    max_request_bytes=st.one_of(st.none(), st.integers(1, 200_000)),
    reserve_output_tokens=st.one_of(st.none(), st.just(0)),
    max_output_tokens=st.integers(1, 10_000),
)
Link = tuple[list[dict], Compaction, int]


def target_of(messages: list[dict], share: float, dialect: str) -> int:
    return max(1, int(promises.tokens_of(messages, dialect) * share))


def chain(messages: list[dict], targets: list[float], dialect: str) -> list[Link]:
    """Compact again and again; each link is what went in, what came out, and the target."""
    links: list[Link] = []
    for share in targets:
        target = target_of(messages, share, dialect)
        result = compact(messages, target_tokens=target, dialect=dialect)
        links.append((messages, result, target))
        messages = result.messages
    return links


def working(data: st.DataObject, dialect: str, longest: int) -> Iterator[tuple[Link, list[tuple[str, str]]]]:
    """A session in which work goes on between two compactions: each of them, and all that had failed by then."""
    session = data.draw(sessions(dialect))
    messages, failures = list(session.messages), list(session.failures)
    for number, share in enumerate(data.draw(chains(longest))):
        target = target_of(messages, share, dialect)
        result = compact(messages, target_tokens=target, dialect=dialect)
        yield (messages, result, target), failures
        more = data.draw(sessions(dialect, 2, 6))
        messages = [*result.messages, *_renamed(more.messages, number)]
        failures = [*failures, *more.failures]


def _renamed(messages: list[dict], number: int) -> list[dict]:
    """Ids are unique in a session; instructions come first in it and nowhere else."""
    text = json.dumps(messages).replace('"call_0', f'"call{number}_0')
    return [raw for raw in json.loads(text) if raw.get("role") != "system"]


@every_dialect
@given(data=st.data())
def test_after_one_to_five_compactions_the_output_is_legal_fits_or_says_why_not_and_pins_and_thinking_are_byte_equal(
    dialect, data
):
    """Pins are instructions and unanswered words, which stay in place; signed thinking may be absent."""
    for before, result, target in chain(data.draw(sessions(dialect)).messages, data.draw(chains()), dialect):
        wrong = promises.broken(
            legal=promises.illegal(result, dialect),
            fits=promises.misfit(before, result, target, dialect),
            pins=promises.lost_pins(before, result, dialect),
            thinking=promises.edited_thinking(before, result, dialect),
        )
        assert wrong == {}, before


@every_dialect
@given(data=st.data())
def test_a_broken_history_comes_out_legal_fits_or_says_why_not_keeps_its_pins_and_gives_its_originals_back(
    dialect, data
):
    history = data.draw(histories(dialect, min_rounds=2, max_rounds=8))
    links = chain(history, data.draw(chains()), dialect)
    for before, result, target in links:
        problems = promises.illegal(result, dialect)
        wrong = promises.broken(
            legal=[problem for problem in problems if ": media: " not in problem],
            fits=promises.misfit(before, result, target, dialect),
            pins=promises.lost_pins(before, result, dialect),
        )
        assert wrong == {}, before
    assert promises.not_recalled(history, links[0][1], dialect) == []


@every_dialect
@given(data=st.data())
def test_every_setting_and_question_has_an_answer(dialect, data):
    session = data.draw(sessions(dialect))
    asked = data.draw(asks)
    settings = data.draw(odd_settings)
    result = compact(session.messages, dialect=dialect, settings=settings, **asked)
    assert promises.illegal(result, dialect) == []
    assert promises.lost_pins(session.messages, result, dialect) == []
    assert result.report.status in ("success", "partial", "unchanged")
    assert result.report.to_markdown()


@every_dialect
@given(data=st.data())
def test_a_dialect_that_is_not_named_is_found_again_after_each_compaction(dialect, data):
    messages = data.draw(sessions(dialect)).messages
    for share in data.draw(chains(3)):
        result = compact(messages, target_tokens=target_of(messages, share, dialect))
        assert promises.illegal(result, dialect) == []
        assert promises.lost_pins(messages, result, dialect) == []
        messages = result.messages


@every_dialect
@given(data=st.data())
def test_any_way_of_counting_is_kept_to(dialect, data):
    messages, per_token = data.draw(sessions(dialect)).messages, data.draw(st.integers(1, 9))
    counted = MessageCounter(FunctionCounter(lambda text: len(text) // per_token), dialect)
    target = int(counted.request_tokens(promises.parsed(messages, dialect)) * data.draw(shares)) + 1
    result = compact(messages, target_tokens=target, dialect=dialect, count_tokens=lambda text: len(text) // per_token)
    assert result.report.tokens_after == counted.request_tokens(promises.parsed(result.messages, dialect))
    assert result.report.tokens_after <= target or result.report.status == "partial"


@every_dialect
@given(data=st.data())
def test_while_work_goes_on_failures_stay_with_their_errors_nothing_is_missing_and_an_id_means_one_original_for_ever(
    dialect, data
):
    """Every archived id gives its original back, byte for byte, and never another one later."""
    earlier: set[str] = set()
    over: list[tuple[str, str]] = []
    results: list[Compaction] = []
    for (before, result, _), failures in working(data, dialect, 4):
        results.append(result)
        over += promises.resolved(result)
        wrong = promises.broken(
            failures=promises.forgotten(failures, result, dialect, over),
            recall=promises.not_recalled(before, result, dialect, earlier),
            missing=result.report.fidelity.missing,
        )
        assert wrong == {}, before
        earlier |= {archived.id for archived in result.report.archived}
    assert promises.reused(results) == []


@every_dialect
@given(data=st.data())
def test_the_input_is_not_touched(dialect, data):
    messages = data.draw(histories(dialect, min_rounds=2, max_rounds=8))
    before = deepcopy(messages)
    result = compact(messages, target_tokens=target_of(messages, data.draw(shares), dialect), dialect=dialect)
    assert messages == before
    for raw in result.messages:
        raw.clear()
    assert messages == before


@every_dialect
@given(data=st.data())
def test_two_runs_give_the_same_context_and_report(dialect, data):
    messages, share = data.draw(sessions(dialect)).messages, data.draw(shares)
    first, second = (
        compact(messages, target_tokens=target_of(messages, share, dialect), dialect=dialect) for _ in "ab"
    )
    assert first.messages == second.messages
    assert _timeless(first) == _timeless(second)


def _timeless(result: Compaction) -> dict:
    return {key: value for key, value in result.report.to_dict().items() if key not in ("created_at", "duration_ms")}


@every_dialect
@given(data=st.data())
def test_compacting_again_to_the_same_target_changes_nothing(dialect, data):
    messages = data.draw(sessions(dialect)).messages
    target = target_of(messages, data.draw(shares), dialect)
    first = compact(messages, target_tokens=target, dialect=dialect)
    second = compact(first.messages, target_tokens=target, dialect=dialect)
    assert second.messages == first.messages
    assert not second.report.archived


def test_a_long_line_that_stands_as_it_was_is_not_missing_in_pieces():
    dialect = "openai-responses"
    first = [(13, 25220), (7, 760), (7, 3417), (1, 205008), (14, 245375), (12, 2923), (1, 1186480800093852)]
    first += [(11, 16449), (5, 30052949387), (3, 0), (4, 30623589316258), (13, 2706), (5, 70), (1, 0), (3, 21840)]
    second = [(8, 3324), (7, 196589), (10, 66635425), (13, 45442), (5, 1415368985), (13, 32388)]
    third = [(10, 100000001), (12, 79228162514264337593543950335), (1, 883010655839096704)]
    messages: list[dict] = []
    for number, (share, moves, opening) in enumerate([(0.02, first, 332), (0.6, second, 122), (0.6, third, 283)]):
        more = play(dialect, moves, opening).messages
        messages = [*messages, *(_renamed(more, number - 1) if number else more)]
        result = compact(messages, target_tokens=target_of(messages, share, dialect), dialect=dialect)
        assert result.report.fidelity.missing == ()
        messages = result.messages


@every_dialect
@pytest.mark.parametrize("level", ["soft", "aggressive"])
def test_the_last_five_turns_stay_word_for_word_at_soft_and_aggressive(dialect, level):
    talk = play(dialect, [(move, 997 * number) for number in range(9) for move in (1, 2, 7)], 1).talk
    before = len(talk.messages)
    for number in range(5):
        talk.step(bash(f"echo {number}", f"line {number}\n" * 5))
    newest = talk.messages[before:]
    window = int(promises.tokens_of(talk.messages, dialect) * 1.4)
    result = compact(talk.messages, window=window, level=level, dialect=dialect)
    assert result.report.status == "success"
    assert result.messages[-len(newest) :] == newest


SCRIPT = """
import json, sys
from context_compactor import compact
for dialect, messages in json.load(sys.stdin).items():
    result = compact(messages, target_tokens=1200, dialect=dialect)
    print(json.dumps([dialect, result.messages, [archived.id for archived in result.report.archived]]))
"""


def test_two_processes_with_different_hash_seeds_give_the_same_context():
    moves = [(number % 11, 7919 * number**5) for number in range(40)]
    messages = json.dumps({dialect: play(dialect, moves, 5).messages for dialect in DIALECT_NAMES}).encode()
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            input=messages,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            timeout=PATIENCE,
        ).stdout.splitlines()
        for seed in ("1", "2", "3")
    ]
    for dialect, *contexts in zip(DIALECT_NAMES, *outputs, strict=True):
        assert len(set(contexts)) == 1, dialect
