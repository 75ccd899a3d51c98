"""Examples for the OpenAPI document."""

from __future__ import annotations

from typing import Any

_SESSION = {
    "id": "run-42",
    "created_at": "2026-01-05T09:00:00.000+00:00",
    "updated_at": "2026-01-05T09:12:30.120+00:00",
    "messages": 118,
    "tokens": 121_840,
    "share": 0.6347,
    "level": None,
    "window": 200_000,
    "dialect": "anthropic",
    "model": None,
    "settings": {},
}

EXAMPLES: dict[str, Any] = {
    "id": "run-42",
    "ref": "tool_017",
    "q": "jwt expiry",
    "lines": "10-40",
    "CreateBody": {"id": "run-42", "window": 200_000, "dialect": "anthropic"},
    "AppendBody": {
        "messages": [
            {"role": "user", "content": "Why does the login test fail?"},
            {"role": "assistant", "content": "The token has expired: the clock of the fixture stands still."},
        ]
    },
    "CompactBody": {"level": "soft", "focus": "the login test", "dry_run": False},
    "RestoreBody": {"ref": "tool_017"},
    "HandoffBody": {"phase": "write", "task": "Fix the fixture's clock"},
    "SessionAnswer": _SESSION,
    "SessionPage": {"sessions": [_SESSION], "next": None},
    "AppendAnswer": {
        "session_id": "run-42",
        "appended": 2,
        "messages": 120,
        "tokens": 121_902,
        "share": 0.635,
        "level": None,
        "report": None,
    },
    "ContextAnswer": {
        "session_id": "run-42",
        "messages": [{"role": "user", "content": "Why does the login test fail?"}],
        "tokens": 9_120,
        "history_messages": 120,
    },
    "HistoryAnswer": {
        "session_id": "run-42",
        "messages": [{"role": "user", "content": "Why does the login test fail?"}],
        "total": 120,
        "next": "1",
    },
    "RecallAnswer": {
        "id": "tool_017",
        "text": "def verify(token):\n    ...\n",
        "page": None,
        "pages": None,
        "first_line": None,
        "last_line": None,
    },
    "FactsAnswer": {
        "facts": [
            {
                "kind": "failure",
                "content": "pytest tests/test_login.py",
                "turn": 17,
                "role": "tool",
                "detail": "AssertionError: token expired",
                "status": "open",
                "count": 2,
                "last_turn": 21,
                "ref": "tool_017",
            }
        ]
    },
    "HealthAnswer": {"status": "ok", "version": "0.1.0"},
}
