"""The five numbers of every report: compression, retention, failed attempts, restoring, what must not be touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_compactor import compact
from context_compactor.messages.transcripts import read_transcript
from context_compactor.report import Metrics
from tests.quality.talks import openai_talk

SHIPPED = Path(__file__).parents[2] / "examples" / "demo_session.jsonl.gz"


@pytest.fixture(scope="module")
def messages():
    return read_transcript(SHIPPED).messages


@pytest.mark.parametrize("target", [3_000, 1_500])
def test_a_compaction_fills_all_five(target):
    report = compact(openai_talk().messages, target_tokens=target).report
    metrics = report.metrics
    assert metrics.shrink_factor == pytest.approx(report.tokens_before / report.tokens_after)
    assert None not in (metrics.retained_share, metrics.failures_share, metrics.recallable_share, metrics.pins_share)


@pytest.mark.parametrize("target", [30_000, 12_000, 4_000])
def test_a_compaction_of_the_shipped_session_fills_what_it_can(messages, target):
    report = compact(messages, target_tokens=target).report
    metrics = report.metrics
    assert metrics.shrink_factor == pytest.approx(report.tokens_before / report.tokens_after)
    assert 0 < (metrics.retained_share or 0) <= 1
    assert 0 < (metrics.failures_share or 0) <= 1
    assert metrics.recallable_share == 1.0
    assert metrics.pins_share is None  # neither instructions nor an unanswered question in it


def test_nothing_done_measures_nothing(messages):
    assert compact(messages, target_tokens=10_000_000).report.metrics == Metrics()


def test_the_docs_name_each_of_them():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "report.md").read_text()
    assert all(f"`{name}`" in page for name in Metrics.__struct_fields__)
