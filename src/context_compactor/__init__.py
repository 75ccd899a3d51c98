"""Keeps an LLM agent inside its context window for as long as it lives, and loses nothing.

    from context_compactor import compact

    result = compact(messages, window=200_000)
    result.messages            # what to send next, in the dialect that went in
    result.report              # what happened to every part
    result.recall("tool_017")  # the original of anything that was shortened

    with Session.open("run-42", window=200_000) as session:
        session.append(message)    # kept for ever
        session.context()          # what to send next

Begin with `engine/compact.py`; `ARCHITECTURE.md` shows the way from there.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would cost more than all of this
if TYPE_CHECKING:
    from typing import Any

    from context_compactor.archive.search.passages import Hit, render_hits
    from context_compactor.engine.report import Report
    from context_compactor.engine.result import Compaction
    from context_compactor.errors import (
        BadInput,
        BadMessage,
        BadSetting,
        BadTranscript,
        CompactorError,
        DeletedSession,
        MissingExtra,
        StoreError,
        UnknownReference,
        UnknownSession,
    )
    from context_compactor.handoff import handoff_text
    from context_compactor.library import acompact, compact
    from context_compactor.sessions.async_session import AsyncSession
    from context_compactor.sessions.lifecycle import delete_session
    from context_compactor.sessions.session import Session
    from context_compactor.settings import Level, Settings

__version__ = "0.1.0"

_HOMES = {
    "Hit": "archive.search.passages",
    "render_hits": "archive.search.passages",
    "Compaction": "engine.result",
    "acompact": "library",
    "compact": "library",
    "Report": "engine.report",
    "BadInput": "errors",
    "BadMessage": "errors",
    "BadSetting": "errors",
    "BadTranscript": "errors",
    "CompactorError": "errors",
    "DeletedSession": "errors",
    "MissingExtra": "errors",
    "StoreError": "errors",
    "UnknownReference": "errors",
    "UnknownSession": "errors",
    "handoff_text": "handoff",
    "AsyncSession": "sessions.async_session",
    "delete_session": "sessions.lifecycle",
    "Session": "sessions.session",
    "Level": "settings",
    "Settings": "settings",
}

__all__ = [
    "AsyncSession",
    "BadInput",
    "BadMessage",
    "BadSetting",
    "BadTranscript",
    "Compaction",
    "CompactorError",
    "DeletedSession",
    "Hit",
    "Level",
    "MissingExtra",
    "Report",
    "Session",
    "Settings",
    "StoreError",
    "UnknownReference",
    "UnknownSession",
    "__version__",
    "acompact",
    "compact",
    "delete_session",
    "handoff_text",
    "render_hits",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that importing the package costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
