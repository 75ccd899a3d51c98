from __future__ import annotations

import json

from context_compactor.evaluation.scoring import references, restored

HISTORY = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "tool", "tool_call_id": "1", "content": "three"},
]
ARCHIVE = {"turn_001": json.dumps(HISTORY[:2]), "tool_001": "three"}


def test_references_are_read_from_a_context_and_ranges_are_filled():
    assert references('see recall("tool_017"); turn_001 to turn_003') == [
        "tool_017",
        "turn_001",
        "turn_003",
        "turn_002",
    ]


def test_everything_that_can_be_recalled_is_restored():
    context = [{"role": "user", "content": "[turn_001 and tool_001 are archived]"}]
    assert restored(HISTORY, context, ARCHIVE.__getitem__) == 1.0


def test_what_no_reference_leads_to_is_not_restored():
    context = [{"role": "user", "content": "[turn_001 is archived]"}]
    assert restored(HISTORY, context, ARCHIVE.__getitem__) == 2 / 3


def test_a_changed_original_is_not_restored():
    context = [HISTORY[0], HISTORY[1], {"role": "tool", "tool_call_id": "1", "content": "tool_001"}]
    assert restored(HISTORY, context, {"tool_001": "three "}.__getitem__) == 2 / 3
