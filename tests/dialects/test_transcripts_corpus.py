"""The same over real logs, where they are at hand."""

from __future__ import annotations

import pytest
from msgspec import structs

from context_compactor.dialects.detection import DIALECTS, detect
from context_compactor.dialects.messages import Text
from context_compactor.dialects.transcripts.reader import read_transcript, read_transcripts
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.evaluation.corpus import default_corpus

CORPUS = default_corpus()
FILES = sorted(CORPUS.glob("*.jsonl.gz")) + sorted(CORPUS.glob("raw/*.jsonl.gz"))

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FILES, reason="the corpus is not here")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_conversation_passes_its_dialect(path):
    for transcript in read_transcripts(path):
        messages = DIALECTS[transcript.dialect].parse(transcript.messages)
        assert [message.raw for message in messages] == transcript.messages
        assert all(messages[index].role == "assistant" for index in transcript.usages)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_messages_of_every_conversation_alone_tell_its_dialect(path):
    for transcript in read_transcripts(path):
        assert detect(transcript.messages).name == transcript.dialect, transcript.session_id


def words(transcript: Transcript) -> list[str]:
    """The texts of a conversation, without the remarks of the client about its own commands."""
    messages = DIALECTS[transcript.dialect].parse(transcript.messages)
    texts = [part.text.strip() for message in messages for part in message.parts if isinstance(part, Text)]
    return [text for text in texts if text and not text.startswith(("<local-command-", "<command-name>"))]


@pytest.mark.parametrize("path", sorted(CORPUS.glob("raw/claude_code_*")), ids=lambda path: path.name)
def test_a_claude_code_log_gives_the_conversation_that_was_made_of_it(path):
    log = read_transcript(path)
    made = read_transcript(f"{CORPUS / 'claude_code_entireio.jsonl.gz'}#claude-code/cli/{log.session_id[:8]}")
    assert len(log.messages) == len(made.messages)
    assert (log.compactions, log.model) == (made.compactions, made.model)
    # The conversion does not say for how long the cache was written.
    assert {at: structs.replace(usage, cache_write_hour=0) for at, usage in log.usages.items()} == made.usages
    assert results(log) == results(made)
    # The conversion does not know what the user typed while the agent worked; it stands in the queue alone.
    known = set(words(made))
    assert [text for text in words(log) if text in known] == words(made)


def results(transcript: Transcript) -> list[tuple[str, str]]:
    messages = DIALECTS[transcript.dialect].parse(transcript.messages)
    return [(result.call_id, result.text.replace("[image]", "")) for message in messages for result in message.results]


@pytest.mark.parametrize("path", sorted(CORPUS.glob("raw/codex_*")), ids=lambda path: path.name)
def test_a_codex_rollout_gives_the_conversation_that_was_made_of_it(path):
    log = read_transcript(path)
    made = max(read_transcripts(CORPUS / "codex_agentv.jsonl.gz"), key=lambda other: _shared(log, other))
    assert results(log) == results(made)
    # The conversion made one message of words that follow each other.
    assert "".join("\n".join(words(log)).split()) == "".join("\n".join(words(made)).split())


def _shared(log: Transcript, other: Transcript) -> float:
    ours, theirs = {call for call, _ in results(log)}, {call for call, _ in results(other)}
    return len(ours & theirs) / len(ours | theirs)
