"""Every conversation of the development corpus, when it lies beside the repository."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from context_compactor.dialects.detection import detect
from context_compactor.dialects.legality import find_violations, legal_cuts
from context_compactor.dialects.repair import repair

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "dev"
FILES = sorted(CORPUS.glob("*.jsonl.gz"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FILES, reason="the development corpus is not beside the repository"),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_every_conversation_round_trips_and_can_be_made_legal(path):
    for conversation in conversations(path):
        items = conversation["messages"]
        dialect = detect(items)
        assert dialect.name == {"anthropic": "anthropic", "openai": "openai-chat"}[conversation["schema"]]
        messages = dialect.parse(items)
        assert [message.raw for message in messages] == items
        repaired, log = repair(messages, dialect)
        assert find_violations(repaired, dialect) == []
        assert repair(repaired, dialect) == (repaired, [])
        assert log or repaired == messages
        assert legal_cuts(repaired)[-1] == len(repaired)


def conversations(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            conversation = json.loads(line)
            if conversation.get("messages"):
                yield conversation
