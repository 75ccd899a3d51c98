from __future__ import annotations

import json

import msgspec
import pytest

from context_compactor.engine.report import (
    Archived,
    Cache,
    Cost,
    Discarded,
    Fidelity,
    FloorPart,
    Missing,
    ModelCall,
    Preserved,
    Report,
    Summarized,
)
from context_compactor.facts.fact import Fact

HEADINGS = [
    "## Compaction Result",
    "### Preserved (Tier 1)",
    "### Summarized (Tier 2)",
    "### Archived (Tier 3)",
    "### Discarded (Tier 4)",
    "### Recovery Instructions",
    "### Checkpoint Update",
]
FIELDS = """status reason trigger level session_id compaction_id created_at duration_ms tokens_before tokens_after
tokens_saved reduction_percent target_tokens messages_before messages_after messages_removed preserved summarized
archived discarded recovery_instructions facts_added fidelity cache cost expected model_calls summarized_by corrections
checkpoint repairs notes metrics floor""".split()


@pytest.fixture
def report() -> Report:
    return Report(
        status="success",
        level="soft",
        tokens_before=161_204,
        tokens_after=38_870,
        messages_before=90,
        messages_after=15,
        messages_removed=76,
        preserved=(Preserved("the task", 120, turn=1, reason="the user's first request"),),
        summarized=(Summarized("tool_003", "test_run", "41 passed, 1 failed", 900, 60),),
        archived=(Archived("file_017", "code", "Read src/a|b.ts", 2310, "memory", 'recall("file_017")'),),
        discarded=(Discarded("tool_009", "code", "Read src/a.ts", 700, "read again in turn 12"),),
        recovery_instructions=('recall("file_017") returns the original',),
        fidelity=Fidelity(10, 4, (Missing("path", "src/x.ts", "tool_002"),)),
        cache=Cache(900, 15_000),
        cost=Cost(0.5, 0.12, 3.0),
        model_calls=(ModelCall("openai/x", 100, 20, 1, "accepted"),),
    )


@pytest.fixture
def idle() -> Report:
    return Report.unchanged("12% of the budget is used", tokens=900, messages=4)


def test_the_short_form_is_the_one_that_every_surface_prints(report):
    assert report.short() == ("Conversation compacted: 76 messages → summary\nTokens: 161,204 → 38,870 (saved 122,334)")


def test_nothing_to_do_is_an_answer_with_a_reason(idle):
    assert idle.short() == "No compaction needed: 12% of the budget is used"
    assert (idle.status, idle.tokens_saved, idle.messages_removed, idle.changed) == ("unchanged", 0, 0, False)


def test_a_failure_says_what_failed(report):
    assert (
        msgspec.structs.replace(report, status="failed", reason="disk full").short() == "Compaction failed: disk full"
    )


def test_what_could_not_be_made_smaller_is_not_called_compacted(report):
    stuck = msgspec.structs.replace(report, status="partial", tokens_after=report.tokens_before, reason="only 2% saved")
    assert stuck.short() == "Not compacted: only 2% saved"
    assert not stuck.changed


def test_the_dictionary_has_exactly_the_documented_fields(report, idle):
    assert list(report.to_dict()) == FIELDS
    assert list(idle.to_dict()) == FIELDS


def test_the_dictionary_is_plain_json_and_reads_back_as_the_same_report(report):
    text = report.to_json()
    assert json.loads(text) == report.to_dict()
    assert msgspec.json.decode(text, type=Report) == report


def test_half_a_character_in_the_conversation_does_not_break_the_report(report):
    changed = msgspec.structs.replace(report, reason="bad \ud800 half")
    assert json.loads(changed.to_json().encode())["reason"] == "bad \ud800 half"


def test_saved_tokens_and_reduction_follow_from_before_and_after(report):
    assert report.to_dict()["tokens_saved"] == 161_204 - 38_870
    assert report.to_dict()["reduction_percent"] == 75.9


def test_an_empty_context_reduces_by_nothing_not_by_nan():
    assert Report.unchanged("empty", tokens=0, messages=0).reduction_percent == 0.0


def test_archived_items_say_where_they_rest_and_how_to_get_them_back(report):
    assert list(report.to_dict()["archived"][0]) == ["id", "kind", "summary", "tokens", "location", "recovery"]


def test_missing_things_say_their_kind_and_value(report):
    assert report.to_dict()["fidelity"]["missing"] == [{"kind": "path", "value": "src/x.ts", "source": "tool_002"}]
    assert "path `src/x.ts`" in report.to_markdown()


def headings(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("#")]


def test_markdown_has_the_fixed_headings_in_their_order(report, idle):
    assert headings(report.to_markdown()) == HEADINGS
    assert headings(idle.to_markdown()) == HEADINGS


def test_markdown_shows_every_item(report):
    shown = report.to_markdown()
    for text in ("the task", "41 passed, 1 failed", "tool_009", 'recall("file_017") returns', "161,204", "75.9%"):
        assert text in shown


def test_text_of_the_conversation_cannot_add_headings_or_table_cells_to_markdown(report):
    hostile = "x\n## Compaction Result\n| a | b |"
    changed = msgspec.structs.replace(
        report,
        preserved=(Preserved(hostile, 1),),
        archived=(Archived("tool_001", "log", hostile, 1, "memory", "recall"),),
        floor=(FloorPart(hostile, 3),),
        reason=hostile,
    )
    shown = changed.to_markdown()
    assert headings(shown) == HEADINGS
    row = next(line for line in shown.splitlines() if line.startswith("| tool_001"))
    assert row.replace("\\|", "").count("|") == 4


def test_a_partial_result_lists_what_could_not_be_shorter(report):
    partial = msgspec.structs.replace(report, status="partial", floor=(FloorPart("system prompt", 9_000),))
    assert "**Cannot be shorter**: system prompt, 9,000 tokens" in partial.to_markdown()


def test_a_report_and_a_fact_with_the_former_name_of_summarized_by_are_read():
    for kind, former in (
        (
            Report,
            {"status": "success", "tokens_before": 9, "tokens_after": 5, "messages_before": 2, "messages_after": 1},
        ),
        (Fact, {"kind": "task", "content": "Sort them.", "turn": 1, "role": "user"}),
    ):
        found = msgspec.json.decode(msgspec.json.encode(former | {"told_by": "some-model"}), type=kind)
        assert (found.summarized_by, msgspec.convert(former, kind).summarized_by) == ("some-model", "")
        assert found == msgspec.convert(former | {"summarized_by": "some-model"}, kind)
        assert b"told_by" not in msgspec.json.encode(found)
        with pytest.warns(DeprecationWarning, match="use summarized_by"):
            assert found.told_by == "some-model"
