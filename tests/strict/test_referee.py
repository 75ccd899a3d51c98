"""What our own rules call legal, and what repairs make legal, put before the strict server."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import Message, Thinking
from context_compactor.dialects.repair import repair
from context_compactor.testing import StrictServer
from context_compactor.testing.refusing import without
from tests.dialects.broken_rules import BrokenRule, every_broken_rule
from tests.dialects.strategies import histories
from tests.strict.clients import CLIENTS
from tests.strict.test_server import BY_NAME

ROOMY = 10**9


def declared(dialect: str, messages: list[Message]) -> dict:
    """The request with a declaration of every tool that is called in it."""
    body = BY_NAME[dialect].request([message.raw for message in messages])
    names = sorted({call.name for message in messages for call in message.calls})
    match dialect:
        case "openai-chat":
            body["tools"] = [{"type": "function", "function": {"name": name}} for name in names]
        case "gemini":
            body["tools"] = [{"functionDeclarations": [{"name": name} for name in names]}]
        case "bedrock":
            body["toolConfig"] = {"tools": [{"toolSpec": {"name": name}} for name in names]}
        case _:
            body["tools"] = [{"name": name} for name in names]
    return body


def without_thinking(dialect: str, raws: list) -> list[Message]:
    """The history without reasoning, which only the server that wrote it accepts, and without instructions."""
    kept = []
    for message in DIALECTS[dialect].parse(without(raws, "thoughtSignature", "thought_signature")):
        gone = {at: None for at, part in enumerate(message.parts) if isinstance(part, Thinking)}
        bare = DIALECTS[dialect].edit(message, gone) if gone else message
        if bare is not None and (kept or bare.role not in ("system", "developer")):
            kept.append(bare)
    return DIALECTS[dialect].parse([message.raw for message in kept])


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.dialect)
@given(drawn=st.data())
def test_what_repairs_make_legal_the_provider_accepts(client, drawn):
    drawn_history = drawn.draw(histories(client.dialect))
    history = without_thinking(client.dialect, [*drawn_history, client.user("Go on.")])
    repaired, _ = repair(history, DIALECTS[client.dialect])
    server = StrictServer(window=ROOMY)
    server.respond(client.path, declared(client.dialect, repaired))
    assume([refusal.rule for refusal in server.refusals] != ["shape"])  # blocks of the future, which it does not know
    assert [(refusal.rule, refusal.message) for refusal in server.refusals] == []


def name_of(case: BrokenRule) -> str:
    return f"{case.dialect}-{case.rule}"


@pytest.mark.parametrize("case", every_broken_rule(), ids=name_of)
def test_what_breaks_a_rule_is_refused_by_the_server_too(case):
    server, path = StrictServer(window=ROOMY), BY_NAME[case.dialect].path
    if case.before is not None:
        server.adopt(path, declared(case.dialect, DIALECTS[case.dialect].parse(case.before)))
    status, _ = server.respond(path, declared(case.dialect, DIALECTS[case.dialect].parse(case.messages)))
    assert status == 400
    assert len(server.refusals) == 1
