"""Keeps an LLM agent inside its context window for as long as it lives, and loses nothing.

    from context_compactor import compact

    result = compact(messages, window=200_000)
    result.messages            # what to send next, in the dialect that went in
    result.report              # what happened to every part
    result.recall("tool_017")  # the original of anything that was shortened

    with Session.open("run-42", window=200_000) as session:
        session.append(message)    # kept for ever
        session.context()          # what to send next

Begin with `flow.py`; `ARCHITECTURE.md` shows the way from there.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would cost more than all of this
if TYPE_CHECKING:
    from typing import Any

    from context_compactor.app import Compaction, acompact, compact
    from context_compactor.archive.search.hits import Hit, render_hits
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
    from context_compactor.levels import Level
    from context_compactor.report import Report
    from context_compactor.session.asynchronous import AsyncSession
    from context_compactor.session.deleting import delete_session
    from context_compactor.session.session import Session
    from context_compactor.settings import Settings

__version__ = "0.1.0"

_HOMES = {
    "Compaction": "app",
    "acompact": "app",
    "compact": "app",
    "Hit": "archive.search.hits",
    "render_hits": "archive.search.hits",
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
    "Level": "levels",
    "Report": "report",
    "AsyncSession": "session.asynchronous",
    "delete_session": "session.deleting",
    "Session": "session.session",
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
