"""A day in the life of a session: real messages through a small window, across processes that are killed.

`python -m tools.day child FOLDER COUNT` is one of those processes: it appends what is missing and tells how far it is.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor import Session, Settings
from context_compactor.dialects.transcripts.reader import read_transcripts
from context_compactor.evaluation.corpus import default_corpus

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "examples" / "demo_session.jsonl.gz"
SESSION = "a-day"
WINDOW = 32_000
_WAIT = 0.01

Raw = dict[str, Any]


class Day(Struct, frozen=True):
    """What happened, in figures."""

    messages: int
    processes: int
    kills: int
    compactions: int
    tokens_saved: int
    seconds: float

    def lines(self) -> Iterator[str]:
        """The figures for people."""
        yield f"{self.messages:,} messages through a window of {WINDOW:,} tokens in {self.processes} processes"
        yield f"{self.kills} kills, {self.compactions} compactions, {self.tokens_saved:,} tokens saved"
        yield f"{1000 * self.seconds / self.messages:.1f} ms a message, everything included"


def stream(count: int) -> list[Raw]:
    """So many real messages: recorded sessions one after the other, each with ids of its own."""
    files = sorted(default_corpus().glob("claude_code*.jsonl.gz")) or [SHIPPED]
    found: list[Raw] = []
    number = 0
    while len(found) < count:
        for file in files:
            for transcript in read_transcripts(file):
                number += 1
                found += _session(transcript.messages, number)
                if len(found) >= count:
                    return found[:count]
    return found


def _session(messages: Sequence[Raw], number: int) -> list[Raw]:
    """A recorded session up to the last point where nothing is open."""
    end = len(messages)
    while end and not _is_closed(messages[end - 1]):
        end -= 1
    text = json.dumps(list(messages[:end])).replace('"toolu_', f'"toolu_{number}_')
    renamed: list[Raw] = json.loads(text)
    return renamed


def _is_closed(message: Raw) -> bool:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return message.get("role") == "assistant" and not any(block.get("type") == "tool_use" for block in blocks)


def live(folder: Path, messages: Sequence[Raw], kills: Sequence[int]) -> Day:
    """Let processes append all messages, one after the other; each but the last is killed after so many."""
    (folder / "messages.json").write_text(json.dumps(list(messages)))
    start = time.perf_counter()
    for at in kills:
        _until_killed(folder, at)
    subprocess.run(_command(folder, len(messages)), check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    with open_day(folder) as session:
        totals = session.totals()
    return Day(len(messages), len(kills) + 1, len(kills), totals.compactions, totals.tokens_saved, seconds)


def open_day(folder: Path) -> Session:
    """The session of the day."""
    address = f"sqlite:///{folder.absolute()}/.compactor/compactor.db"
    return Session.open(SESSION, window=WINDOW, store=address, settings=Settings(idle_seconds=0))


def _command(folder: Path, count: int) -> list[str]:
    return [sys.executable, "-m", "tools.day", "child", str(folder), str(count)]


def _until_killed(folder: Path, at: int) -> None:
    """Kill a process as soon as it says that it has appended so many, in the midst of what it does next."""
    with subprocess.Popen(_command(folder, 1 << 30), cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            if int(line) >= at:
                break
        time.sleep(_WAIT)
        child.send_signal(signal.SIGKILL)


def child(folder: Path, count: int) -> int:
    """Append what is missing, and tell how many there are after each."""
    messages = json.loads((folder / "messages.json").read_text())
    with open_day(folder) as session:
        for number in range(len(session.history()), min(count, len(messages))):
            session.append(messages[number])
            session.context()
            print(number + 1, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(child(Path(sys.argv[2]), int(sys.argv[3])))
