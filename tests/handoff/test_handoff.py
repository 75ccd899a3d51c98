from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadSetting, compact, handoff_text
from context_compactor.dialects.record import FAILED, FINDINGS, STANDING, Record, RecordEntry, StoryLine, render_record
from context_compactor.facts.ledgers import LedgerLine
from context_compactor.handoff.writer import HandoffMaterial, handover_text
from context_compactor.tokens.counting import counter_for, message_counter_for
from tests.dialects.strategies import DIALECT_NAMES, histories
from tests.engine.sessions import sessions

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
    assert lines["Task"] == '"Make retryPolicy in retry.py honour the deadline."'
    assert lines["Now"] == '"Never touch the migrations folder. Then add a test for it."'
    assert "- The root cause is that retryPolicy compares seconds with milliseconds here." in text.split("\n")
    assert lines["Failed, still open"] == "`pytest tests/test_retry.py` → E AssertionError: 3 != 4"
    assert "worker/retry.py" in lines["Uncommitted"]


def test_a_rule_that_a_quoted_request_tells_is_not_told_again():
    assert handoff_text(work()).count("Never touch the migrations folder.") == 1


def test_more_tokens_tell_more():
    talk = [*work(), *(says(f"Step {at} is done: module_{at} now calls parser_{at}.") for at in range(40))]
    short, long = (handoff_text(talk, tokens=tokens) for tokens in (120, 400))
    assert COUNTER.count(short) <= 120 < COUNTER.count(long) <= 400


def says(text: str) -> dict:
    return {"role": "assistant", "content": text}


def asks(text: str) -> dict:
    return {"role": "user", "content": text}


def test_an_exchange_is_told_by_what_the_user_said_and_what_the_agent_concluded():
    talk = [
        asks("Speed up the importer, please."),
        says("The importer now reads in blocks of 64 KB."),
        asks("Does it still pass on Windows?"),
        says("It failed there because read_block assumes Unix line ends."),
        asks("Now write the release notes."),
    ]
    assert handoff_text(talk).split("\n")[1:] == [
        'Task: "Speed up the importer, please."',
        'Now: "Now write the release notes."',
        "So far:",
        "- The importer now reads in blocks of 64 KB.",
        '- "Does it still pass on Windows?" → It failed there because read_block assumes Unix line ends.',
    ]


@pytest.mark.parametrize(
    "said",
    [
        "Let me look at parse_dates first.",
        "I'm checking parse_dates now.",
        "I searched for parse_dates in the whole folder.",
        "Great, parse_dates is there.",
        "Should I change parse_dates as well?",
        "Changes To Parse_Dates Made",
        "> parse_dates is slow, says the reviewer",
    ],
)
def test_steps_remarks_questions_and_headings_are_not_handed_on(said):
    talk = [asks("Make the importer faster, please."), says(said), asks("Go on with the exporter, please.")]
    assert "parse" not in handoff_text(talk).lower()


def test_a_sentence_is_told_whole_or_not_at_all():
    found = [f"Module_{at} was moved below core, since its tests need the fixtures there." for at in range(90)]
    lines = handoff_text([asks("Move the modules, please."), says(" ".join(found))], tokens=200).split("\n")
    assert all(sentence in found for sentence in lines[-1].removeprefix("- ").replace(". M", ".|M").split("|"))


def test_a_resolved_failure_is_not_handed_on():
    lines = (
        LedgerLine(FAILED, "`make` → error: no rule (tool_002)", 2, True, "resolved"),
        LedgerLine(FAILED, "`make check` → 3 failed (tool_004)", 4, True, "open"),
    )
    text = handover_text(HandoffMaterial(lines), 500, message_counter_for(None, "openai-chat"))
    assert text == "Failed, still open: `make check` → 3 failed"


def test_changed_files_stand_by_folder_with_what_changed_in_them():
    lines = (
        LedgerLine(STANDING, "/app/src/a.py · ~ parse, + def render(page) (×3, file_002)", 5, True, "uncommitted"),
        LedgerLine(STANDING, "/app/src/b.py · edited (file_004)", 4, True, "uncommitted"),
        LedgerLine(STANDING, "/app/c.py · read lines 1-9 (file_005)", 6, False, "read"),
        LedgerLine(STANDING, "/app/d.py · ~ main (file_006)", 3, False, "committed"),
    )
    text = handover_text(HandoffMaterial(lines, root="/app/"), 500, message_counter_for(None, "openai-chat"))
    assert text.split("\n") == ["Uncommitted: in src: a.py (~ parse, + render), b.py", "Committed: d.py"]


def test_what_the_record_found_and_tells_is_handed_on():
    line = StoryLine(3, "agent", "The lexer keeps comments now.")
    found = RecordEntry("Tabs are counted twice in columns. (turn_004)", "finding")
    record = Record(9, 900, 5, 4, sections={FINDINGS: (found,)}, happened=(line,))
    text = handoff_text([asks(render_record(record)), asks("Go on with the printer, please.")])
    assert "- The lexer keeps comments now. Tabs are counted twice in columns." in text.split("\n")


def test_what_a_client_says_in_the_user_s_name_is_not_taken_for_the_user_s_words():
    found = "<system-reminder>Use tool_of_the_client.</system-reminder>Fix parse_dates."
    text = handoff_text([{"role": "user", "content": found}])
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
