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

_EVENT_ID = "019b8dd2-6a3c-7000-8f3e-5a1c0e9d7b42"

_WEBHOOK = {
    "id": "wh_5f0c2a9d1b7e4c38",
    "url": "https://example.org/compactions",
    "types": ["session.compacted"],
    "created_at": "2026-01-05T09:00:00.000+00:00",
    "is_enabled": True,
    "failures": 0,
    "disabled_at": None,
    "reason": "",
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
    "types": "session.compacted,job.dropped",
    "last_event_id": _EVENT_ID,
    "WebhookBody": {"url": "https://example.org/compactions", "types": ["session.compacted"]},
    "WebhookMade": {**_WEBHOOK, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="},
    "WebhookAnswer": _WEBHOOK,
    "WebhooksAnswer": {"webhooks": [_WEBHOOK]},
    "DeliveriesAnswer": {
        "waiting": [],
        "attempts": [
            {
                "event_id": _EVENT_ID,
                "type": "session.compacted",
                "attempt": 1,
                "created_at": "2026-01-05T09:12:31.400+00:00",
                "status": 204,
                "reason": "",
            }
        ],
    },
    "ReplayBody": {"after": _EVENT_ID},
    "ReplayAnswer": {"owed": 12},
    "HealthAnswer": {"status": "ok", "version": "0.1.0"},
}
