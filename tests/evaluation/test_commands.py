"""The commands, on a corpus of one hand-made conversation."""

from __future__ import annotations

import gzip
import json

import pytest

from context_compactor.evaluation import dialogues, losses, replay, run
from tests.evaluation.talks import record


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "hand.jsonl.gz").write_bytes(gzip.compress(json.dumps(record()).encode()))
    turns = [{"dia_id": f"D1:{n}", "date": "May", "speaker": "AB"[n % 2], "text": f"I like thing{n}"} for n in range(9)]
    asked = [{"question": "Who likes thing4?", "answer": "A", "evidence": ["D1:4"], "category": 4}]
    dialogue = {"id": "d", "turns": turns, "qa": asked}
    (tmp_path / "locomo_dev.jsonl.gz").write_bytes(gzip.compress(json.dumps(dialogue).encode()))
    return ["--corpus", str(tmp_path)]


def test_the_runner_prints_a_row_per_budget_and_writes_json(corpus, capsys, tmp_path):
    out = tmp_path / "scores.json"
    options = ["--method", "keep-last,everything", "--budget", "25,500t", "--sources", "hand", "--jobs", "1"]
    assert run.main([*corpus, *options, "--search", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "## keep-last" in shown
    assert "500t" in shown
    scores = json.loads(out.read_text())
    assert scores["everything"][0]["shares"]["FRR"] == 1.0


def test_prepared_samples_are_kept_for_the_next_run(corpus, tmp_path):
    options = ["--method", "nothing", "--budget", "25", "--sources", "hand", "--jobs", "1"]
    run.main([*corpus, *options])
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("compactor-quality-*/*.pickle")}
    run.main([*corpus, *options])
    assert kept
    assert kept == {path: path.stat().st_mtime_ns for path in tmp_path.glob("compactor-quality-*/*.pickle")}


def test_work_can_be_spread_over_processes(corpus, capsys):
    assert run.main([*corpus, "--method", "keep-last", "--budget", "25,10", "--sources", "hand", "--jobs", "2"]) == 0
    assert "hand" in capsys.readouterr().out


def test_what_was_lost_is_shown_for_one_sample_and_for_all(corpus, capsys):
    options = [*corpus, "--method", "keep-last", "--budget", "10", "--sources", "hand", "--jobs", "1"]
    assert losses.main([*options, "--sample", "hand/shop"]) == 0
    assert "lost" in capsys.readouterr().out
    assert losses.main([*options, "--every", "1"]) == 0
    assert "FRR by kind" in capsys.readouterr().out


def test_dialogues_are_searched(corpus, capsys):
    assert dialogues.main([*corpus, "--tokens", "100"]) == 0
    assert "all 100.0 of 1 questions" in capsys.readouterr().out


def test_a_replay_prints_its_ratio(corpus, capsys):
    assert replay.main([*corpus, "--method", "keep-last", "--sources", "hand", "--jobs", "1"]) == 0
    assert "keep-last" in capsys.readouterr().out
