"""Where the levels begin in the window of a Claude Code session.

The settings are read here without `settings.py`, which takes longer to load than all the rest, as long as none of
those that matter is set. `settings.py` says what the others mean.
"""

from __future__ import annotations

import os

from context_compactor.agents.places import HOME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LEVELS = (("soft", 0.80), ("aggressive", 0.85), ("emergency", 0.95))
_NAMES = ("enabled", "window", "reserve_output_tokens", "levels")
# Claude Code takes nothing outside of these for CLAUDE_CODE_AUTO_COMPACT_WINDOW.
_LEAST_WINDOW, _MOST_WINDOW = 100_000, 1_000_000


class Limits:
    """What the settings say. `problem` is there instead of levels when they cannot be read."""

    __slots__ = ("levels", "problem", "reserve", "window")

    def __init__(self) -> None:
        self.levels: tuple[tuple[str, float], ...] = LEVELS
        self.reserve: int | None = None
        self.window: int | None = None
        self.problem = ""

    def budget(self, window: int) -> int:
        """What a context may use of a window: all but the room for the answer."""
        reserve = min(8_192, window // 8) if self.reserve is None else self.reserve
        return window - reserve if reserve < window else window


def read_limits(root: str, env: Mapping[str, str]) -> Limits:
    """The limits of a project; those that hold by default when nothing else is said."""
    config = os.path.join(root, HOME, "config.toml")
    limits = Limits()
    if any(env.get(f"COMPACTOR_{name.upper()}") for name in _NAMES) or _names_any(config):
        _load(limits, config, env)
    return limits


def window_of(limits: Limits, reported: int, model: object, seen: int, env: Mapping[str, str]) -> int:
    """The tokens that fit: a setting wins over what the agent reports, and the agent may be told to use less."""
    window = limits.window or reported
    if not window:
        from context_compactor.measure.windows import window_for

        window = window_for(model if isinstance(model, str) else None, client="claude-code", seen=seen).tokens
    return min(window, _lowered(env.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "")) or window)


def _names_any(config: str) -> bool:
    """Whether one of the settings that matter here may be in the file."""
    try:
        with open(config, encoding="utf-8") as file:
            return any(line.lstrip(" \t\"'[").startswith(_NAMES) for line in file)
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def _load(limits: Limits, config: str, env: Mapping[str, str]) -> None:
    from context_compactor.errors import BadSetting
    from context_compactor.settings import load_settings

    try:
        settings = load_settings(env=env, config_path=config if os.path.exists(config) else None).settings
    except BadSetting:
        limits.levels, limits.problem = (), "settings cannot be read, see compactor config"
        return
    limits.window, limits.reserve = settings.window, settings.reserve_output_tokens
    limits.levels = tuple((str(rule.level), rule.threshold) for rule in settings.levels)
    if not settings.enabled:
        limits.levels, limits.problem = (), "compactor is off"


def _lowered(told: str) -> int:
    """The number that a text begins with, as Claude Code reads it, or 0."""
    text = told.strip().removeprefix("+")
    digits = text[: len(text) - len(text.lstrip("0123456789"))][:16]
    return min(_MOST_WINDOW, max(_LEAST_WINDOW, int(digits))) if digits.strip("0") else 0
