"""From files to one value, with the harness' own rules in force all the way."""

from __future__ import annotations

import gzip
import json
from importlib.metadata import version as _version

import msgspec
import pytest

from context_compactor.errors import BadInput, BadMessage
from context_compactor.evaluation import runner
from context_compactor.evaluation.methods import read_budgets, read_methods, with_real
from context_compactor.evaluation.results import ALL
from context_compactor.evaluation.runner import EvaluationRequest, evaluate_paths
from context_compactor.evaluation.scoring import MEASURES
from tests.evaluation.talks import SilentProgress, long_messages, record


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two sources: a talk, and one in which a compaction really happened before the edit."""
    place = tmp_path_factory.mktemp("talks")
    messages = long_messages()
    at = next(index for index, message in enumerate(messages) if "guard" in str(message))
    messages[at] = {**messages[at], "usage": {"input": 20_000, "output": 50}}
    events = [{"type": "compaction", "at": at, "summary": "pricing_rules.py: roundPriceUp is to be fixed."}]
    real = record(messages, id="hand/real", events=events)
    (place / "plain.jsonl").write_text(json.dumps(record()))
    (place / "real.jsonl.gz").write_bytes(gzip.compress(json.dumps(real).encode()))
    return place


def evaluated(folder, methods="compactor,everything,nothing", budgets="25", **more):
    return evaluate_paths(
        EvaluationRequest((str(folder),), read_budgets(budgets), read_methods(methods), **more), SilentProgress()
    )


@pytest.fixture(scope="module")
def found(folder):
    return evaluated(folder)


def test_keeping_everything_is_100_and_nothing_is_0_all_the_way(found):
    everything, nothing = found.row("everything", "25"), found.row("nothing", "25")
    assert {everything.shares[name] for name in MEASURES} == {1.0}
    assert {nothing.shares[name] for name in MEASURES} == {0.0}
    assert (everything.shares["1Q"], everything.shares["LEGAL"], everything.shares["CACHE"]) == (1.0, 1.0, 1.0)
    assert nothing.shares["LEGAL"] == 0.0


def test_every_measure_of_ours_has_a_number(found):
    row = found.row("compactor", "25")
    assert all(value is not None for value in row.shares.values())
    assert row.shares["LEGAL"] == row.shares["RESTORE"] == 1.0


def test_the_real_summary_stands_beside_the_methods_at_its_own_size(found):
    assert found.budgets == ("25", "real")
    assert found.row("summary", "real").samples == 1
    assert found.row("summary", "real").shares["SIZE"] == 1.0
    assert found.row("summary", "25") is None


def test_the_handoff_is_measured_beside_a_bare_list_of_names(found):
    row = found.row("handoff", "500t")
    assert row.samples == found.row("name-list", "500t").samples == found.inputs.samples
    assert row.misfits == 0


def test_there_is_no_real_budget_without_a_real_compaction(folder):
    plain = evaluated(folder / "plain.jsonl", methods="keep-last")
    assert plain.budgets == ("25",)
    assert plain.inputs.real == 0
    with pytest.raises(BadInput, match="made by an agent"):
        evaluated(folder / "plain.jsonl", methods="keep-last", budgets="real")


def test_there_is_a_row_for_all_and_for_each_source(found):
    assert found.sources == ("plain", "real")
    assert found.row("compactor", "25", ALL).samples == sum(
        found.row("compactor", "25", source).samples for source in found.sources
    )


def test_losses_add_up_to_the_names_that_were_wanted(found):
    for by in ("shape", "writer", "age"):
        own = [item for item in found.losses if (item.method, item.budget, item.by) == ("compactor", "25", by)]
        others = [item for item in found.losses if (item.method, item.budget, item.by) == ("everything", "25", by)]
        assert sum(item.wanted for item in own) == sum(item.kept for item in others) > 0
        assert all(0 <= item.kept <= item.wanted for item in own)


def test_two_runs_give_the_same_document_whatever_the_jobs(folder, found):
    again = evaluated(folder, jobs=2)
    assert msgspec.json.encode(again.to_dict()) == msgspec.json.encode(found.to_dict())


def test_the_document_says_what_each_measure_means(found):
    document = found.to_dict()
    assert document["version"] == _version("context-compactor")
    assert set(MEASURES) < set(document["measures"])
    assert document["inputs"]["samples"] == found.row("compactor", "25").samples


def test_a_context_that_does_not_fit_is_named_with_the_instructions_that_are_too_large(folder, tmp_path):
    system = {"role": "system", "content": "Mind rule_number_one. " * 2_000}
    chat = [
        {"role": "user", "content": "go"},
        *(
            {"role": role, "content": f"step {index} of the long talk " * 40}
            for index in range(60)
            for role in ("assistant", "user")
        ),
    ]
    (tmp_path / "talk.json").write_text(json.dumps([system, *chat]))
    done = evaluated(tmp_path, methods="trim", budgets="5,5+")
    assert {item.budget for item in done.misfits} == {"5"}
    assert "its instructions alone have" in done.misfits[0].reason
    assert done.row("trim", "5").misfits == done.row("trim", "5").samples


def test_a_method_that_refuses_a_conversation_is_counted_not_fatal(folder, monkeypatch):
    def refuse(*_given):
        raise BadMessage(3, "content", "odd")

    monkeypatch.setattr(runner, "score_sample", refuse)
    done = evaluated(folder, methods="keep-last")
    row = done.row("keep-last", "25")
    assert row.misfits == row.samples
    assert "message 3" in done.misfits[0].reason
    assert row.shares["FRR"] == 0.0


def test_dialogues_alone_are_enough(tmp_path):
    turns = [{"dia_id": f"D1:{n}", "date": "May", "speaker": "AB"[n % 2], "text": f"I like thing{n}"} for n in range(9)]
    asked = [{"question": "Who likes thing4?", "answer": "A", "evidence": ["D1:4"], "category": 4}]
    (tmp_path / "talks.json").write_text(json.dumps({"id": "d", "turns": turns, "qa": asked}))
    done = evaluated(tmp_path, methods="keep-last")
    assert [(row.search, row.questions, row.share) for row in done.dialogues] == [("plain search", 1, 1.0)]


@pytest.mark.parametrize("text", ["0", "101", "abc", "10++", "-5", "1e3", "0t", "", " , "])
def test_a_budget_that_is_none_is_refused(text):
    with pytest.raises(BadInput, match="--budget"):
        read_budgets(text)


def test_budgets_are_read_as_people_write_them():
    assert read_budgets(" 25%, 10+ ,500t,REAL,25") == ("25", "10+", "500t", "real")
    assert with_real(("real", "25"), 3) == ("25", "real")
    assert with_real(("25", "real"), 0) == ("25",)


@pytest.mark.parametrize(
    "text", ["magic", "no.such.module:run", "context_compactor.evaluation.baselines:none", "a:b:c", ","]
)
def test_an_unknown_method_is_refused_with_the_known_ones(text):
    with pytest.raises(BadInput, match="head-and-tail"):
        read_methods(text)


def test_all_six_baselines_are_known():
    known = "keep-last,trim,head-and-tail,truncate-outputs,masking,random-drop"
    assert read_methods(known) == tuple(known.split(","))
