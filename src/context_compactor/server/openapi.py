"""The OpenAPI document, made from the declared verbs and the types they name."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor import __version__
from context_compactor.engine.report import Report
from context_compactor.server.openapi_examples import EXAMPLES, PROBLEMS
from context_compactor.server.problems import MEDIA_TYPE
from context_compactor.sessions import schemas as api
from context_compactor.sessions.verbs import VERBS, AnyVerb
from context_compactor.store.events import Event

_REF = "#/components/schemas/{name}"
# What a component is called where that is not the name of its class.
_PUBLIC_NAMES = {"CheckpointSpan": "Span", "Spending": "Spent"}
_PROBLEMS = {
    400: "The body is not JSON, or not the gzip that it is called; or a header has a value that it cannot have",
    401: "No token, or one that is not known",
    403: "The token may only read, or the page may not call",
    404: "No such session, original, webhook or path",
    405: "The path is there, but not for this method; `Allow` says for which",
    409: "The context has changed meanwhile, or somebody has cancelled it",
    413: "The body is too large, packed or unpacked, or has too many lists and objects",
    415: "The body is not called JSON, or has another `Content-Encoding` than gzip",
    422: "Something given cannot be used; `detail` says what and what to try",
    500: "The server failed; its log says why under `ref`",
    502: "The model did not answer, or was stopped",
    503: "The store is busy or cannot be used; try again",
}

# What is answered without a body.
_EMPTY = {204: "It is deleted", 304: "Not changed"}

_HEADERS: dict[str, dict[str, Any]] = {
    "If-None-Match": {"type": "string"},
    "Last-Event-ID": {"type": "string", "maxLength": 100, "pattern": "^[!-~]+$"},
    api.IDEMPOTENCY_KEY: {"type": "string", "maxLength": 200, "pattern": "^[ -~]+$"},
}
_GZIP_NOTE = "With `Content-Encoding: gzip` it may be packed; the limits count for what is unpacked."

_NON_JSON = {
    "events": "Events as they happen, each with its `id`; the `data` of each is an `Event`",
    "metrics": "Numbers, as Prometheus reads them",
}
# Of what a webhook is sent.
_WEBHOOK_HEADERS = {
    "webhook-id": "The id of the event: the same when it is sent again",
    "webhook-timestamp": "When it was signed, in seconds since 1970",
    "webhook-signature": "`v1,` and the signature, made with the secret of the webhook",
}


@cache
def document(verbs: tuple[AnyVerb, ...] = VERBS) -> bytes:
    """The whole document as JSON."""
    kinds = {kind for verb in verbs for kind in (verb.request, verb.answer) if issubclass(kind, Struct)}
    kinds |= {api.Problem, Event, Report}
    _, schemas = msgspec.json.schema_components(sorted(kinds, key=lambda kind: kind.__name__), ref_template=_REF)
    # What a report computes is sent with it.
    schemas["Report"]["properties"] |= {"tokens_saved": {"type": "integer"}, "reduction_percent": {"type": "number"}}
    for name in ("Report", "Fact"):  # read, never sent
        del schemas[name]["properties"]["told_by"]
    for name, public in _PUBLIC_NAMES.items():
        schemas[public] = {**schemas.pop(name), "title": public}
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Context Compactor",
            "version": __version__,
            "summary": "Keeps agents inside their context windows, and loses nothing.",
            "description": "Errors are `application/problem+json`; the last part of their `type` names them. "
            "A path that is not here is answered with 404, another method than those here with 405.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"bearer": []}, {}],
        "paths": _paths(verbs, schemas),
        "webhooks": {"event": {"post": _webhook()}},
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": {str(status): _problem(status) for status in _PROBLEMS},
        },
    }
    encoded = msgspec.json.encode(whole)
    for name, public in _PUBLIC_NAMES.items():
        encoded = encoded.replace(b'/schemas/%b"' % name.encode(), b'/schemas/%b"' % public.encode())
    return encoded


def _paths(verbs: tuple[AnyVerb, ...], schemas: dict[str, Any]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for verb in verbs:
        method, operation = verb.method.lower(), _operation(verb, schemas)
        paths.setdefault(verb.path, {})[method] = operation
        if verb.former_path:
            former = {"operationId": f"{verb.name}_former", "deprecated": True}
            paths.setdefault(verb.former_path, {})[method] = operation | former
    return paths


def _operation(verb: AnyVerb, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": verb.name,
        "tags": [verb.tag],
        "summary": verb.doc.split("\n")[0],
        "description": verb.doc,
        "parameters": _parameters(verb, schemas),
        "responses": _responses(verb),
    }
    if verb.body is not None:
        required = bool(schemas[verb.body.__name__].get("required"))
        content = _content(verb.body)
        operation["requestBody"] = {"description": _GZIP_NOTE, "required": required, "content": content}
    if verb.is_open:
        operation["security"] = []
    return operation


def _parameters(verb: AnyVerb, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    names = [name for name in ("id", "ref") if f"{{{name}}}" in verb.path]
    found = [_parameter(name, "path", _path_schema(name), required=True) for name in names]
    query = schemas[verb.query.__name__]
    required = query.get("required", ())
    for name, schema in query.get("properties", {}).items():
        found.append(_parameter(name, "query", _without_null(schema), required=name in required))
    headers = (*verb.headers, api.IDEMPOTENCY_KEY) if verb.writes else verb.headers
    return [*found, *(_parameter(name, "header", _HEADERS[name]) for name in headers)]


def _parameter(name: str, where: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    example = EXAMPLES.get(name)
    more = {"example": example} if example is not None else {}
    return {"name": name, "in": where, "required": required, "schema": schema, **more}


def _path_schema(name: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": 200 if name == "id" else 100}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what is not wanted is left out."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else {name: value for name, value in schema.items() if value is not None}


def _responses(verb: AnyVerb) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": _EMPTY[status]} if status in _EMPTY else _success(verb) for status in verb.statuses
    }
    if verb.name == "context":
        responses["200"]["headers"] = {"ETag": {"schema": {"type": "string"}, "description": "Names this context"}}
    for status in _statuses(verb):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return responses


def _success(verb: AnyVerb) -> dict[str, Any]:
    if not verb.is_json:
        content = {"schema": {"type": "string"}, **_examples(verb.name)}
        return {"description": _NON_JSON[verb.name], "content": {verb.media_type: content}}
    return {"description": (verb.answer.__doc__ or "").split("\n")[0], "content": _content(verb.answer)}


def _content(kind: type[Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=kind.__name__)}, **_examples(kind.__name__)}}


def _examples(name: str) -> dict[str, Any]:
    return {"examples": {"typical": {"value": EXAMPLES[name]}}} if name in EXAMPLES else {}


def _statuses(verb: AnyVerb) -> list[int]:
    """The problems that a route can have."""
    if verb.is_open:
        return [422, 500, 503]
    found = [401, 403, 422, 500, 503]
    found += [404] if "{id}" in verb.path else []
    found += [400] if verb.body or verb.writes else []
    found += [413, 415] if verb.body else []
    return sorted([*found, *verb.errors])


def _problem(status: int) -> dict[str, Any]:
    return {
        "description": _PROBLEMS[status],
        "content": {
            MEDIA_TYPE: {
                "schema": {"$ref": _REF.format(name="Problem")},
                "examples": {"typical": {"value": PROBLEMS[status]}},
            }
        },
    }


def _webhook() -> dict[str, Any]:
    return {
        "summary": "Send an event to a webhook.",
        "description": "What the server sends to an address that was given to `POST /v1/webhooks`, at least once.",
        "parameters": [
            {**_parameter(name, "header", {"type": "string"}, required=True), "description": text}
            for name, text in _WEBHOOK_HEADERS.items()
        ],
        "requestBody": {"required": True, "content": _content(Event)},
        "responses": {"2XX": {"description": "It was taken; anything else is tried again later"}},
    }
