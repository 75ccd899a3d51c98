"""`compactor statusline`: one line under the prompt of Claude Code that says how full its window is.

Claude Code runs it after every answer with what it knows on standard input. What it leaves out, and what has grown and
was compacted, stands at the end of the transcript. Nothing is imported here but the standard library, and the line is
never empty: Claude Code would show nothing at all.
"""

from __future__ import annotations

import json
import os
import sys
import time

from context_compactor.agents.places import project_root
from context_compactor.agents.window_use import count, reply_tokens
from context_compactor.hooks.statusline_limits import read_limits, window_of
from context_compactor.hooks.statusline_tail import read_tail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from context_compactor.hooks.statusline_limits import Limits
    from context_compactor.hooks.statusline_tail import Compaction, Tail

_LONGEST_INPUT = 4_000_000
_BAR = 10
_INDENT = 4  # Claude Code leaves two columns free on each side
_MOST_TURNS = 999
_GLYPHS = "▓░·→"
_IN_ASCII = {ord("▓"): "#", ord("░"): "-", ord("·"): "|", ord("→"): "->"}
_COLOURS = {"": "32", "soft": "33", "aggressive": "31", "emergency": "1;31"}


class NoStatus(Exception):
    """Why there is nothing to show, in words for whoever looks at the line."""


class Status:
    """The parts of the line; an empty one is left out."""

    __slots__ = ("compacted", "forecast", "head", "level", "share", "used")

    def __init__(self, share: float, head: str) -> None:
        self.share = share
        self.head = head
        self.level = ""
        self.used = ""
        self.forecast = ""
        self.compacted: tuple[str, ...] = ()


def main() -> int:
    """Print the line. Always 0: Claude Code shows nothing when a status line fails."""
    _write(_line(os.environ))
    return 0


def _line(env: Mapping[str, str]) -> str:
    try:
        return _fitted(look_at(_read_input(), env, time.time()), env)
    except NoStatus as reason:
        problem = str(reason)
    except KeyboardInterrupt:
        problem = "interrupted"
    except Exception as error:  # noqa: BLE001  a line that says so is more than the nothing that would be shown
        problem = f"no status ({type(error).__name__}), see compactor doctor"
    return f"compactor: {problem}"[: _room(env) or None].rstrip()


def look_at(call: dict[str, Any], env: Mapping[str, str], now: float) -> Status:
    """What is to be said about a session: from what Claude Code sent, else from the end of its transcript."""
    window_told, workspace = _part(call, "context_window"), _part(call, "workspace")
    usage = window_told.get("current_usage")
    tail = read_tail(_text(call, "transcript_path"))
    tokens = reply_tokens(usage)
    # Zeros are sent after a compaction. What the transcript knows is then from before it, until there is an answer.
    if not tokens and not isinstance(usage, dict) and tail.totals:
        tokens = tail.totals[0]
    if not tokens:
        return _waiting(tail, now)
    limits = read_limits(project_root(_text(workspace, "project_dir") or _text(call, "cwd"), env), env)
    reported = count(window_told.get("context_window_size"))
    window = window_of(limits, reported, _part(call, "model").get("id"), tokens, env)
    return _gauge(tokens, window, limits, tail, now)


def _gauge(tokens: int, window: int, limits: Limits, tail: Tail, now: float) -> Status:
    budget = limits.budget(window)
    status = Status(tokens / window, f"{100 * tokens / window:.0f}%")
    reached = [name for name, threshold in limits.levels if tokens / budget >= threshold]
    status.level = reached[-1] if reached else ""
    status.head += f" {status.level}" if status.level else ""
    status.used = f"{_short(tokens)} of {_short(window)}"
    status.forecast = limits.problem or _forecast(tokens, budget, limits, tail.growth)
    if tail.compaction:
        status.compacted = _compacted(tail.compaction, now)
    return status


def _waiting(tail: Tail, now: float) -> Status:
    if tail.compaction is None or tail.totals:
        return Status(0.0, f"waiting for the {'next' if tail.totals else 'first'} answer")
    status = Status(0.0, _compacted(tail.compaction, now)[0])
    status.forecast = "waiting for the next answer"
    return status


def _forecast(tokens: int, budget: int, limits: Limits, growth: int | None) -> str:
    """How far it is to the next level, or behind the last one to the end of the budget."""
    coming = [(name, int(threshold * budget)) for name, threshold in limits.levels if tokens / budget < threshold]
    name, start = coming[0] if coming else ("full", budget)
    left = start - tokens
    if left <= 0 and not coming:
        return ""
    if growth is None:
        return f"{_short(max(1, left))} to {name}"
    turns = max(0, left) // growth
    if not turns:
        return f"{name} within a turn"
    if turns > _MOST_TURNS:
        return f"over {_MOST_TURNS} turns to {name}"
    return f"about {turns} turn{'s' if turns > 1 else ''} to {name}"


def _compacted(compaction: Compaction, now: float) -> tuple[str, str]:
    """When it was and what it did, then only when."""
    short = f"compacted {_ago(compaction.at, now)}"
    before, after = compaction.before, compaction.after
    if not before:
        return short, short
    change = f"{_short(before)} → {_short(after)}" if after else f"from {_short(before)}"
    return f"{short}, {change}", short


def _ago(stamp: str, now: float) -> str:
    from datetime import datetime

    try:
        minutes = int(now - datetime.fromisoformat(stamp).timestamp()) // 60
    except (ValueError, OverflowError, OSError):
        return "before"
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days ago"


def _short(tokens: int) -> str:
    if tokens < 1_000:
        return str(tokens)
    if tokens < 9_950:
        return f"{tokens / 1_000:.1f}".removesuffix(".0") + "k"
    if tokens < 999_500:
        return f"{tokens / 1_000:.0f}k"
    return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"


def _fitted(status: Status, env: Mapping[str, str]) -> str:
    """The line as long as there is room for it, in colour where that is wanted."""
    full = min(_BAR, max(int(status.share * _BAR + 0.5), 1 if status.share > 0 else 0))
    signs = {} if _can_write(_GLYPHS) else _IN_ASCII
    lines = [" · ".join(parts).translate(signs) for parts in _choices(status, "▓" * full + "░" * (_BAR - full))]
    room = _room(env) or len(lines[0])
    line = next((each for each in lines if len(each) <= room), lines[-1][:room].rstrip())
    if env.get("NO_COLOR") or env.get("TERM") == "dumb":
        return line
    head, mark, rest = line.partition(" · ".translate(signs))
    return f"\x1b[{_COLOURS[status.level]}m{head}\x1b[0m{mark}{rest}"


def _choices(status: Status, bar: str) -> Iterator[tuple[str, ...]]:
    """The line, then without what matters least, and so on."""
    head = f"{bar} {status.head}"
    rest = [(status.used, status.forecast, each) for each in status.compacted]
    for parts in (*rest, (status.used, status.forecast), (status.forecast,)):
        yield (head, *filter(None, parts))
    yield (head,)
    yield (status.head,)


def _room(env: Mapping[str, str]) -> int:
    """Columns to write in, or 0 when nobody says how many there are."""
    told = env.get("COLUMNS", "").strip()
    columns = int(told) if told.isdecimal() and len(told) < 7 else 0
    return max(1, columns - _INDENT) if columns else 0


def _can_write(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


def _read_input() -> dict[str, Any]:
    if sys.stdin is None or sys.stdin.isatty():
        raise NoStatus("Claude Code runs this with JSON on standard input, see compactor statusline --help")
    text = sys.stdin.buffer.read(_LONGEST_INPUT)
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        raise NoStatus("what came on standard input is no JSON" if text else "nothing on standard input") from None
    if not isinstance(call, dict):
        raise NoStatus("what came on standard input is no JSON object")
    return call


def _part(call: dict[str, Any], name: str) -> dict[str, Any]:
    value = call.get(name)
    return value if isinstance(value, dict) else {}


def _text(call: dict[str, Any], name: str) -> str:
    value = call.get(name)
    return value if isinstance(value, str) else ""


def _write(text: str) -> None:
    if sys.stdout is None:  # it was closed before we began
        return
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError:  # nobody reads it; what could not be written is not tried again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
