from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadSetting, compact, handoff_text
from context_compactor.measure.tokens import counter_for
from tests.engine.sessions import sessions
from tests.messages.strategies import DIALECT_NAMES, histories

COUNTER = counter_for(None)
FILE = "\n".join(f"def step_{at}(ledger, invoice): return ledger.book(invoice, rate_{at})" for at in range(80))


def bash(number: int, command: str, output: str) -> list[dict]:
    call = {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": "Bash", "arguments": f'{{"command": "{command}"}}'},
    }
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]


def work() -> list[dict]:
    return [
        {"role": "user", "content": "Make retryPolicy in retry.py honour the deadline."},
        *bash(1, "cat src/worker/retry.py", FILE),
        {"role": "assistant", "content": "The root cause is that retryPolicy compares seconds with milliseconds here."},
        {"role": "user", "content": "Never touch the migrations folder. Then add a test for it."},
        *bash(2, "pytest tests/test_retry.py", "E   AssertionError: 3 != 4\n1 failed\nexit code: 1"),
        *bash(3, "sed -i s/seconds/millis/ src/worker/retry.py", ""),
        *bash(4, "grep -n deadline_budget src/worker/retry.py", "41: deadline_budget = policy.total_budget"),
        *bash(5, "grep -n retryPolicy src", "src/worker/retry.py:12: retryPolicy caps every attempt"),
    ]


def test_it_says_what_is_asked_ruled_found_failed_and_changed():
    text = handoff_text(work(), phase="write")
    lines = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
    assert text.startswith("# Handoff: write\n")
    assert "add a test for it" in lines["Task"]
    assert "honour the deadline" in lines["It began with"]
    assert "Never touch the migrations folder" in lines["Rules"]
    assert "root cause" in lines["Decided"]
    assert "pytest tests/test_retry.py" in lines["Failed before"]
    assert "AssertionError: 3 != 4" in lines["Failed before"]
    assert "worker/retry.py" in lines["Changed"]
    assert "(turn_001)" in text


def test_a_name_stands_beside_words_it_stood_with():
    noted = handoff_text(work()).partition("Names, with words they stood with:")[2]
    assert any("deadline_budget" in line and "policy.total_budget" in line for line in noted.split("\n"))


def test_more_tokens_tell_more():
    short, long = (handoff_text(work(), tokens=tokens) for tokens in (120, 400))
    assert COUNTER.count(short) <= 120 < COUNTER.count(long) <= 400


def test_words_that_only_look_like_names_are_not_listed():
    said = "It is IMPORTANT: load 1234 human-readable rows in load_rows."
    talk = [{"role": "user", "content": "Go on, please, as planned."}, {"role": "assistant", "content": said}]
    noted = handoff_text(talk).partition("Names, with words they stood with:")[2]
    assert "load_rows" in noted
    assert not {"IMPORTANT", "human-readable"} & set(noted.partition("More names")[2].split())


def test_what_a_client_says_in_the_user_s_name_is_not_taken_for_the_user_s_words():
    told = "<system-reminder>Use tool_of_the_client.</system-reminder>Fix parse_dates."
    text = handoff_text([{"role": "user", "content": told}])
    assert "parse_dates" in text
    assert "tool_of_the_client" not in text


def test_a_compacted_context_hands_on_what_its_record_says():
    talk = [*work(), *(message for at in range(10, 60) for message in bash(at, f"cat notes_{at}.md", FILE))]
    text = handoff_text(compact(talk, target_tokens=2500).messages)
    assert "honour the deadline" in text
    assert "Never touch the migrations folder" in text
    assert "pytest tests/test_retry.py" in text


def test_nothing_makes_a_bare_heading():
    assert handoff_text([]) == "# Handoff"


@pytest.mark.parametrize("tokens", [0, -5, 99, None, "500"])
def test_too_few_tokens_for_a_text_are_refused(tokens):
    with pytest.raises(BadSetting, match="tokens="):
        handoff_text(work(), tokens=tokens)


def test_a_phase_is_one_short_line():
    first = handoff_text(work(), phase="write\n" + "x" * 5_000).split("\n")[0]
    assert first.startswith("# Handoff: write xxx")
    assert len(first) < 120


@given(sessions("openai-chat"), st.integers(100, 900))
def test_a_text_never_has_more_tokens_than_allowed_and_changes_nothing(session, tokens):
    before = deepcopy(session.messages)
    text = handoff_text(session.messages, tokens=tokens)
    assert COUNTER.count(text) <= tokens
    assert text == handoff_text(session.messages, tokens=tokens)
    assert session.messages == before


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(drawn=st.data())
def test_any_history_of_any_dialect_can_be_handed_on(dialect, drawn):
    messages = drawn.draw(histories(dialect))
    assert COUNTER.count(handoff_text(messages, tokens=300, dialect=dialect)) <= 300
