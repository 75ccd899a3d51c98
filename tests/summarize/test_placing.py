"""A model's summary in the place of the engine's record: within the target, and with what the ledgers know."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from context_compactor import Settings, compact
from context_compactor.dialects.record import (
    FAILED,
    FINDINGS,
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
from context_compactor.summarize.merge import merge_record
from context_compactor.summarize.summary import Summary, parse_summary
from context_compactor.testing import ScriptedModel
from tests.engine.talks import bash, read, talk_in
from tests.summarize.samples import GOOD, count

OWN = Record(
    9,
    900,
    5,
    4,
    (Quote("turn_001", "Add refresh tokens to the login flow.", "active"),),
    {
        RULES: (RecordEntry('"Never touch legacy/." (turn_001)'), RecordEntry('"Keep Node 18." (turn_002)')),
        STANDING: (
            RecordEntry("paths are below /home/me/ or absolute"),
            RecordEntry("src/auth/jwt.ts · edited (turn_003)", "uncommitted"),
            RecordEntry("src/auth/keys.ts · edited (turn_004)", "uncommitted"),
        ),
        FAILED: (RecordEntry("`make lint` → two errors (turn_004)", "open"),),
    },
    (StoryLine(1, "user", "Add refresh tokens to the login flow."), StoryLine(2, "user", "Keep Node 18.")),
    (Excerpt("file_001", "Read a.ts", ("first line",)), Excerpt("file_002", "Read b.ts", ("second line",))),
)
SUMMARY = parse_summary(GOOD)


def merged(room: int, summary: Summary = SUMMARY) -> Record:
    record = merge_record(summary, OWN, room, count)
    assert record is not None
    return record


def test_the_ledgers_add_what_the_summary_does_not_tell_and_nothing_twice():
    record = merged(2_000)
    assert [entry.text for entry in record.sections[RULES]] == [
        '"Never touch legacy/." (turn_001)', '"Keep Node 18." (turn_002)',
    ]  # fmt: skip
    files = [entry.text for entry in record.sections[STANDING] if entry.status == "uncommitted"]
    assert [text.partition(".ts")[0] for text in files] == ["src/auth/jwt", "src/auth/keys"]
    assert OWN.sections[FAILED][0] in record.sections[FAILED]
    assert [line.turn for line in record.happened if line.voice == "user"] == [1, 2]
    assert [excerpt.ref for excerpt in record.excerpts] == ["file_001", "file_002", "turn_003"]


def test_a_failure_is_not_told_by_the_name_of_a_file_that_stands_anywhere():
    failed = RecordEntry(
        "`make lint` → src/auth/jwt_with_refresh_tokens.ts:7:2: unused import → passed in turn 5 (tool_002)", "resolved"
    )
    summary = parse_summary(f"{GOOD}\n## Findings\n- src/auth/jwt_with_refresh_tokens.ts is new (turn_003)\n")
    record = merge_record(summary, structs.replace(OWN, sections=OWN.sections | {FAILED: (failed,)}), 2_000, count)
    assert failed in record.sections[FAILED]


def test_what_only_the_engine_tells_of_what_happened_comes_last():
    line = StoryLine(5, "run", f"`make docs` → built {', '.join(f'page_{n}.md' for n in range(20))}")
    own = structs.replace(OWN, happened=(*OWN.happened, line))
    ample = merge_record(SUMMARY, own, 2_000, count)
    assert line in ample.happened
    for room in range(200, 700, 10):
        record = merge_record(SUMMARY, own, room, count)
        assert record is None or line not in record.happened or record.excerpts == ample.excerpts


def test_the_task_stays_as_it_is_quoted_and_is_not_quoted_twice():
    record = merged(2_000)
    assert record.quotes == OWN.quotes
    assert not any(entry.text.startswith('"Add refresh') for entry in record.sections[TASK])


def test_the_line_about_paths_stays_first():
    assert merged(2_000).sections[STANDING][0] == OWN.sections[STANDING][0]


def test_what_counts_most_has_its_room_before_a_long_summary():
    long = parse_summary(GOOD + "".join(f"## Findings\n- part {n} of src/auth/jwt.ts was read\n" for n in range(200)))
    record = merged(900, long)
    assert any("make lint" in entry.text for entry in record.sections[FAILED])
    assert any("Node 18" in entry.text for entry in record.sections[RULES])


@given(st.integers(0, 2_000))
def test_a_record_has_no_more_tokens_than_its_room(room):
    record = merge_record(SUMMARY, OWN, room, count)
    assert record is None or count(render_record(record)) <= room + 20


def day(steps: int = 14) -> list:
    talk = talk_in("openai-chat").user("Add refresh tokens to the login flow. Never touch legacy/.")
    for step in range(steps):
        talk.step(read(f"src/module_{step}.py", "\n".join(f"value_{step}_{n} = compute_{n}()" for n in range(80))))
        talk.step(bash(f"pytest tests/test_{step}.py", "1 failed\nE   AssertionError", step % 7 == 0))
    return talk.user("Go on with the handler.").messages


OWN_PROMPT = Settings(compact_prompt="Sum up:\n1. KEY DECISIONS\n2. FILE CONTEXT\n{messages}")
OWN_ANSWER = """## KEY DECISIONS
- the login flow gets refresh tokens, legacy/ is not touched
## FILE CONTEXT
- src/module_3.py was read, it has value_3_1
- src/module_4.py was read, it has value_4_1
"""


def record_of(messages: list) -> Record:
    return next(record for raw in messages if (record := parse_record(str(raw["content"]))))


def test_headings_of_ones_own_stand_in_the_record_with_the_ledgers_and_survive_the_next_compaction():
    first = compact(day(), target_tokens=3_000, summarizer=ScriptedModel([OWN_ANSWER]), settings=OWN_PROMPT)
    record = record_of(first.messages)
    assert first.report.summarized_by == "scripted"
    assert "KEY DECISIONS" in record.sections
    assert len(record.sections["FILE CONTEXT"]) == 2
    assert record.sections[FAILED]
    later = compact([*first.messages, *day()[1:]], target_tokens=3_000)
    assert "KEY DECISIONS" in record_of(later.messages).sections


def test_a_second_record_is_written_from_the_first_one():
    first = compact(day(), target_tokens=3_000, summarizer=ScriptedModel([OWN_ANSWER]), settings=OWN_PROMPT)
    model = ScriptedModel([OWN_ANSWER])
    second = compact([*first.messages, *day()[1:]], target_tokens=3_000, summarizer=model, settings=OWN_PROMPT)
    assert "earlier record begins" in model.requests[0].messages[-1].text
    assert "## KEY DECISIONS" in model.requests[0].messages[-1].text
    assert len(record_of(second.messages).sections["KEY DECISIONS"]) == 1
    assert second.report.tokens_after <= 3_000


def test_the_report_says_what_was_mended():
    said = OWN_ANSWER + "- src/never/was.py was read\n"
    report = compact(day(), target_tokens=3_000, summarizer=ScriptedModel([said]), settings=OWN_PROMPT).report
    assert len(report.corrections) == 1
    assert "src/never/was.py" in report.corrections[0]


def test_a_text_of_which_no_line_stands_any_more_is_called_told_by_the_model():
    said = OWN_ANSWER + "\n".join(f"- src/module_{n}.py was read, it has value_{n}_{n}" for n in range(14)) * 2
    result = compact(day(), target_tokens=1_500, summarizer=ScriptedModel([said]), settings=OWN_PROMPT)
    shown = {excerpt.ref for excerpt in record_of(result.messages).excerpts}
    text = [decision for decision in result.decisions if decision.strategy == "summarizer"]
    assert text
    assert all(decision.ref not in shown for decision in text)


def test_what_was_found_stays_found_when_no_model_is_asked_later():
    first = compact(
        day(), target_tokens=3_000, summarizer=ScriptedModel([GOOD.replace("src/auth/jwt.ts", "module_3.py")])
    )
    later = compact([*first.messages, *day(20)[1:]], target_tokens=4_000)
    found = record_of(first.messages).sections.get(FINDINGS, ())
    assert set(found) <= set(record_of(later.messages).sections.get(FINDINGS, ()))
