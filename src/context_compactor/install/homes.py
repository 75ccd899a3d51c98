"""Where a user is at home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from context_compactor.errors import BadSetting


def home_of(env: Mapping[str, str]) -> Path:
    """The user's home; `BadSetting` when the environment names none."""
    told = env.get("HOME", "")
    if not Path(told).is_absolute() or not Path(told).is_dir():
        raise BadSetting(f"HOME is {told!r:.100}, which is no folder. Try: with HOME set to your own.")
    return Path(told)
