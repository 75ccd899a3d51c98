"""`make bench`: speed, memory and start-up, as ratios of things measured in one run.

With a folder of recorded conversations beside the repository the session nearest to 200,000 tokens is taken, else the
one that ships in examples/. The limits are goals; a busy machine can exceed them, so nothing fails but what is
wrong: a message that is lost, an event that is missed, a session that is left as it was.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from context_compactor import compact
from context_compactor.cli.output import messages_text
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import Media, ToolCall
from context_compactor.dialects.transcripts.reader import read_transcript, read_transcripts
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.evaluation.corpus import default_corpus
from context_compactor.tokens.counting import counter_for
from tools.bench import hooks, load, proxy, server, sessions, tui
from tools.bench.timing import seconds

SHIPPED = Path("examples/demo_session.jsonl.gz")
WANTED_TOKENS = 200_000
LARGE_BYTES = 20 * 10**6


def main() -> int:
    """Measure and print."""
    transcript = _session()
    texts = list(_texts(transcript))
    tokens = sum(counter_for(None).count_many(texts))
    print(f"{transcript.session_id}: {len(transcript.messages):,} messages, {tokens:,} tokens\n", flush=True)
    print_line("compacting to 25 %, times tokenising it once, each in a new process", _speed(), 6)
    print(f"{'the same in a process that has done both before':<68}{_warm_speed(transcript, texts, tokens):8.2f}")
    print_line("ten times the history, times the time", _growth(transcript, tokens), 12)
    print_line("peak memory, times the transcript as JSON", _memory(transcript.messages, tokens // 4), 8)
    if many := _joined(LARGE_BYTES):
        print_line("the same for one of some 20 MB", _memory(many, LARGE_BYTES // 16), 8)
    print_line("start-up of `compactor compact`, seconds over a bare interpreter", _start_up(), 0.25)
    print()
    hooks.bench(print_line, transcript)
    sessions.bench(print_line)
    tui.bench(print_line)
    server.bench(print_line)
    proxy.bench(print_line)
    return load.bench(print_line)


def print_line(what: str, value: float, limit: float) -> None:
    """One figure with its limit."""
    print(f"{what:<68}{value:8.2f}   at most {limit:g}   {'ok' if value <= limit else 'OVER'}", flush=True)


def _speed() -> float:
    """What a user meets: the vocabulary is loaded and the text is new, for both."""
    return min(_timed("compact") for _ in range(3)) / min(_timed("tokenise") for _ in range(3))


def _timed(work: str) -> float:
    return float(_run("-m", "tools.bench.main", work))


def _once(work: str) -> int:
    """Do one thing once and print the seconds it took; for a process of its own."""
    transcript = _session()
    texts = list(_texts(transcript))
    size = sum(map(len, texts))
    start = time.perf_counter()
    if work == "compact":
        compact(transcript.messages, target_tokens=size // 15)
    else:
        counter_for(None).count_many(texts)
    print(time.perf_counter() - start)
    return 0


def _warm_speed(transcript: Transcript, texts: list[str], tokens: int) -> float:
    tokenise = seconds(lambda: counter_for(None).count_many(texts))
    return seconds(lambda: compact(transcript.messages, target_tokens=tokens // 4)) / tokenise


def _growth(transcript: Transcript, tokens: int) -> float:
    """The time for the whole over the time for its first tenth, scaled to exactly ten times the tokens."""
    tenth, weight = _first_tenth(transcript, tokens)
    whole = seconds(lambda: compact(transcript.messages, target_tokens=tokens // 4))
    part = seconds(lambda: compact(tenth, target_tokens=max(1, weight // 4)))
    return whole / part * 10 / (tokens / weight)


def _first_tenth(transcript: Transcript, tokens: int) -> tuple[list[dict[str, object]], int]:
    for end in range(1, len(transcript.messages) + 1):
        part = transcript.messages[:end]
        if len(messages_text(part)) * 10 >= len(messages_text(transcript.messages)):
            break
    share = len(messages_text(part)) / len(messages_text(transcript.messages))
    return part, max(1, int(tokens * share))


def _memory(messages: list[dict[str, Any]], target: int) -> float:
    """What Python allocates at its peak, beside the transcript as JSON."""
    compact(messages[:2], target_tokens=1)  # loads what is loaded once
    tracemalloc.start()
    compact(messages, target_tokens=target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / len(messages_text(messages).encode())


def _joined(size: int) -> list[dict[str, Any]]:
    """Recorded conversations as one, up to about so many bytes."""
    messages: list[dict[str, Any]] = []
    for transcript in _recorded():
        messages += transcript.messages
        size -= len(messages_text(transcript.messages).encode())
        if size <= 0:
            break
    return messages


def _start_up() -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello"}], file)
        file.flush()
        command = ("-c", "from context_compactor.cli.main import main; main()", "compact", file.name)
        return seconds(lambda: _run(*command), 9) - seconds(lambda: _run("-c", "pass"), 9)


def _run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


def _session() -> Transcript:
    found = list(_recorded())
    if not found:
        return read_transcript(SHIPPED)
    return min(found, key=lambda one: abs(len(messages_text(one.messages)) / 3.7 - WANTED_TOKENS))


def _recorded() -> Iterator[Transcript]:
    for file in sorted(default_corpus().glob("claude_code*.jsonl.gz")):
        yield from read_transcripts(file)


def _texts(transcript: Transcript) -> Iterator[str]:
    for message in find_dialect(transcript.dialect, transcript.messages).parse(transcript.messages):
        for part in message.parts:
            yield part.arguments if isinstance(part, ToolCall) else part.title if isinstance(part, Media) else part.text


if __name__ == "__main__":
    sys.exit(_once(sys.argv[1]) if sys.argv[1:] else main())
