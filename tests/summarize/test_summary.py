"""An answer read into the parts of a record, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.record import (
    EXCERPTS,
    FAILED,
    FINDINGS,
    HAPPENED,
    RULES,
    STANDING,
    TASK,
    Excerpt,
    Quote,
    Record,
    RecordEntry,
    StoryLine,
    parse_record,
    render_record,
)
from context_compactor.summarize.summary import (
    Summary,
    fit_summary,
    from_record,
    merge_summaries,
    parse_summary,
    render_summary,
)
from tests.summarize.samples import GOOD, count

READ = parse_summary(GOOD)


def test_every_part_of_an_answer_has_its_place():
    assert READ.sections[TASK][0] == RecordEntry('"Add refresh tokens to the login flow." (turn_001)')
    assert READ.sections[RULES] == (RecordEntry('"Never touch legacy/." (turn_001)'),)
    assert RecordEntry("the staging secret is missing (turn_005)", "blocked") in READ.sections[STANDING]
    assert READ.sections[FAILED][0].status == "open"
    assert READ.happened[:2] == (
        StoryLine(1, "user", "Add refresh tokens to the login flow. Never touch legacy/."),
        StoryLine(1, "agent", "read src/auth/jwt.ts, added a jti"),
    )
    assert READ.excerpts == (Excerpt("turn_003", "src/auth/jwt.ts", ("return jwt.sign({ ...payload, jti })",)),)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("## Task", TASK),
        ("**Rules and corrections by the user:**", RULES),
        ("### 3. Where things stand", STANDING),
        ("Findings and decisions:", FINDINGS),
        ("# Failed and what came of it", FAILED),
        ("## Something else", FINDINGS),
    ],
)
def test_a_heading_is_known_however_it_is_written(line, title):
    assert list(parse_summary(f"{line}\n- jwt.ts was read").sections) == [title]


@pytest.mark.parametrize("line", ["12 user: yes", "[turn_012] user: yes", "- 12 user: yes", "turn 12: user: yes"])
def test_a_line_of_what_happened_is_known_however_its_turn_is_written(line):
    assert parse_summary(f"## What happened\n{line}").happened == (StoryLine(12, "user", "yes"),)


def test_a_short_reply_keeps_what_it_answers():
    (said, done) = parse_summary('## What happened\n12 user: "1" (cookie or sessions) → cookie').happened
    assert said == StoryLine(12, "user", '"1" (cookie or sessions)')
    assert done == StoryLine(12, "agent", "cookie")


def test_a_turn_at_the_end_of_a_line_is_named_by_its_id():
    said = "## Findings\n- a (turn 12)\n- b (user, turn 3: now)\n- c (turns 1-3)"
    assert [entry.text for entry in parse_summary(said).sections[FINDINGS]] == [
        "a (turn_012)", "b (turn_003)", "c (turns 1-3)",
    ]  # fmt: skip


def test_the_headings_of_ones_own_prompt_are_sections_in_their_order():
    said = "1. KEY DECISIONS:\n- a cookie\n**Code changes**\n- jwt.ts\n- none\n## Task\n- go on"
    assert list(parse_summary(said, own_headings=True).sections) == [TASK, "KEY DECISIONS", "Code changes"]


def test_a_section_of_ones_own_is_read_back_from_the_record():
    sections = {
        FINDINGS: (RecordEntry("a finding"),),
        "KEY DECISIONS": (RecordEntry("a cookie"), RecordEntry("no Redis")),
    }
    record = Record(3, 900, 2, 1, (), sections)
    assert parse_record(render_record(record)) == record


def test_a_summary_survives_the_record():
    record = Record(9, 900, 5, 4, (), READ.sections, READ.happened, READ.excerpts)
    found = parse_record(render_record(record))
    assert found is not None
    assert (found.sections, found.happened) == (READ.sections, READ.happened)
    assert [(excerpt.ref, excerpt.lines) for excerpt in from_record(found).excerpts] == [
        (excerpt.ref, excerpt.lines) for excerpt in READ.excerpts
    ]
    again = parse_summary(render_summary(READ))
    assert (again.sections, again.happened) == (READ.sections, READ.happened)


def test_the_users_task_is_shown_to_the_model_again():
    record = Record(9, 900, 5, 4, (Quote("turn_001", "Add tokens.\nQuickly.", "active"),))
    assert from_record(record).sections[TASK] == (RecordEntry('"Add tokens. / Quickly." (turn_001)'),)


def test_an_earlier_story_is_read_as_findings_and_as_how_things_stand():
    heading = "Story so far (told by a model; the other parts are exact)"
    lines = "- done: rotation\n- earlier next: run it\n- decided: a cookie\n- failed: npm test\n- It began well."
    text = render_record(Record(9, 900, 5, 4)).replace("\n\n[End", f"\n\n## {heading}\n{lines}\n\n[End")
    found = parse_record(text)
    assert found is not None
    assert found.sections == {
        STANDING: (RecordEntry("rotation", "done"), RecordEntry("run it", "next")),
        FINDINGS: (RecordEntry("a cookie"), RecordEntry("It began well.")),
        FAILED: (RecordEntry("npm test"),),
    }


def test_of_two_summaries_the_newer_says_how_things_stand():
    newer = parse_summary("## Where things stand\n- done: all of jwt.ts\n## Findings\n- no Redis")
    both = merge_summaries(READ, newer)
    assert both.sections[STANDING] == newer.sections[STANDING]
    assert both.sections[FINDINGS] == (*READ.sections[FINDINGS], RecordEntry("no Redis"))
    assert both.happened == READ.happened


def test_what_goes_first_are_exact_lines_then_what_was_done_and_the_task_goes_last():
    whole = count(READ.text)
    seen = [fit_summary(READ, most, count)[0] for most in range(whole * 2, 0, -5)]
    assert seen[0] == READ
    assert any(not each.excerpts and each.happened == READ.happened for each in seen)
    assert all(each.sections.get(TASK) for each in seen if each)
    assert not any(each.happened for each in seen if FINDINGS not in each.sections)


TEXTS = st.lists(st.sampled_from(GOOD.split("\n")) | st.text(max_size=80), max_size=30).map("\n".join)


@given(TEXTS, st.booleans())
def test_any_answer_can_be_read_and_comes_back_from_the_record(text, own_headings):
    found = parse_summary(text, own_headings=own_headings)
    record = Record(1, 1, 1, 1, (), found.sections, found.happened)
    assert HAPPENED not in found.sections
    assert EXCERPTS not in found.sections
    assert parse_record(render_record(record)) is not None


@given(TEXTS, st.integers(0, 400))
def test_a_summary_within_its_room_has_no_more_tokens_than_that(text, most):
    fitted, gone = fit_summary(parse_summary(text), most, count)
    assert not fitted or count(fitted.text) <= most
    assert gone or fitted == parse_summary(text)


def test_nothing_is_no_summary():
    assert not Summary()
    assert not parse_summary("")
