"""The example of the four layers, and the page that shows what it prints."""

from __future__ import annotations

import re
import runpy
import socket
from pathlib import Path
from typing import Any

import pytest

from context_compactor.handoff.orchestrator import POINTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/four-layers.md").read_text(encoding="utf-8")
ANSWER = {
    "task_id": "research-1",
    "phase": "research",
    "status": "complete",
    "decision": "PROCEED",
    "findings": {"notes": "x " * 4_000},
    "context_summary": "JWT auth exists in src/lib/auth.ts.",
    "tokens_used": 15_000,
}


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples/four_layers.py"))


@pytest.fixture(scope="module")
def work(example):
    return example["work_through"]()


def test_the_page_shows_what_the_example_prints(example, work):
    shown = re.search(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    assert shown is not None
    printed = "\n".join(line.rstrip() for line in example["report"](work))
    assert shown[1] == printed, "put what examples/four_layers.py prints into docs/how-to/four-layers.md"


def test_every_layer_saves_and_a_handoff_and_the_state_save_four_fifths(example, work):
    sub_agents, handoff, state, compaction, together = example["layers"](work)
    assert 0.1 < sub_agents.saved < 0.6
    assert handoff.saved > 0.8
    assert state.saved > 0.8
    assert compaction.saved > 0.3
    assert together.saved > 0.5
    assert together.without == sub_agents.without
    assert together.tokens == compaction.tokens


def test_what_the_sub_agents_held_is_less_than_they_reported_and_more_than_they_answered(example, work):
    held = example["work_of_subagents"](work)
    assert sum(work.points.response_tokens) < held < sum(work.points.tokens_used)


def test_summaries_and_state_keep_their_limits_in_the_example(work):
    assert work.points.figures("summary_tokens").max <= 500
    assert work.points.figures("tool_calls").total == 67
    assert [taken.original.value for taken in work.extracted] == [received.raw for received in work.answers]


def test_the_example_needs_no_network(example, monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError("the example opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert len(list(example["report"](example["work_through"]()))) == 7 + 1 + len(POINTS)


def test_the_python_of_the_page_runs():
    names: dict[str, Any] = {"answer": ANSWER}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, names)
    assert names["extracted"].reference.startswith("[archived agent_001: ")
    assert names["extracted"].saving > 0.8
    assert names["request"].references == ("agent_001",)
    assert names["points"].figures("summary_tokens").count == 1
    assert all(f"`{point}`" in PAGE for point in POINTS)
