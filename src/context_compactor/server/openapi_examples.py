"""The examples of the OpenAPI document, as values of the types that are sent."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor import __version__
from context_compactor.archive.search.passages import Hit, render_hits
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import Archived, Cache, Fidelity, Metrics, Preserved, Report, Summarized
from context_compactor.engine.tiers import KEPT, Tier
from context_compactor.errors import KeyReused, ModelError, StaleBase, UnknownSession
from context_compactor.facts.fact import Fact
from context_compactor.facts.kinds import Kind
from context_compactor.handoff.checkpoint import ArchiveLine, Checkpoint, CheckpointSpan, Items
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.protocol import HandoffRequest
from context_compactor.server.event_feed import frame_of
from context_compactor.server.problems import RequestRefused, problem_of
from context_compactor.server.tokens import Scope
from context_compactor.sessions import schemas
from context_compactor.sessions.views import Placed, Totals
from context_compactor.settings import Level
from context_compactor.store.events import Event
from context_compactor.tokens.budget import Sections

SESSION_ID, REF = "run-42", "tool_017"
EVENT_ID, WEBHOOK_ID = "019b8dd2-6a3c-7000-8f3e-5a1c0e9d7b42", "wh_5f0c2a9d1b7e4c38"
_BEGAN, _COMPACTED = "2026-01-05T09:00:00.000+00:00", "2026-01-05T09:12:30.120+00:00"
_SUMMARY, _RECOVERY = "Read src/auth/jwt.ts", f'recall("{REF}")'
_QUESTION = {"role": "user", "content": "Why does the login test fail?"}
_BEFORE, _AFTER, _BUDGET = 161_204, 38_870, 191_808

_REPORT = Report(
    status="success",
    level="soft",
    session_id=SESSION_ID,
    compaction_id="cmp_64f790770469",
    created_at="2026-01-05T09:12:30+00:00",
    duration_ms=266.2,
    tokens_before=_BEFORE,
    tokens_after=_AFTER,
    target_tokens=76_723,
    messages_before=118,
    messages_after=42,
    messages_removed=76,
    preserved=(Preserved("user: Why does the login test fail?", 9, 41, "talk", "among the last 5 turns"),),
    summarized=(Summarized("tool_031", "test run", "pytest tests/test_login.py", 843, 112, "its failures and totals"),),
    archived=(Archived(REF, "code file", _SUMMARY, 2_310, f"/v1/sessions/{SESSION_ID}/archive/{REF}", _RECOVERY),),
    recovery_instructions=(f"{_RECOVERY} returns the original of {_SUMMARY}",),
    facts_added=12,
    fidelity=Fidelity(retained=450, reachable=1_821),
    cache=Cache(prefix_tokens_kept=1_204, prefix_tokens_rewritten=37_666),
    metrics=Metrics(shrink_factor=4.15, retained_share=0.198, failures_share=1.0, recallable_share=1.0, pins_share=1.0),
)
_TOTALS = Totals(
    compactions=1,
    undone=0,
    undone_ids=(),
    tokens_saved=_REPORT.tokens_saved,
    messages_removed=_REPORT.messages_removed,
    first_at=_COMPACTED,
    last_at=_COMPACTED,
)
_SESSION = schemas.SessionAnswer(
    id=SESSION_ID,
    created_at=_BEGAN,
    updated_at=_COMPACTED,
    messages=118,
    tokens=_AFTER,
    share=round(_AFTER / _BUDGET, 4),
    level=None,
    window=200_000,
    dialect="anthropic",
    model=None,
    settings={},
)
_USAGE = schemas.UsageAnswer(
    tokens=_AFTER,
    budget_tokens=_BUDGET,
    bytes=149_204,
    budget_bytes=33_554_432,
    share=_SESSION.share,
    level=None,
    margin=0.1,
    tool_results=14,
    files_loaded=6,
    turns_left=43,
    source="counted",
    sections=Sections(system=1_204, user=2_410, assistant=9_846, tool_results=20_112, summaries=4_866, references=432),
)
_CHECKPOINT = Checkpoint(
    session_id=SESSION_ID,
    updated=_COMPACTED,
    span=CheckpointSpan(messages=118, tokens=_BEFORE, turns=41, calls=38),
    summary=("Task: Why does the login test fail? (turn_041)",),
    recovery=(f"Run `compactor resume --session {SESSION_ID}`: it checks git, files and other sessions.",),
    task="Why does the login test fail? (turn_041)",
    task_status="active",
    must_read=Items(('rule: "Never touch legacy/." (turn_001)',)),
    archive=(ArchiveLine(REF, _SUMMARY, 2_310),),
)
_HIT = Hit(REF, "code file", 12, 13, "if (claims.exp < clock.now()) {\n  throw new TokenExpired()", 1.1892, 437)
_WEBHOOK = schemas.WebhookAnswer(
    id=WEBHOOK_ID,
    url="https://example.org/compactions",
    types=["session.compacted"],
    created_at=_BEGAN,
    is_enabled=True,
    failures=0,
    disabled_at=None,
    reason="",
)
_TIER = schemas.TurnTier(turn=12, tier=Tier.KEEP)
_ANSWERS: tuple[Struct, ...] = (
    _SESSION,
    schemas.SessionPage(sessions=[_SESSION]),
    schemas.SessionDetail(**structs.asdict(_SESSION), usage=_USAGE, totals=_TOTALS),
    schemas.AppendAnswer(
        session_id=SESSION_ID, appended=2, messages=116, tokens=157_300, share=0.8201, level=Level.SOFT
    ),
    schemas.ContextAnswer(session_id=SESSION_ID, messages=[_QUESTION], tokens=_AFTER, history_messages=118),
    schemas.HistoryAnswer(
        session_id=SESSION_ID,
        messages=[_QUESTION],
        total=118,
        next="1",
        compactions=[Placed(_REPORT.compaction_id, 1, _BEFORE, _AFTER, _REPORT.messages_removed)],
    ),
    schemas.CompactAnswer(
        compacted=True,
        reason="",
        messages_removed=_REPORT.messages_removed,
        tokens_before=_BEFORE,
        tokens_after=_AFTER,
        tokens_saved=_REPORT.tokens_saved,
        dry_run=False,
        report=_REPORT,
    ),
    schemas.PlanAnswer(
        decisions=[
            Decision(_SUMMARY, 17, Kind.CODE, Tier.REFERENCE, "reference", "can be had again", 2_310, 0, REF, 0.31),
            Decision("agent: The token has expired", 12, Kind.TALK, Tier.KEEP, "pin", KEPT, 431, 431, "turn_012"),
        ],
        report=_REPORT,
        tiers=[_TIER],
    ),
    schemas.TiersAnswer(session_id=SESSION_ID, tiers=[_TIER]),
    schemas.CompactionPage(compactions=[_REPORT], totals=_TOTALS),
    schemas.CancelAnswer(session_id=SESSION_ID, cancelled=True),
    schemas.UndoAnswer(changed=True, report=_REPORT),
    schemas.ArchivePage(
        originals=[
            schemas.OriginalAnswer(
                id=REF,
                kind="code file",
                summary=_SUMMARY,
                tokens=2_310,
                recovery=_RECOVERY,
                same_as="",
                created_at=_COMPACTED,
            )
        ],
        next="17",
    ),
    schemas.RecallAnswer(id=REF, text=_HIT.text, first_line=_HIT.first_line, last_line=_HIT.last_line),
    schemas.RestoreAnswer(ref=REF, tokens=2_310, in_place=False, compacted=False, tokens_after=_AFTER + 2_310),
    schemas.SearchAnswer(hits=[_HIT], text=render_hits([_HIT])),
    schemas.FactsAnswer(
        facts=[
            Fact(
                kind="failure",
                content="pytest tests/test_login.py",
                turn=17,
                role="tool",
                detail="AssertionError: token expired",
                status="open",
                count=2,
                last_turn=21,
                ref=REF,
                first_seen=_BEGAN,
                last_seen=_COMPACTED,
            )
        ]
    ),
    schemas.CheckpointAnswer(checkpoint=_CHECKPOINT, markdown=render_checkpoint(_CHECKPOINT)),
    schemas.HandoffAnswer(
        request=HandoffRequest(
            task_id=f"{SESSION_ID}-write-1",
            phase="write",
            task="Fix the fixture's clock",
            context_summary="# Handoff: write\nTask: the login test fails, as the clock of its fixture stands still.",
            constraints=("Never touch legacy/.",),
            files=("src/auth/jwt.ts",),
            references=(REF,),
            feature="login",
        )
    ),
    schemas.ReceiveAnswer(
        id="agent_001",
        decision="PROCEED",
        context_summary="The fixture's clock goes on now.",
        files_of_interest=[],
        files_changed=["tests/fixtures/clock.ts"],
        errors=[],
        asked="",
        reference='[archived agent_001: write run-42-write-1: complete, PROCEED, 61 tokens. recall("agent_001")]',
        tokens_raw=61,
        tokens_kept=48,
    ),
    schemas.WebhookMade(**structs.asdict(_WEBHOOK), secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="),
    _WEBHOOK,
    schemas.WebhooksAnswer(webhooks=[_WEBHOOK]),
    schemas.RemovedAnswer(id=WEBHOOK_ID),
    schemas.DeliveriesAnswer(
        waiting=[
            schemas.DeliveryAnswer(
                event_id=EVENT_ID, type="session.compacted", attempts=0, due_at=_COMPACTED, reason=""
            )
        ],
        attempts=[
            schemas.AttemptAnswer(
                event_id=EVENT_ID,
                type="session.compacted",
                attempt=1,
                created_at=_COMPACTED,
                status=204,
                reason="",
            )
        ],
    ),
    schemas.ReplayAnswer(queued=12),
    schemas.HealthAnswer(status="ok", version=__version__),
)

ANSWERS: dict[str, Any] = {type(answer).__name__: msgspec.json.decode(schemas.encode(answer)) for answer in _ANSWERS}
"""One of each type, by its name, as it is sent."""


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
    "TierBody": {"turn": 12, "tier": "keep"},
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
    RequestRefused(400, "The body is not JSON: Expecting value: line 1 column 1 (char 0)."),
    RequestRefused(401, "No token was sent. Try: the header `Authorization: Bearer TOKEN`."),
    RequestRefused(403, "This token may only read. Try: one that was made without --read-only."),
    UnknownSession("There is no session 'run-43'. Try: GET /v1/sessions."),
    RequestRefused(405, "Method Not Allowed"),
    StaleBase(f"the context changed while {REF} was being restored; nothing was changed. Try: run it again."),
    RequestRefused(413, "The body has more than 250,000 lists and objects. Try: several requests."),
    RequestRefused(415, "The body is 'text/plain'. Try: Content-Type: application/json."),
    KeyReused(
        "the key '7f1c' was already used at 2026-01-05 for a different request. Try: a new key for each request."
    ),
    ModelError("the model did not answer"),
    RequestRefused(503, "2,000 readers follow events already. Try: again later, or another server."),
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
