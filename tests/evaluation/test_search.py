from __future__ import annotations

from context_compactor.evaluation.expected import SearchQuestion, found_with_search
from context_compactor.evaluation.messages import count_text
from context_compactor.evaluation.search import PlainIndex, passages, plain_search
from tests.evaluation.talks import FILLER, anthropic_talk


def test_the_passage_that_shares_rare_words_comes_first():
    index = PlainIndex(["the cat sat", "the dog ran", "the zebra sat with the cat"])
    assert index.rank("which zebra?") == [2]
    assert index.rank("cat zebra")[0] == 2


def test_an_answer_fits_its_tokens():
    answer = plain_search(anthropic_talk().messages)("price rounding weather report", 300)
    assert 0 < count_text(answer) <= 300


def test_neighbours_come_with_a_hit():
    index = PlainIndex(["alpha", "beta", "gamma", "delta", "epsilon"], neighbours=1)
    assert index.search("epsilon", 4) == "delta\nepsilon"


def test_passages_hold_every_line():
    assert "".join(passages([{"role": "user", "content": FILLER}])).count("weather") == FILLER.count("weather")


def test_a_search_brings_back_what_the_context_lost():
    names = ["roundPriceUp", "lostName"]
    asked = [SearchQuestion("what rounds?", (0,)), SearchQuestion("what else?", (1,))]
    assert (
        found_with_search(names, [False, False], asked, lambda query, _: "roundPriceUp" if "rounds" in query else "")
        == 0.5
    )
    assert found_with_search([], [], [], lambda query, _: query) is None
