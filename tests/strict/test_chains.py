"""Chains of compactions, generated and recorded: what comes out is legal. `make chains` runs thousands of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.strict.chains import Tally, run_chain, run_recorded
from tests.strict.clients import CLIENTS

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "dev"
EVERY = {"tau_airline_gpt4o": 10, "mini_swe_deepseek_chat": 16, "claude_code_entireio": 31, "locomo_dev": 5}
"""Of the larger files of the corpus every so many conversations."""


def judged(numbers: range) -> Tally:
    tally = Tally(Counter(), [])
    for number in numbers:
        run_chain(number, tally)
    return tally


def test_generated_histories_stay_legal_over_chains_of_compactions():
    tally = judged(range(60))
    assert tally.wrong == []
    for client in CLIENTS:
        assert tally.counts[f"{client.dialect}: success"] > 5
        assert tally.counts[f"{client.dialect}: reasoning kept"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("first", [1_000, 2_000, 3_000, 4_000])
def test_hundreds_of_generated_histories_stay_legal_over_chains_of_compactions(first):
    assert judged(range(first, first + 200)).wrong == []


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not at hand")
@pytest.mark.parametrize("name", EVERY)
def test_recorded_conversations_stay_legal_over_chains_of_compactions(name):
    tally = Tally(Counter(), [])
    run_recorded(CORPUS / f"{name}.jsonl.gz", tally, EVERY[name])
    assert tally.wrong == []
