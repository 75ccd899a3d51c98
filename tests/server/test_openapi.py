"""The OpenAPI document says what the server does: real requests made from it are answered as it says."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from context_compactor.server.openapi import document
from context_compactor.server.routes import ROUTES

DOCUMENT = json.loads(document())


def _operation(path: str, method: str):
    return DOCUMENT["paths"][path][method].items()


OPERATIONS = [(path, method) for path, operations in DOCUMENT["paths"].items() for method in operations]
# It is answered for as long as somebody reads; `test_events.py` does.
ENDLESS = "/v1/events"
# What takes nothing at all cannot be asked wrongly.
ASKED = [
    (path, method, mode)
    for path, method in OPERATIONS
    for mode in ("positive", "negative")
    if path != ENDLESS
    and (
        mode == "positive"
        or {"parameters", "requestBody"} & {name for name, value in _operation(path, method) if value}
    )
]
CALM = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def described(shared):
    """The document as the server gives it, read by a program that makes requests of it."""
    import schemathesis  # takes seconds to load

    assert shared.get("/openapi.json").json == DOCUMENT
    shared.made("run-42")
    shared.post("/v1/sessions/run-42/messages", {"messages": [{"role": "user", "content": "Hello"}]})
    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.mark.parametrize(("path", "method", "mode"), ASKED)
def test_requests_made_from_the_document_are_answered_as_it_says(shared, described, path, method, mode):
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    wanted = [
        not_a_server_error,
        checks.content_type_conformance,
        checks.negative_data_rejection,
        checks.response_schema_conformance,
        checks.status_code_conformance,
    ]
    known = {name: value for name, value in {"id": "run-42", "ref": "turn_001"}.items() if f"{{{name}}}" in path}
    more = {"path_parameters": known} if known and mode == "positive" else {}

    @CALM
    @given(described[path][method].as_strategy(GenerationMode(mode), **more))
    def send(case) -> None:
        case.call_and_validate(base_url=shared.url, checks=wanted)

    send()


def test_every_operation_is_described():
    operations = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(operations) == len(ROUTES)
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"].endswith((".", "again."))
        assert {"200", "201"} & set(operation["responses"])
        assert "500" in operation["responses"]


def test_the_contract_names_are_all_there():
    wanted = """
        POST /v1/sessions | GET /v1/sessions | GET /v1/sessions/{id} | POST /v1/sessions/{id}/messages
        | GET /v1/sessions/{id}/context | GET /v1/sessions/{id}/history | POST /v1/sessions/{id}/compact
        | GET /v1/sessions/{id}/compactions | POST /v1/sessions/{id}/undo | GET /v1/sessions/{id}/archive
        | GET /v1/sessions/{id}/archive/{ref} | GET /v1/sessions/{id}/search | GET /v1/sessions/{id}/facts
        | GET /v1/sessions/{id}/checkpoint | POST /v1/sessions/{id}/handoff | GET /v1/events | POST /v1/webhooks
        | GET /v1/webhooks | DELETE /v1/webhooks/{id} | GET /metrics | GET /healthz"""
    for operation in wanted.split("|"):
        method, path = operation.split()
        assert method.lower() in DOCUMENT["paths"][path]


def test_compact_takes_and_answers_what_the_contract_names():
    schemas = DOCUMENT["components"]["schemas"]
    assert set(schemas["CompactBody"]["properties"]) == {"level", "focus", "preserve", "target_tokens", "dry_run"}
    assert set(schemas["CompactAnswer"]["properties"]) >= {
        "compacted",
        "reason",
        "messages_removed",
        "tokens_before",
        "tokens_after",
        "tokens_saved",
        "report",
    }


def test_examples_are_what_their_schemas_say():
    for path in DOCUMENT["paths"].values():
        for operation in path.values():
            contents = [operation.get("requestBody", {}).get("content", {})]
            contents += [response.get("content", {}) for response in operation["responses"].values()]
            for content in contents:
                for described in content.values():
                    schema = {**described["schema"], "components": DOCUMENT["components"]}
                    for example in described.get("examples", {}).values():
                        jsonschema.validate(example["value"], schema)
