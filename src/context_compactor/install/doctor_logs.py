"""What an agent's own log tells: hooks of ours that failed, and sessions that no hook knows of."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.agents.known import CLAUDE_CODE, Agent
from context_compactor.agents.traces import seconds_of
from context_compactor.agents.window_use import last_lines
from context_compactor.install.doctor_case import Case
from context_compactor.install.ours import is_our_hook

_TAIL = 32 * 1024 * 1024
_FIRST_LINE = 1024 * 1024
_NEWEST = 20
_OTHER = re.compile(r"[^A-Za-z0-9]")
_FAILED = frozenset({"hook_non_blocking_error", "hook_error_during_execution", "hook_blocking_error"})


class Unknown(Struct, frozen=True):
    """A log of a session that no hook has told of: when it began, and when it was written last."""

    session_id: str
    began: float
    written: float


def failed_hooks(path: str) -> list[str]:
    """What Claude Code noted of hooks of ours that failed, the last first."""
    found = (line.get("attachment") for line in last_lines(path, _TAIL, (b'"hook_',)))
    return [
        f"{each.get('hookEvent')}: {each.get('stderr') or each.get('type')}"
        for each in found
        if isinstance(each, dict) and each.get("type") in _FAILED and is_our_hook(each)
    ]


def unknown_logs(case: Case, agent: Agent, known: Collection[str]) -> Iterator[Unknown]:
    """Sessions of an agent in this project that no hook knows, the newest first."""
    for path in _claude_code(case) if agent is CLAUDE_CODE else _codex(case):
        first = _first_line(path)
        told = first.get("payload") if agent is not CLAUDE_CODE else {"session_id": path.stem, "cwd": str(case.root)}
        if not isinstance(told, dict) or told.get("cwd") != str(case.root) or told.get("thread_source") == "subagent":
            continue
        name, began = str(told.get("session_id") or told.get("id")), seconds_of(first.get("timestamp"))
        if name not in known and began:
            yield Unknown(name, began, path.stat().st_mtime)


def _claude_code(case: Case) -> list[Path]:
    folder = case.user.claude_folder / "projects" / _OTHER.sub("-", str(case.root))
    return _by_time(folder.glob("*.jsonl"))


def _codex(case: Case) -> list[Path]:
    return _by_time((case.user.codex_folder / "sessions").glob("*/*/*/rollout-*.jsonl"))


def _by_time(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)[:_NEWEST]


def _first_line(path: Path) -> dict[str, Any]:
    """The first line of a log that says when it was written."""
    with path.open("rb") as file:
        for line in file.read(_FIRST_LINE).split(b"\n"):
            found = _read(line)
            if "timestamp" in found:
                return found
    return {}


def _read(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
