"""The promises over recorded conversations: those that are shipped, and a sample of the corpus where it is at hand.

`COMPACTOR_FULL_CORPUS=1` takes all of them at every target.
"""

from __future__ import annotations

import os
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest

from context_compactor import compact
from context_compactor.dialects.transcripts.reader import read_transcripts
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.dialects.turns import split_turns
from context_compactor.facts.failures import find_failures, merge_failures
from tests.engine import promises

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus" / "dev"
FILES = [
    *sorted(ROOT.glob("examples/*.gz")),
    *(pytest.param(path, marks=pytest.mark.slow) for path in sorted(CORPUS.glob("*.jsonl.gz"))),
]
SHARES = (0.5, 0.25, 0.1, 0.05)
FULL = bool(os.environ.get("COMPACTOR_FULL_CORPUS"))
EVERY = 10

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


@cache
def conversations(path: Path) -> list[Transcript]:
    return list(read_transcripts(path))


def chosen(path: Path, share: float) -> list[Transcript]:
    """Every tenth conversation, each at one of the targets."""
    found = conversations(path)
    if FULL or len(found) == 1:
        return found
    return found[EVERY * SHARES.index(share) :: EVERY * len(SHARES)]


def failures_of(messages: list[dict], dialect: str) -> list[tuple[str, str]]:
    """What was tried in vain, equal attempts once, and the first words of the answer.

    A bare exit code is told in many words.
    """
    failures = merge_failures(find_failures(split_turns(promises.legal(messages, dialect))))
    errors = [failure.detail.partition(" … ")[0] for failure in failures]
    found = ["" if error.startswith("exit code") else error for error in errors]
    return [(failure.content.rstrip("…"), error) for failure, error in zip(failures, found, strict=True)]


def broken(transcript: Transcript, share: float) -> list[str]:
    """The promises that do not hold for one conversation, each with what is wrong."""
    messages, dialect = transcript.messages, transcript.dialect
    target = int(promises.tokens_of(messages, dialect) * share)
    before = deepcopy(messages)
    result = compact(messages, target_tokens=target, dialect=dialect)
    again = compact(result.messages, target_tokens=target, dialect=dialect)
    found = promises.broken(
        legal=promises.illegal(result, dialect),
        fits=promises.misfit(messages, result, target, dialect),
        pins=promises.lost_pins(messages, result, dialect),
        failures=promises.forgotten(failures_of(messages, dialect), result, dialect),
        recall=promises.not_recalled(messages, result, dialect),
        thinking=promises.edited_thinking(messages, result, dialect),
        missing=[str(missing) for missing in result.report.fidelity.missing],
        untouched=[] if messages == before else ["the input was changed"],
        twice=[] if again.messages == result.messages else ["compacting again changed it"],
    )
    return [f"{transcript.session_id}: {promise}: {wrong}" for promise, wrong in found.items()]


@every_file
@pytest.mark.parametrize("share", SHARES)
def test_every_promise_holds_for_real_conversations(path, share):
    assert [wrong for transcript in chosen(path, share) for wrong in broken(transcript, share)] == []


@every_file
def test_a_real_conversation_that_fits_comes_back_unchanged(path):
    for transcript in conversations(path)[:: 1 if FULL else EVERY]:
        result = compact(transcript.messages, target_tokens=10**9, dialect=transcript.dialect)
        assert result.report.status == "unchanged"
        if not result.report.repairs:
            assert result.messages == transcript.messages
