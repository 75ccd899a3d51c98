from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_compactor.messages.record import OPENING, SECTIONS, STORY, Entry, Record, entry_line, parse, render
from context_compactor.summarize.shape import (
    DECISIONS,
    ERRORS,
    HEADINGS,
    NEXT,
    STATE,
    TALE,
    Prose,
    fit_prose,
    from_record,
    merge_prose,
    parse_prose,
    render_prose,
    to_entries,
)
from tests.summarize.scenes import GOOD, count


def recorded(prose: Prose) -> Record:
    return Record(3, 100, 2, 1, sections={STORY: to_entries(prose), "Decisions": (Entry("keep Node 18 (turn_001)"),)})


def test_an_answer_is_read_heading_by_heading():
    prose = parse_prose(GOOD)
    assert list(prose.sections) == list(HEADINGS)
    assert prose.sections[STATE][0] == "done: token rotation in src/auth/jwt.ts"


def test_headings_are_known_however_a_model_dresses_them():
    text = "**State**\n* **Done:** a\n### decisions:\n1. b\n## 3. Next step\n- c\nStory:\n- none\n"
    prose = parse_prose(text)
    assert prose.sections == {STATE: ("done: a",), DECISIONS: ("b",), NEXT: ("c",), TALE: ()}


def test_a_heading_with_nothing_under_it_is_there_and_empty():
    prose = parse_prose("## State\n- none\n- done: none\n## Decisions\n- n/a\n- …\n")
    assert prose.sections == {STATE: (), DECISIONS: ()}
    assert not prose


def test_what_stands_under_no_heading_of_ours_is_not_in_the_prose():
    prose = parse_prose("Sure! Here it is.\n## Plan\n- delete everything\n## State\n- done: a\n")
    assert prose.lines() == ["done: a"]
    assert "delete everything" in prose.strays


def test_reasoning_in_the_answer_is_passed_over():
    assert parse_prose("<think>## State\n- done: x</think>\n## State\n- done: y").lines() == ["done: y"]


def test_the_story_has_a_section_of_its_own_between_the_state_and_the_decisions():
    assert SECTIONS.index("State") + 1 == SECTIONS.index(STORY) == SECTIONS.index("Decisions") - 1


def test_prose_comes_back_from_the_record_as_it_went_in():
    prose = parse_prose(GOOD)
    record = parse(render(recorded(prose)))
    assert from_record(record).sections == prose.sections


@given(st.text(max_size=300))
def test_whatever_a_model_writes_the_record_can_be_read_again(text):
    prose = parse_prose(f"## State\n{text}\n## Story\nIt began.\n{text}")
    record = recorded(prose)
    again = parse(render(record))
    assert again == record
    assert from_record(again).lines()


@given(st.text(max_size=200))
def test_no_line_of_prose_begins_a_line_of_the_record(text):
    shown = render(recorded(parse_prose(f"## Story\n{text}\n{OPENING}\n## Task\n<user turn_001>")))
    assert sum(line.startswith(OPENING) for line in shown.split("\n")) == 1
    assert "\n<user" not in shown


@given(st.text(max_size=400))
def test_a_text_read_twice_is_read_the_same(text):
    prose = parse_prose(text)
    assert parse_prose(render_prose(prose)).lines() == prose.lines()


def test_of_two_proses_the_newer_state_holds_and_nothing_else_is_lost():
    old = Prose({STATE: ("active: a",), DECISIONS: ("use SQLite",), ERRORS: ("`x` failed",)})
    new = Prose({STATE: ("done: a",), DECISIONS: ("Use SQLite.", "use Python 3.11")})
    merged = merge_prose(old, new)
    assert merged.sections[STATE] == ("done: a",)
    assert merged.sections[DECISIONS] == ("Use SQLite.", "use Python 3.11")
    assert merged.sections[ERRORS] == ("`x` failed",)


@given(st.lists(st.sampled_from(list(HEADINGS)), max_size=30), st.integers(0, 200))
def test_prose_is_brought_within_its_budget_line_by_line(headings, most):
    sections: dict[str, tuple[str, ...]] = {}
    for at, heading in enumerate(headings):
        sections[heading] = (*sections.get(heading, ()), f"point {at} " * 3)
    fitted, gone = fit_prose(Prose(sections), most, count)
    assert sum(count(f"- {entry_line(STORY, entry)}\n") for entry in to_entries(fitted)) <= most
    assert len(fitted.lines()) + gone == len(headings)


def test_failures_are_the_last_to_go():
    prose = parse_prose(GOOD)
    fitted, gone = fit_prose(prose, 30, count)
    assert fitted.lines() == list(prose.sections[ERRORS])
    assert gone == len(prose.lines()) - 1
