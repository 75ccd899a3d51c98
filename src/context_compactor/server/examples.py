"""Examples for the OpenAPI document: of what is asked, of events and of problems. Answers are beside this page."""

from __future__ import annotations

from typing import Any

import msgspec

from context_compactor.errors import KeyReused, ModelError, StaleBase, UnknownSession
from context_compactor.events.event import Event
from context_compactor.server.answer_examples import ANSWERS, EVENT_ID, REF, SESSION_ID
from context_compactor.server.frames import frame_of
from context_compactor.server.problems import Refused, problem_of
from context_compactor.server.scope import Scope

_EVENT = Event(
    EVENT_ID,
    "session.compacted",
    SESSION_ID,
    "2026-01-05T09:12:30.120+00:00",
    {"compaction_id": "cmp_64f790770469", "level": "soft", "tokens_before": 161_204, "tokens_after": 38_870},
)

EXAMPLES: dict[str, Any] = ANSWERS | {
    # Parameters
    "id": SESSION_ID,
    "ref": REF,
    "q": "jwt expiry",
    "lines": "10-40",
    "types": "session.compacted,job.dropped",
    "last_event_id": EVENT_ID,
    # Bodies
    "CreateBody": {"id": SESSION_ID, "window": 200_000, "dialect": "anthropic"},
    "AppendBody": {
        "messages": [
            {"role": "user", "content": "Why does the login test fail?"},
            {"role": "assistant", "content": "The token has expired: the clock of the fixture stands still."},
        ]
    },
    "CompactBody": {"level": "soft", "focus": "the login test", "dry_run": False},
    "SteerBody": {"turn": 12, "tier": "keep"},
    "RestoreBody": {"ref": REF},
    "CheckpointBody": {"note": "The fixture's clock stands still on purpose."},
    "HandoffBody": {"phase": "write", "task": "Fix the fixture's clock", "feature": "login"},
    "ReceiveBody": {
        "answer": {
            "task_id": f"{SESSION_ID}-write-1",
            "phase": "write",
            "status": "complete",
            "decision": "PROCEED",
            "findings": {"files_changed": ["tests/fixtures/clock.ts"]},
            "context_summary": "The fixture's clock goes on now.",
        }
    },
    "WebhookBody": {"url": "https://example.org/compactions", "types": ["session.compacted"]},
    "ReplayBody": {"after": EVENT_ID},
    # What is no JSON, by the name of its route
    "events": frame_of(_EVENT, Scope(), "").decode(),
    "metrics": (
        "# HELP compactor_sessions Sessions of the store by the level they have reached\n"
        "# TYPE compactor_sessions gauge\n"
        'compactor_sessions{level="none"} 41.0\ncompactor_sessions{level="soft"} 1.0\n'
    ),
    "Event": msgspec.to_builtins(_EVENT),
}

_ERRORS = (
    Refused(400, "The body is not JSON: Expecting value: line 1 column 1 (char 0)."),
    Refused(401, "No token was sent. Try: the header `Authorization: Bearer TOKEN`."),
    Refused(403, "This token may only read. Try: one that was made without --read-only."),
    UnknownSession("There is no session 'run-43'. Try: GET /v1/sessions."),
    Refused(405, "Method Not Allowed"),
    StaleBase(f"the context changed while {REF} was being restored; nothing was done. Try: again."),
    Refused(413, "The body has more than 250,000 lists and objects. Try: several requests."),
    Refused(415, "The body is 'text/plain'. Try: Content-Type: application/json."),
    KeyReused("the key '7f1c' was used at 2026-01-05 for another request. Try: a new key for each request."),
    ModelError("the model did not answer"),
    Refused(503, "2,000 readers follow events already. Try: again later, or another server."),
)
PROBLEMS: dict[int, Any] = {
    problem.status: msgspec.to_builtins(problem) for problem in (problem_of(error) for error in _ERRORS)
} | {
    500: {
        "type": "urn:context-compactor:internal",
        "title": "The server failed",
        "status": 500,
        "detail": "The server's log says why under 5f0c2a9d1b7e.",
        "ref": "5f0c2a9d1b7e",
    }
}
"""A problem of each status, as it is sent."""
