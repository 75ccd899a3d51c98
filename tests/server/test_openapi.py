"""The OpenAPI document says what the server does: real requests made from it are answered as it says."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from context_compactor.server.openapi import document
from context_compactor.sessions.verbs import VERBS
from context_compactor.store.events import EVENT_TYPES
from tests.cli.conftest import conversation
from tests.server.running import running
from tests.server.streams import Frame, following

DOCUMENT = json.loads(document())


def _operation(path: str, method: str):
    return DOCUMENT["paths"][path][method].items()


OPERATIONS = [
    (path, method)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if not operation.get("deprecated")
]
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


SESSION = "/v1/sessions/compacted"
# What only a lucky guess could make succeed: an address that is public, and an original that is there.
GUESSED = ("/v1/webhooks", "/v1/sessions/{id}/restore", "/v1/sessions/{id}/handoff/answer")


@pytest.fixture(scope="module")
def described(shared):
    """The document as the server gives it, read by a program that makes requests of it."""
    import schemathesis  # takes seconds to load

    assert shared.get("/openapi.json").json == DOCUMENT
    shared.made("compacted")
    shared.post(f"{SESSION}/messages", {"messages": conversation()})
    assert shared.post(f"{SESSION}/compact", {"target_tokens": 9_000}).json["compacted"]
    return schemathesis.openapi.from_dict(DOCUMENT)


def _webhook(server) -> str:
    """A webhook that will never be told anything: no server has such events."""
    given = {"url": "https://93.184.216.34/hook", "types": ["fact.promoted"]}
    made = server.post("/v1/webhooks", given)
    assert made.status == 201, made.raw
    return made.json["id"]


def _known(server, path: str, method: str) -> dict[str, str]:
    """Names of an address that are there."""
    if path.startswith("/v1/webhooks/"):
        return {"id": _webhook(server)}
    if method == "delete":
        return {"id": server.made().rpartition("/")[2]}
    known = {"id": "compacted", "ref": server.get(f"{SESSION}/archive?limit=1").json["originals"][0]["id"]}
    return {name: value for name, value in known.items() if f"{{{name}}}" in path}


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
    known = _known(shared, path, method) if mode == "positive" else {}
    more = {"path_parameters": known} if known else {}
    seen = set()

    @CALM
    @given(described[path][method].as_strategy(GenerationMode(mode), **more))
    def send(case) -> None:
        seen.add(case.call_and_validate(base_url=shared.url, checks=wanted).status_code)

    send()
    if mode == "positive" and path not in GUESSED:
        assert seen & {200, 201, 204}, seen


def test_every_operation_is_described():
    operations = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(operations) == len(VERBS) + sum(bool(verb.former_path) for verb in VERBS)
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert re.fullmatch(r"[A-Z][^.\n]{10,}\.([^.\n]+\.)*", operation["summary"]), operation["summary"]
        assert {"200", "201", "204"} & set(operation["responses"])
        assert "500" in operation["responses"]


def test_the_contract_names_are_all_there():
    wanted = """
        POST /v1/sessions | GET /v1/sessions | GET /v1/sessions/{id} | POST /v1/sessions/{id}/messages
        | GET /v1/sessions/{id}/context | GET /v1/sessions/{id}/history | POST /v1/sessions/{id}/compact
        | GET /v1/sessions/{id}/compactions | POST /v1/sessions/{id}/undo | GET /v1/sessions/{id}/archive
        | GET /v1/sessions/{id}/archive/{ref} | GET /v1/sessions/{id}/search | GET /v1/sessions/{id}/facts
        | GET /v1/sessions/{id}/checkpoint | POST /v1/sessions/{id}/handoff | GET /v1/events | POST /v1/webhooks
        | GET /v1/webhooks | DELETE /v1/webhooks/{id} | GET /metrics | GET /healthz | GET /readyz"""
    for operation in wanted.split("|"):
        method, path = operation.split()
        assert method.lower() in DOCUMENT["paths"][path]


def test_components_keep_their_names_whatever_the_classes_are_called():
    """Programs that were generated from the document name their types so."""
    wanted = """
        AppendAnswer AppendBody ArchiveLine ArchivePage Archived AttemptAnswer Cache CancelAnswer Checkpoint
        CheckpointAnswer CheckpointBody CompactAnswer CompactBody CompactionPage ContextAnswer ContextQuery Cost
        CreateBody Decision DeliveriesAnswer DeliveryAnswer DirtyFile Discarded Event EventsQuery Expected Fact
        FactsAnswer FactsQuery Fidelity FileMark FloorPart GitState HandoffAnswer HandoffBody HandoffRequest
        HealthAnswer HistoryAnswer HistoryQuery Hit Items Kind Level Metrics Missing ModelCall NoQuery
        OriginalAnswer PageQuery Placed PlanAnswer PlanQuery Preserved Problem RecallAnswer RecallQuery
        ReceiveAnswer ReceiveBody RemovedAnswer ReplayAnswer ReplayBody Report RestoreAnswer RestoreBody
        SearchAnswer SearchQuery Sections SessionAnswer SessionDetail SessionPage Span Spent Summarized
        Tier TierBody TiersAnswer Totals TurnTier UndoAnswer UsageAnswer WebhookAnswer WebhookBody WebhookMade
        WebhooksAnswer"""
    assert sorted(DOCUMENT["components"]["schemas"]) == wanted.split()


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


def _contents():
    """Everything that is asked or answered, with a name: (name, its media type and what is said of it)."""
    operations = [(f"{method} {path}", DOCUMENT["paths"][path][method]) for path, method in OPERATIONS]
    operations.append(("webhook", DOCUMENT["webhooks"]["event"]["post"]))
    for name, operation in operations:
        for kind, described in operation.get("requestBody", {}).get("content", {}).items():
            yield f"{name} body", kind, described
        for status, response in operation["responses"].items():
            for kind, described in response.get("content", {}).items():
                yield f"{name} {status}", kind, described
    for status, response in DOCUMENT["components"]["responses"].items():
        for kind, described in response["content"].items():
            yield f"problem {status}", kind, described


CONTENTS = {name: (kind, described) for name, kind, described in _contents()}


def _strict() -> dict:
    """The document's schemas with nothing left out and nothing added: what an answer has must be said, and be there."""
    schemas = json.loads(json.dumps(DOCUMENT["components"]["schemas"]))
    for name, schema in schemas.items():
        if "properties" in schema and name != "Problem" and not name.endswith("Body"):
            schema |= {"required": list(schema["properties"]), "additionalProperties": False}
    return {"schemas": schemas}


STRICT = _strict()


def _check(value, described) -> None:
    jsonschema.validate(value, {**described["schema"], "components": STRICT})


@pytest.mark.parametrize("name", CONTENTS)
def test_everything_has_an_example_that_is_what_its_schema_says(name):
    _, described = CONTENTS[name]
    examples = [example["value"] for example in described["examples"].values()]
    assert examples
    for example in examples:
        _check(example, described)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What a real run was answered, by the names of `CONTENTS`."""
    found = {}
    with running(tmp_path_factory.mktemp("ran")) as server:

        def call(method: str, path: str, body=None, *, known: str = ""):
            got = server.call(
                method.upper(), path.replace("{id}", known or "run-42").replace("{ref}", "tool_001"), body
            )
            name = f"{method} {path.partition('?')[0]} {got.status}"
            found[name] = got.json if CONTENTS[name][0] == "application/json" else got.raw.decode()
            return found[name]

        for _ in range(2):
            call("post", "/v1/sessions", {"id": "run-42", "window": 200_000})
        call("post", "/v1/sessions/{id}/messages", {"messages": conversation()})
        call("post", "/v1/sessions/{id}/tiers", {"turn": 5, "tier": "keep"})
        call("get", "/v1/sessions/{id}/plan?target_tokens=9000&keep=7&drop=9")
        call("post", "/v1/sessions/{id}/cancel")
        call("post", "/v1/sessions/{id}/compact", {"target_tokens": 9_000, "focus": "the parser"})
        for look in (
            "",
            "/tiers",
            "/context",
            "/history?limit=2",
            "/compactions",
            "/archive?limit=2",
            "/archive/{ref}",
            "/facts",
        ):
            call("get", f"/v1/sessions/{{id}}{look}")
        call("get", "/v1/sessions/{id}/search?q=part_7_3")
        call("get", "/v1/sessions/{id}/checkpoint")
        call("post", "/v1/sessions/{id}/checkpoint", {"note": "mind the gap"})
        call("post", "/v1/sessions/{id}/restore", {"ref": "tool_001"})
        asked = call("post", "/v1/sessions/{id}/handoff", {"phase": "write", "task": "Run the tests"})["request"]
        answer = {"task_id": asked["task_id"], "phase": "write", "status": "complete", "decision": "PROCEED"}
        call("post", "/v1/sessions/{id}/handoff/answer", {"answer": {**answer, "context_summary": "They pass."}})
        call("post", "/v1/sessions/{id}/undo")
        call("post", "/v1/sessions/{id}/redo")
        call("get", "/v1/sessions")
        url = {"url": "https://93.184.216.34/hook", "types": ["fact.promoted"]}
        webhook = call("post", "/v1/webhooks", url)["id"]
        call("get", "/v1/webhooks")
        for look in ("", "/deliveries"):
            call("get", f"/v1/webhooks/{{id}}{look}", known=webhook)
        call("post", "/v1/webhooks/{id}/replay", {}, known=webhook)
        call("delete", "/v1/webhooks/{id}", known=webhook)
        call("get", "/metrics")
        call("get", "/healthz")
        call("get", "/readyz")
        with following(server, "?last_event_id=0") as stream:
            found["get /v1/events 200"] = result = stream.told()[0]
            found["webhook body"] = result.json
    return found


@pytest.mark.parametrize("name", [name for name in CONTENTS if name.endswith(("200", "201", "webhook body"))])
def test_what_is_answered_in_a_real_run_has_the_fields_of_the_document(ran, name):
    kind, described = CONTENTS[name]
    if kind == "application/json":
        _check(ran[name], described)
    elif kind == "text/event-stream":
        example = Frame(described["examples"]["typical"]["value"].splitlines()[:-1])
        assert example.fields.keys() == ran[name].fields.keys()
        assert (
            example.json.keys()
            == ran[name].json.keys()
            == DOCUMENT["components"]["schemas"]["Event"]["properties"].keys()
        )
    else:
        lines = described["examples"]["typical"]["value"].splitlines()
        assert {line.rpartition(" ")[0] for line in lines[2:]} <= {
            line.rpartition(" ")[0] for line in ran[name].splitlines()
        }


def test_an_event_has_the_envelope_of_the_contract():
    envelope = DOCUMENT["components"]["schemas"]["Event"]["properties"]
    assert set(envelope) == {"id", "type", "session_id", "created_at", "payload"}
    assert set(envelope["type"]["enum"]) == set(EVENT_TYPES)


@pytest.mark.parametrize("status", DOCUMENT["components"]["responses"])
def test_the_example_of_a_problem_has_its_status(status):
    _, described = CONTENTS[f"problem {status}"]
    assert described["examples"]["typical"]["value"]["status"] == int(status)


def test_problems_are_told_where_they_can_come():
    def statuses(method: str, path: str) -> set[str]:
        return set(DOCUMENT["paths"][path][method]["responses"])

    assert {"413", "415", "400"} <= statuses("post", "/v1/sessions/{id}/messages")
    assert "502" in statuses("post", "/v1/sessions/{id}/compact") & statuses("post", "/v1/sessions/{id}/handoff")
    assert "409" in statuses("post", "/v1/sessions/{id}/restore")
    assert all("503" in statuses(method, path) for path, method in OPERATIONS)
