"""`compactor statusline`: one line under the prompt of Claude Code that says how full its window is; only the
standard library."""

from __future__ import annotations

import json
import os
import sys
import time

from context_compactor.agents.paths import HOME, project_root
from context_compactor.agents.transcript_tail import json_object, last_bytes, reply_tokens, token_count

TYPE_CHECKING = False  # `typing` would cost more than all of this
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


LEVELS = (("soft", 0.80), ("aggressive", 0.85), ("emergency", 0.95))
_SETTING_NAMES = ("enabled", "window", "reserve_output_tokens", "levels", "models")
# Below this share of the budget a compaction would bring little, even for nothing.
_WORTH_IT = 0.40
# How long an unused prefix of Claude's stays in its provider's cache, in minutes; where a log does not say, the longer.
_SHORT_CACHE, _LONG_CACHE = 5.0, 60.0
# Claude Code takes nothing outside of these for CLAUDE_CODE_AUTO_COMPACT_WINDOW.
_LEAST_WINDOW, _MOST_WINDOW = 100_000, 1_000_000


class WindowLimits:
    """What the settings say. `problem` is there instead of levels when they cannot be read."""

    def __init__(self) -> None:
        self.levels: tuple[tuple[str, float], ...] = LEVELS
        self.reserve: int | None = None
        self.window: int | None = None
        self.models: Mapping[str, Any] = {}
        self.problem = ""

    def of_model(self, model: object, name: str) -> Any:
        """What the settings say about this model, or None."""
        if not self.models or not isinstance(model, str):
            return None
        from context_compactor.tokens.models import own_entry

        return getattr(own_entry(model, self.models), name, None)

    def budget(self, window: int) -> int:
        """What a context may use of a window: all but the room for the answer."""
        reserve = min(8_192, window // 8) if self.reserve is None else self.reserve
        return window - reserve if reserve < window else window


def read_limits(root: str, env: Mapping[str, str]) -> WindowLimits:
    """The limits of a project; those that hold by default when nothing else is said."""
    config = os.path.join(root, HOME, "config.toml")
    limits = WindowLimits()
    if any(env.get(f"COMPACTOR_{name.upper()}") for name in _SETTING_NAMES) or _names_any(config):
        _load_settings(limits, config, env)
    return limits


def usable_window(limits: WindowLimits, reported: int, model: object, seen: int, env: Mapping[str, str]) -> int:
    """The tokens that fit: a setting wins over what the agent reports, and the agent may be set to use less."""
    window = limits.window or limits.of_model(model, "window") or reported
    if not window:
        from context_compactor.tokens.models import window_for

        window = window_for(model if isinstance(model, str) else None, client="claude-code", seen=seen).tokens
    return min(window, _lowered_window(env.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "")) or window)


def _names_any(config: str) -> bool:
    try:
        with open(config, encoding="utf-8") as file:
            return any(line.lstrip(" \t\"'[").startswith(_SETTING_NAMES) for line in file)
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def _load_settings(limits: WindowLimits, config: str, env: Mapping[str, str]) -> None:
    from context_compactor.errors import BadSetting
    from context_compactor.settings import load_settings

    try:
        settings = load_settings(env=env, config_path=config if os.path.exists(config) else None).settings
    except BadSetting:
        limits.levels, limits.problem = (), "settings cannot be read, see compactor config"
        return
    limits.window, limits.reserve = settings.window, settings.reserve_output_tokens
    limits.models = settings.models
    limits.levels = tuple((str(rule.level), rule.threshold) for rule in settings.levels)
    if not settings.enabled:
        limits.levels, limits.problem = (), "compactor is off"


def _lowered_window(text: str) -> int:
    """The number that a text begins with, as Claude Code reads it, or 0."""
    text = text.strip().removeprefix("+")
    digits = text[: len(text) - len(text.lstrip("0123456789"))][:16]
    return min(_MOST_WINDOW, max(_LEAST_WINDOW, int(digits))) if digits.strip("0") else 0


# Read in about a millisecond, and as much as a session writes in half a window or more.
_TAIL = 2 * 1024 * 1024
_LONGEST_LINE = 512 * 1024
_FORECAST_TURNS = 10
_FEWEST_TURNS = 3

_BOUNDARY = b'"compact_boundary"'
_USAGE = b'"usage"'


class LastCompaction:
    """The last time the agent compacted: when, and the tokens in its window before and at the first answer after."""

    def __init__(self, line: dict[str, Any], after: int) -> None:
        facts = line.get("compactMetadata")
        stamp = line.get("timestamp")
        self.before = token_count(facts.get("preTokens")) if isinstance(facts, dict) else 0
        self.after = after
        self.at = stamp if isinstance(stamp, str) else ""


class TranscriptTail:
    """`totals` are the tokens in the window at each answer since the last compaction, the newest first.

    `answered_at` is when the newest came, `cache_minutes` how long what it has cached is kept.
    """

    def __init__(self, totals: list[int], compaction: LastCompaction | None = None) -> None:
        self.totals = totals
        self.compaction = compaction
        self.answered_at = ""
        self.cache_minutes = _LONG_CACHE

    @property
    def growth(self) -> int | None:
        """The median of what the last turns have added, or None when there are too few to tell."""
        steps = [newer - older for newer, older in zip(self.totals, self.totals[1:], strict=False)]
        added = sorted(step for step in steps if step > 0)
        if len(added) < _FEWEST_TURNS:
            return None
        return (added[len(added) // 2] + added[(len(added) - 1) // 2] + 1) // 2


def read_tail(path: str) -> TranscriptTail:
    """The end of a transcript; empty when it cannot be read."""
    text = last_bytes(path, _TAIL)
    boundary, since = _last_boundary(text)
    totals: list[int] = []
    newest = ""
    last: dict[str, Any] = {}
    for raw in _lines_backwards(text, since):
        line = _parse_line(raw) if _USAGE in raw else {}
        tokens, reply = _reply_total(line), _text(_part(line, "message"), "id")
        if tokens and not (reply and reply == newest):  # a reply is logged as several lines
            totals.append(tokens)
            newest = reply
            last = last or line
        if len(totals) > _FORECAST_TURNS:
            break
    tail = TranscriptTail(totals, LastCompaction(boundary, _first_total(text, since)) if boundary else None)
    tail.answered_at = _text(last, "timestamp")
    written = _part(_part(_part(last, "message"), "usage"), "cache_creation")
    if token_count(written.get("ephemeral_5m_input_tokens")) and not token_count(
        written.get("ephemeral_1h_input_tokens")
    ):
        tail.cache_minutes = _SHORT_CACHE
    return tail


def _last_boundary(text: bytes) -> tuple[dict[str, Any], int]:
    at = text.rfind(_BOUNDARY)
    while at >= 0:
        start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        line = _parse_line(text[start : end if end >= 0 else None])
        if line.get("subtype") == "compact_boundary":
            return line, end + 1 if end >= 0 else len(text)
        at = text.rfind(_BOUNDARY, 0, start)
    return {}, 0


def _lines_backwards(text: bytes, since: int) -> Iterator[bytes]:
    end = len(text)
    while end > since:
        start = text.rfind(b"\n", since, end) + 1 or since
        yield text[start:end]
        end = start - 1


def _first_total(text: bytes, since: int) -> int:
    at = text.find(_USAGE, since)
    while at >= 0:
        start, end = text.rfind(b"\n", since, at) + 1 or since, text.find(b"\n", at)
        tokens = _reply_total(_parse_line(text[start : end if end >= 0 else None]))
        if tokens or end < 0:
            return tokens
        at = text.find(_USAGE, end)
    return 0


def _parse_line(raw: bytes) -> dict[str, Any]:
    """A line of the main conversation, or nothing: a sub-agent has a window of its own."""
    line = json_object(raw) if len(raw) <= _LONGEST_LINE else {}
    return {} if line.get("isSidechain") else line


def _reply_total(line: dict[str, Any]) -> int:
    message = line.get("message")
    if line.get("type") != "assistant" or not isinstance(message, dict):
        return 0
    is_by_client = line.get("isApiErrorMessage") or message.get("model") == "<synthetic>"
    return 0 if is_by_client else reply_tokens(message.get("usage"))


_LONGEST_INPUT = 4_000_000
_BAR = 10
# A line that is late is of no use.
_WAIT_SECONDS = 0.2
_INDENT = 4  # Claude Code leaves two columns free on each side
_MOST_TURNS = 999
# The share of the budget from which on no agent should wait any longer.
_OVERDUE = 0.95
_GLYPHS = "▓░·→"
_IN_ASCII = {ord("▓"): "#", ord("░"): "-", ord("·"): "|", ord("→"): "->"}
_COLOURS = {"": "32", "soft": "33", "aggressive": "31", "emergency": "1;31"}


class NoStatus(Exception):
    """Why there is nothing to show, in words for whoever looks at the line."""


class Status:
    """The parts of the line; an empty one is left out."""

    def __init__(self, share: float, head: str) -> None:
        self.share = share
        self.head = head
        self.level = ""
        self.used = ""
        self.forecast = ""
        self.compacted: tuple[str, ...] = ()
        self.way = ""


def main() -> int:
    """Print the line. Always 0: Claude Code shows nothing when a status line fails."""
    _write(_line(os.environ))
    return 0


def _line(env: Mapping[str, str]) -> str:
    try:
        return _fit_line(session_status(_read_input(), env, time.time()), env)
    except NoStatus as reason:
        problem = str(reason)
    except KeyboardInterrupt:
        problem = "interrupted"
    except Exception as error:  # noqa: BLE001  a line that says so is more than the nothing that would be shown
        problem = f"no status ({type(error).__name__}); see compactor doctor"
    return f"compactor: {problem}"[: _available_columns(env) or None].rstrip()


def session_status(call: dict[str, Any], env: Mapping[str, str], now: float) -> Status:
    """What is to be said about a session: from what Claude Code sent, else from the end of its transcript."""
    reported_window, workspace = _part(call, "context_window"), _part(call, "workspace")
    usage = reported_window.get("current_usage")
    tail = read_tail(_text(call, "transcript_path"))
    tokens = reply_tokens(usage)
    # Zeros are sent after a compaction. What the transcript knows is then from before it, until there is an answer.
    if not tokens and not isinstance(usage, dict) and tail.totals:
        tokens = tail.totals[0]
    if not tokens:
        return _waiting_status(tail, now)
    root = project_root(_text(workspace, "project_dir") or _text(call, "cwd"), env)
    limits = read_limits(root, env)
    reported = token_count(reported_window.get("context_window_size"))
    model = _part(call, "model").get("id")
    window = usable_window(limits, reported, model, tokens, env)
    status = _window_status(tokens, window, limits, tail, now)
    if limits.levels and tokens >= _WORTH_IT * limits.budget(window):
        status.forecast = _free_compaction(model, limits, tail, now) or status.forecast
    status.way = _who_compacts(root, _text(call, "session_id"))
    return status


def _who_compacts(root: str, session_id: str) -> str:
    """A word for who writes what the agent goes on with, where that is not the agent alone."""
    home = os.path.join(root, HOME)
    if not session_id or not os.path.exists(home):
        return ""
    from context_compactor.agents.hook_state import DatabaseError, open_hook_state

    try:
        state = open_hook_state(home, wait=_WAIT_SECONDS)
        row = state.find(session_id) if state is not None else None
    except DatabaseError:  # damaged or in use: the next hook sees to it
        return ""
    return row.compaction if row is not None and row.compaction != "beside" else ""


def _free_compaction(model: object, limits: WindowLimits, tail: TranscriptTail, now: float) -> str:
    """That the provider has forgotten the conversation, so that a compaction costs nothing extra; "" when it has not.

    Known for Claude alone: how long others keep what they have cached is not in this log.
    """
    minutes = _minutes_since(tail.answered_at, now)
    life = limits.of_model(model, "cache_minutes")
    if life is None:
        life = tail.cache_minutes if isinstance(model, str) and "claude" in model else None
    if minutes is None or life is None or minutes <= life:
        return ""
    return f"idle {_duration(minutes)}: /compact costs nothing extra now"


def _window_status(tokens: int, window: int, limits: WindowLimits, tail: TranscriptTail, now: float) -> Status:
    budget = limits.budget(window)
    status = Status(tokens / window, f"{100 * tokens / window:.0f}%")
    reached = [name for name, threshold in limits.levels if tokens / budget >= threshold]
    status.level = reached[-1] if reached else ""
    status.used = f"{_short(tokens)} of {_short(window)} tokens"
    status.forecast = limits.problem or _forecast(tokens, budget, limits, tail.growth)
    if tail.compaction:
        status.compacted = _compacted(tail.compaction, now)
    return status


def _waiting_status(tail: TranscriptTail, now: float) -> Status:
    if tail.compaction is None or tail.totals:
        return Status(0.0, f"waiting for the {'next' if tail.totals else 'first'} answer")
    status = Status(0.0, _compacted(tail.compaction, now)[0])
    status.forecast = "waiting for the next answer"
    return status


def _forecast(tokens: int, budget: int, limits: WindowLimits, growth: int | None) -> str:
    """How far it is to the next compaction, in turns where these can be told; then that it is due, or overdue."""
    thresholds = [threshold for _, threshold in limits.levels] or [1.0]
    if tokens >= budget:
        return "full: run /compact"
    if tokens >= _OVERDUE * budget:
        return "almost full: run /compact"
    left = int(min(thresholds) * budget) - tokens
    return _until_compaction(left, growth) if left > 0 else "compacts soon"


def _until_compaction(left: int, growth: int | None) -> str:
    if growth is None:
        return f"compacts in ~{_short(left)} tokens"
    turns = left // growth
    if not turns:
        return "compacts with the next turn"
    if turns > _MOST_TURNS:
        return f"compacts in over {_MOST_TURNS} turns"
    return f"compacts in ~{turns} turn{'s' if turns > 1 else ''}"


def _compacted(compaction: LastCompaction, now: float) -> tuple[str, str]:
    """When it was and what it did, then only when. What made the window fuller took a compaction back."""
    before, after = compaction.before, compaction.after
    short = f"{'undone' if 0 < before < after else 'compacted'} {_ago(compaction.at, now)}"
    if not before:
        return short, short
    change = f"{_short(before)} → {_short(after)}" if after else f"from {_short(before)}"
    return f"{short}, {change}", short


def _ago(stamp: str, now: float) -> str:
    minutes = _minutes_since(stamp, now)
    if minutes is None:
        return "earlier"
    return "just now" if minutes < 1 else f"{_duration(minutes)} ago"


def _minutes_since(stamp: str, now: float) -> int | None:
    from datetime import datetime

    try:
        return int(now - datetime.fromisoformat(stamp).timestamp()) // 60
    except (ValueError, OverflowError, OSError):
        return None


def _duration(minutes: int) -> str:
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"


def _short(tokens: int) -> str:
    if tokens < 1_000:
        return str(tokens)
    if tokens < 9_950:
        return f"{tokens / 1_000:.1f}".removesuffix(".0") + "k"
    if tokens < 999_500:
        return f"{tokens / 1_000:.0f}k"
    return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"


def _fit_line(status: Status, env: Mapping[str, str]) -> str:
    full = min(_BAR, max(int(status.share * _BAR + 0.5), 1 if status.share > 0 else 0))
    signs = {} if _can_write(_GLYPHS) else _IN_ASCII
    lines = [" · ".join(parts).translate(signs) for parts in _line_variants(status, "▓" * full + "░" * (_BAR - full))]
    room = _available_columns(env) or len(lines[0])
    line = next((each for each in lines if len(each) <= room), lines[-1][:room].rstrip())
    if env.get("NO_COLOR") or env.get("TERM") == "dumb":
        return line
    head, mark, rest = line.partition(" · ".translate(signs))
    return f"\x1b[{_COLOURS[status.level]}m{head}\x1b[0m{mark}{rest}"


def _line_variants(status: Status, bar: str) -> Iterator[tuple[str, ...]]:
    """The line, then without what matters least, and so on."""
    head = f"{bar} {status.head}"
    rest: list[tuple[str, ...]] = [(status.used, status.forecast, each) for each in status.compacted]
    if status.way:
        rest.insert(0, (*(rest[0] if rest else (status.used, status.forecast)), status.way))
    for parts in (*rest, (status.used, status.forecast), (status.forecast,)):
        yield (head, *filter(None, parts))
    yield (head,)
    yield (status.head,)


def _available_columns(env: Mapping[str, str]) -> int:
    """Columns to write in, or 0 when the number is unknown."""
    text = env.get("COLUMNS", "").strip()
    columns = int(text) if text.isdecimal() and len(text) < 7 else 0
    return max(1, columns - _INDENT) if columns else 0


def _can_write(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


def _read_input() -> dict[str, Any]:
    if sys.stdin is None or sys.stdin.isatty():
        raise NoStatus("Claude Code runs this with JSON on standard input; see compactor statusline --help")
    text = sys.stdin.buffer.read(_LONGEST_INPUT)
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        raise NoStatus("standard input is not JSON" if text else "standard input is empty") from None
    if not isinstance(call, dict):
        raise NoStatus("standard input is not a JSON object")
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
