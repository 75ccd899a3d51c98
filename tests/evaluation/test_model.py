"""Ours with a model, measured beside ours without: the same contexts, or ones that say why."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from context_compactor import compact
from context_compactor.engine.report import ModelCall
from context_compactor.errors import BadInput
from context_compactor.evaluation.methods import (
    COMPACTOR,
    WITH_MODEL,
    ModelUse,
    model_use_lines,
    model_use_of,
    model_use_row,
    read_summarizer,
)
from context_compactor.evaluation.page import page
from context_compactor.evaluation.runner import EvaluationRequest, evaluate_paths
from context_compactor.summarize.model import ModelAnswer
from context_compactor.testing import ScriptedModel
from context_compactor.tokens.prices import ModelUsage
from tests.evaluation.models import NAME, good, scripted
from tests.evaluation.talks import SilentProgress, record
from tests.failures.served import says, serving
from tests.llm.formats import FORMATS


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    path = tmp_path_factory.mktemp("talk") / "shop.json"
    path.write_text(json.dumps(record()))
    return str(path)


def evaluated(talk, model, budgets=("25",), methods=(COMPACTOR, "trim")):
    return evaluate_paths(EvaluationRequest((talk,), budgets, methods, summarizer=model), SilentProgress())


def test_a_model_adds_one_method_behind_ours(talk):
    found = evaluated(talk, scripted(good))
    assert found.methods == (COMPACTOR, WITH_MODEL, "trim")
    assert found.model == NAME
    row = found.row(WITH_MODEL, "25")
    assert row.samples == found.row(COMPACTOR, "25").samples
    assert row.shares["LEGAL"] == row.shares["RESTORE"] == 1.0


def test_without_a_model_there_is_none(talk):
    found = evaluated(talk, None)
    assert WITH_MODEL not in found.methods
    assert (found.model, found.model_use) == ("", ())


def test_the_model_of_the_settings_is_not_asked(talk, monkeypatch):
    with serving(says(FORMATS["openai"], "")) as provider:
        monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#nobody")
        assert evaluated(talk, None).row(COMPACTOR, "25").samples
    assert provider.bodies == []


def test_what_became_of_the_summaries_is_counted(talk):
    found = evaluated(talk, scripted(good), ("25", "50"))
    assert [row.budget for row in found.model_use] == ["25", "50"]
    row = found.model_use[0]
    assert row.used == row.compactions > 0
    assert row.outcomes["accepted"] == row.calls > 0
    assert row.shown > row.written > 0
    refused = evaluated(talk, scripted("")).model_use[0]
    assert (refused.used, refused.refused) == (0, {"empty": refused.compactions})


def test_the_cost_is_summed_where_it_is_known(talk, monkeypatch, tmp_path):
    usage = ModelUsage(input=1_000_000, output=0)
    model = ScriptedModel([lambda request: ModelAnswer(text=good(request), stop="complete", usage=usage)], name=NAME)
    assert evaluated(talk, model).model_use[0].cost is None
    monkeypatch.setenv("COMPACTOR_PRICES", json.dumps({NAME: {"input": 2.0, "output": 1.0}}))
    row = evaluated(talk, model).model_use[0]
    assert row.cost == pytest.approx(2.0 * row.calls)


def test_it_is_told_in_two_lines_and_on_the_page(talk):
    found = evaluated(talk, scripted(""))
    first, second = model_use_lines(found.model_use[0])
    assert first.startswith("0 of ")
    assert "empty" in second
    assert "cost unknown" in second
    text = page(found)
    assert f"Summaries by {NAME}" in text
    assert f"with the model {NAME}" in text
    assert "without a network" not in text


def test_a_story_that_was_refused_as_a_whole_says_so():
    report = compact([{"role": "user", "content": "Hello."}], window=1_000).report
    asked = structs.replace(report, model_calls=(ModelCall("m", 10, 5, 1, "accepted"),))
    found = model_use_of(asked)
    assert found == ModelUse("refused as a whole", 1, 10, 5, None, {"accepted": 1})
    assert model_use_of(structs.replace(asked, summarized_by="m")).why == ""
    assert model_use_of(report).why == "not asked"
    assert model_use_row("25", [found, found]).refused == {"refused as a whole": 2}


@pytest.mark.parametrize("name", ["nobody", "openai/", "http://127.0.0.1:9/v1", "openai/gpt-4.1-mini"])
def test_a_model_that_cannot_be_opened_is_refused_before_the_work(name, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(BadInput, match="model"):
        read_summarizer(name)
