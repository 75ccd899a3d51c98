"""The part of `make bench` about hooks: what a coding agent waits for, as whole processes beside bare ones."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from context_compactor.dialects.transcripts.transcript import Transcript
from tools.bench.sessions import Line

COMMAND = str(Path(sys.executable).with_name("compactor"))
_ROUNDS = 40
_HEAVY_ROUNDS = 5
_SESSION = "22222222-2222-4222-8222-222222222222"
_FULL = {
    "context_window_size": 200_000,
    "used_percentage": 31,
    "current_usage": {"input_tokens": 10, "cache_read_input_tokens": 62_000, "output_tokens": 100},
}
# A process that reads a log and counts its tokens, and does nothing else.
_TOKENISE = """
import sys
from context_compactor.measure.count import message_counter_for
from context_compactor.messages.detect import find_dialect
from context_compactor.messages.transcripts import read_transcript
log = read_transcript(sys.argv[1])
sum(message_counter_for(log.model, log.dialect).count_many(find_dialect(log.dialect, ()).parse(log.messages)))
"""


def bench(line: Line, transcript: Transcript) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        log = place / f"{_SESSION}.jsonl"
        log.write_bytes(b"".join(_lines(transcript, place)))
        _quick(line, place, log)
        _before_compaction(line, place, log)


def _quick(line: Line, place: Path, log: Path) -> None:
    said = _said(place, log)
    _call(place, "session-start", said | {"source": "startup"})
    ways: dict[str, tuple[Sequence[str], Mapping[str, Any]]] = {
        "bare": ([sys.executable, "-c", "pass"], {}),
        "hook post-tool-use": ([COMMAND, "hook", "post-tool-use"], said | {"tool_name": "Bash", "tool_response": "ok"}),
        "hook user-prompt-submit": ([COMMAND, "hook", "user-prompt-submit"], said | {"prompt": "go on"}),
        "statusline": ([COMMAND, "statusline"], said | {"context_window": _FULL}),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, (command, given) in ways.items():
            taken[name].append(_seconds(command, given, place))
    bare = statistics.median(taken.pop("bare"))
    for name, times in taken.items():
        line(f"`compactor {name}` with nothing to do, times `python -c pass`", statistics.median(times) / bare, 2.5)


def _before_compaction(line: Line, place: Path, log: Path) -> None:
    """Each time for a session that nobody has seen yet: what follows from an agent that was never followed before."""
    hook, tokenise = [], []
    for number in range(_HEAVY_ROUNDS):
        tokenise.append(_seconds([sys.executable, "-c", _TOKENISE, str(log)], {}, place))
        root = place / f"project-{number}"
        root.mkdir()
        said = _said(root, log) | {"trigger": "auto"}
        hook.append(_seconds([COMMAND, "hook", "pre-compact"], said, root))
    line("`compactor hook pre-compact`, times a process that tokenises the same log", min(hook) / min(tokenise), 3)


def _said(root: Path, log: Path) -> dict[str, Any]:
    return {"session_id": _SESSION, "transcript_path": str(log), "cwd": str(root)}


def _call(root: Path, event: str, said: Mapping[str, Any]) -> None:
    _seconds([COMMAND, "hook", event], said, root)


def _seconds(command: Sequence[str], said: Mapping[str, Any], root: Path) -> float:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COMPACTOR_", "CLAUDE_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    env = kept | {"CLAUDE_PROJECT_DIR": str(root)}
    given = json.dumps(said).encode()
    start = time.perf_counter()
    subprocess.run(command, input=given, capture_output=True, check=True, cwd=root, env=env)
    return time.perf_counter() - start


def _lines(transcript: Transcript, root: Path) -> Iterator[bytes]:
    """A conversation as Claude Code writes it down."""
    numbers, parent = count(1), None
    usage = {"input_tokens": 10, "cache_read_input_tokens": 20_000, "output_tokens": 100}
    for message in transcript.messages:
        number = next(numbers)
        uuid = f"00000000-0000-4000-8000-{number:012d}"
        role = message["role"]
        held = message | (
            {"id": f"msg_{number}", "model": "claude-sonnet-4-5", "usage": usage} if role != "user" else {}
        )
        known = {"parentUuid": parent, "uuid": uuid, "sessionId": _SESSION, "cwd": str(root), "isSidechain": False}
        yield json.dumps(known | {"type": role, "message": held}).encode() + b"\n"
        parent = uuid
