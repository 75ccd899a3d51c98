"""`make eval`: the page with our goals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.evaluation.talks import record
from tools.quality import evaluate, goals

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_without_a_corpus_it_says_so_and_leaves_the_page_alone(tmp_path, capsys):
    page = tmp_path / "quality.md"
    assert evaluate.main(["--corpus", str(tmp_path / "none"), "--page", str(page)]) == 0
    assert "There is no corpus" in capsys.readouterr().out
    assert not page.exists()


def test_the_page_has_date_command_goals_sources_and_three_contexts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(evaluate, "BUDGETS", "25,10")
    monkeypatch.setattr(evaluate, "DEFAULT_METHODS", ("compactor", "keep-last"))
    events = [{"type": "compaction", "at": 60, "summary": "roundPriceUp is to be fixed."}]
    (tmp_path / "hand.json").write_text(json.dumps(record(events=events)))
    page = tmp_path / "quality.md"
    assert evaluate.main(["--corpus", str(tmp_path), "--page", str(page), "--jobs", "1", "--every", "1"]) == 0
    text = page.read_text()
    assert "`make eval EVERY=1`" in text
    assert "$" not in text.split("## Three contexts")[0]
    for budget in ("25 %", "10 %", "5 %", "the real summary's size"):
        assert f"| 1Q | {budget} |" in text
    assert "| 1Q | 5 % | 93 | not measured |" in text
    assert "### compactor at 25 %" in text
    assert text.count("```text\n") == 3
    assert "roundPriceUp" not in text


def test_every_budget_has_a_goal_for_legality():
    assert all(wanted["LEGAL"] == 100 for wanted in goals.KEPT.values())


def test_the_written_page_is_from_the_template():
    text = (ROOT / "docs" / "quality.md").read_text()
    for heading in (
        line for line in (ROOT / "tools" / "quality" / "page.md").read_text().splitlines() if line[:3] == "## "
    ):
        assert heading in text
