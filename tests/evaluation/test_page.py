"""The page: whole, readable without a network, and harmless whatever a log is called."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from context_compactor.evaluation.descriptions import MEASURE_DESCRIPTIONS
from context_compactor.evaluation.methods import DEFAULT_METHODS
from context_compactor.evaluation.page import page
from context_compactor.evaluation.plots import PlotBar, Series, bar_plot, line_plot
from context_compactor.evaluation.results import Evaluation, Inputs
from context_compactor.evaluation.runner import EvaluationRequest, evaluate_paths
from context_compactor.markup import element, join, table
from tests.evaluation.talks import SilentProgress, record

VOID = {"meta"}
NASTY = "<script>alert(1)</script>"


class Checked(HTMLParser):
    """Reads a page and notes what is open, what tags there are and where they lead."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    events = [{"type": "compaction", "at": 60, "summary": "roundPriceUp is to be fixed."}]
    nasty = record(events=events, id=NASTY)
    (folder / "a&b<i>.json").write_text(json.dumps(nasty))
    (folder / "broken.json").write_text("{")
    trial = EvaluationRequest((str(folder),), ("10", "25", "10+"), DEFAULT_METHODS)
    return page(evaluate_paths(trial, SilentProgress()), "2026-01-01")


def test_the_page_is_whole_and_needs_nothing_else(text):
    read = Checked(text)
    assert read.open == []
    assert read.links == []
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert "http" not in re.sub(r"\bhttps?\b(?!:)", "", text)


def test_names_from_logs_are_text_and_nothing_else(text):
    assert "<i>" not in text
    assert "a&amp;b&lt;i&gt;" in text


def test_the_page_has_plots_and_the_same_numbers_as_tables(text):
    tags = Checked(text).tags
    assert tags.count("svg") > 10
    assert tags.count("table") > 5
    assert tags.count("caption") == tags.count("table")


def test_every_measure_is_explained(text):
    for name, words in MEASURE_DESCRIPTIONS.items():
        assert f"{name}: {words.title}" in text


def test_the_page_is_made_for_light_and_dark_and_for_a_phone(text):
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text


def test_no_text_of_a_conversation_is_on_the_page(text):
    assert "roundPriceUp" not in text


def test_an_evaluation_with_nothing_in_it_is_a_page_too():
    empty = Evaluation(version="0", budgets=("25",), methods=("trim",), inputs=Inputs(0, 0, 0, 1, 0, 0, 0, 0, 0))
    assert Checked(page(empty)).open == []


def test_elements_escape_what_is_not_markup():
    assert element("b", NASTY, title='"') == f'<b title="&quot;">{join([NASTY])}</b>'
    assert "<script" not in table(NASTY, (NASTY,), [(NASTY,)])


def test_a_plot_of_one_budget_and_of_no_points_can_be_drawn():
    drawn = line_plot("one", [Series("a", 0, ((25.0, 50.0),)), Series("b", 1, ())], [25.0])
    assert Checked(drawn).tags.count("polyline") == 2
    assert "nan" not in bar_plot("bars", [PlotBar("a", 0.0, "0 %")], 0.0)
