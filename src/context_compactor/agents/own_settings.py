"""The settings of a project, as far as whoever made the project may have a say.

A project may have come from anywhere. Its `config.toml` may say how compaction behaves, but not where what is said
goes.
"""

from __future__ import annotations

import os

from context_compactor.errors import BadSetting
from context_compactor.settings import LoadedSettings, Settings, load_settings
from context_compactor.store.address import is_postgres
from context_compactor.store.connect import sqlite_path


def own_settings(root: str, store: str | None = None) -> Settings:
    """The settings that hold in a project; `BadSetting` when its file sends the conversation somewhere else."""
    loaded = load_settings({"store": store})
    refuse_elsewhere(root, loaded)
    return loaded.settings


def refuse_elsewhere(root: str, loaded: LoadedSettings) -> None:
    """Let a project's own file name no store but a SQLite file within the project."""
    url = loaded.settings.store
    origin = loaded.origins["store"]
    if not origin.endswith("config.toml"):
        return
    path = None if is_postgres(url) else sqlite_path(url)
    inside = os.path.realpath(root)
    if path is None or os.path.commonpath([inside, os.path.realpath(os.path.join(root, path))]) != inside:
        raise BadSetting(
            f"store: {origin} of a project may only name a SQLite file within it, since it may be from anybody. "
            "Try: COMPACTOR_STORE in your own environment."
        )
