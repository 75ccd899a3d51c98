"""The part of `make bench` about sessions: does anything get slower as a history grows?"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from context_compactor import Session, Settings
from context_compactor.archive.originals import Original
from context_compactor.archive.search.passages import texts_of
from context_compactor.archive.storage import index_archived, prepare_and_store_items
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.json_values import read_json
from context_compactor.store.connect import connect
from context_compactor.store.rows import MESSAGE
from tools.bench.timing import seconds
from tools.day import SHIPPED, live, stream

FEW, MANY = 100, 100_000
ARCHIVED = 100_000
SESSIONS = 1_000
_AT = "2026-01-01T00:00:00+00:00"

Line = Callable[[str, float, float], None]


def bench(line: Line) -> None:
    """Measure and print, each line with its limit."""
    with tempfile.TemporaryDirectory() as folder:
        _appending(f"sqlite:///{folder}/.compactor/append.db", line)
        _archive(f"sqlite:///{folder}/.compactor/archive.db", line)
        _many(f"sqlite:///{folder}/.compactor/many.db", line)
        day = Path(folder) / "day"
        day.mkdir()
        print("\n".join(live(day, stream(2_000), [700, 1_400]).lines()))


def open_session(session_id: str, store: str) -> Session:
    """A session with so much room that nothing is compacted, and without work in quiet times."""
    return Session.open(session_id, store=store, settings=Settings(window=50_000_000, idle_seconds=0))


def _messages(count: int) -> list[dict[str, Any]]:
    return [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"Message {at} of many. " + "Some more words. " * 8}
        for at in range(count)
    ]


def _appending(store: str, line: Line) -> None:
    times = {}
    for size in (FEW, MANY):
        with open_session(f"session-{size}", store) as session:
            session.append(_messages(size))
            times[size] = statistics.median(_timed(lambda: session.append(_messages(1)[0]), 200))
    line("appending to 100,000 messages, times appending to 100", times[MANY] / times[FEW], 1.5)
    for size in (FEW, MANY // 10):
        with open_session(f"given-{size}", store) as session:
            session.sync(_messages(size))
            session.compact(target_tokens=2_000)
            grown = iter([_messages(size + more) for more in range(1, 41)])
            times[size] = statistics.median(_timed(lambda: session.sync(next(grown)), 40))  # noqa: B023  used at once
    line("syncing one more message of 10,000 that were given, times of 100", times[MANY // 10] / times[FEW], 4)
    rows = connect(store)
    reading = seconds(lambda: [read_json(row.body) for row in rows.entries(f"session-{MANY}", kinds=(MESSAGE,))])
    rows.close()
    line(
        "opening 100,000 messages and their context, times reading them", seconds(lambda: _look(store), 3) / reading, 3
    )


def _look(store: str) -> None:
    with open_session(f"session-{MANY}", store) as session:
        session.context()


def _archive(store: str, line: Line) -> None:
    with open_session("archive", store) as session, open_session("other", store) as other:
        session.append(_messages(2))
        other.append(_messages(2))
        rows, lines = connect(store), session_lines()
        for start in range(0, ARCHIVED, 5_000):
            with rows.writing("archive"):
                rows.archive("archive", prepare_and_store_items(_originals(start, 5_000, lines), rows), _AT)
            index_archived(rows, "archive")
        rows.close()
        refs = [f"tool_{number:03d}" for number in range(1, ARCHIVED, 997)]
        line("recalling one of 100,000 originals, ms", 1000 * _median(session.recall, refs), 5)
        asked = [" ".join(line.split()[:6]) for line in session_lines()[5::97] if len(line.split()) > 3]
        line("searching 100,000 originals, ms", 1000 * _median(session.search, asked[:60]), 50)


def session_lines() -> list[str]:
    """What was said and shown in the session that ships with the repository, line by line."""
    messages = find_dialect("auto", found := read_transcript(SHIPPED).messages).parse(found)
    return [line for text in texts_of(messages) for line in text.splitlines() if len(line) > 20]


def _originals(start: int, count: int, lines: list[str]) -> Iterator[Original]:
    """Originals of six real lines each, no two of them the same."""
    for number in range(start + 1, start + count + 1):
        chosen = [lines[(number * 31 + step * 977) % len(lines)] for step in range(5)]
        text = "\n".join([*chosen, f"run_{number} took {number % 977} ms"])
        ref = f"tool_{number:03d}"
        yield Original(ref, "command output", f"Bash `run {number}`", 30, text, f'recall("{ref}")')


def _many(store: str, line: Line) -> None:
    times = []
    for number in range(SESSIONS):
        start = time.perf_counter()
        with open_session(f"session-{number:04d}", store) as session:
            session.append(_messages(20))
            session.context()
        times.append(time.perf_counter() - start)
    first, last = statistics.median(times[:100]), statistics.median(times[-100:])
    line("a session among 1,000 in one file, times one among the first 100", last / first, 1.5)


def _median(work: Callable[[str], object], arguments: list[str]) -> float:
    return statistics.median(_timed_each(work, arguments))


def _timed_each(work: Callable[[str], object], arguments: list[str]) -> list[float]:
    times = []
    for argument in arguments:
        start = time.perf_counter()
        work(argument)
        times.append(time.perf_counter() - start)
    return times


def _timed(work: Callable[[], object], times: int) -> list[float]:
    return _timed_each(lambda _: work(), [""] * times)
