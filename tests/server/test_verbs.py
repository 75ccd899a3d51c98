"""A verb is declared once: its route, the methods of both clients and its place in the OpenAPI document follow."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading

import uvicorn
from msgspec import Struct

from context_compactor.client import AsyncClient, Client
from context_compactor.server.app import make_app
from context_compactor.server.config import ServerConfig, bind
from context_compactor.server.listener import Listener
from context_compactor.server.openapi import document
from context_compactor.server.requests import HANDLERS, RequestContext, handles
from context_compactor.server.service import Service
from context_compactor.sessions.schemas import Answer, Body
from context_compactor.sessions.verbs import VERBS, Verb, VerbCall, Verbs, verb, verbs_of
from tests.waiting import wait_for


class LabelBody(Body, frozen=True):
    """A label for a session."""

    text: str


class LabelAnswer(Answer, frozen=True):
    """The label that a session has now."""

    session_id: str
    label: str


class LabelVerbs(Verbs):
    """All verbs, and one that nobody else knows."""

    @verb("POST /v1/sessions/{id}/label", LabelBody, LabelAnswer, tag="labels", errors=(409,))
    def label(self, session_id: str, text: str) -> VerbCall[LabelBody]:
        """Give a session a label that people read."""
        return VerbCall(LabelBody(text=text), session_id)


@handles(LabelVerbs.label)
async def label(request: RequestContext[LabelBody]) -> LabelAnswer:
    return LabelAnswer(session_id=request.id, label=request.params.text.upper())


class LabelClient(LabelVerbs, Client):
    """A client with the new verb."""


class AsyncLabelClient(LabelVerbs, AsyncClient):
    """The same, to be awaited."""


def test_a_new_verb_is_answered_by_its_handler_and_called_by_both_clients(tmp_path):
    service = Service(ServerConfig(store=f"sqlite:///{tmp_path}/compactor.db", port=0, workers=0))
    app = make_app(service, verbs=verbs_of(LabelVerbs))
    listener = Listener(uvicorn.Config(app, lifespan="on", log_config=None), service.begin_shutdown)
    listening = bind("127.0.0.1", 0)
    thread = threading.Thread(target=listener.run, args=([listening],))
    thread.start()
    try:
        wait_for(lambda: listener.started or not thread.is_alive())
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        expected = LabelAnswer(session_id="run-1", label="LOGIN")
        with LabelClient(url) as client:
            assert client.label("run-1", "login") == expected
            assert client.create("run-1", window=200_000).id == "run-1"

        async def labelled() -> LabelAnswer:
            async with AsyncLabelClient(url) as client:
                return await client.label("run-1", text="login")

        assert asyncio.run(labelled()) == expected
    finally:
        listener.should_exit = True
        thread.join()
        listening.close()


def test_a_new_verb_stands_in_the_openapi_document():
    described = json.loads(document(verbs_of(LabelVerbs)))
    operation = described["paths"]["/v1/sessions/{id}/label"]["post"]
    assert operation["operationId"] == "label"
    assert operation["summary"] == "Give a session a label that people read."
    assert operation["requestBody"]["required"]
    assert {"200", "404", "409", "422"} <= operation["responses"].keys()
    assert described["components"]["schemas"]["LabelBody"]["required"] == ["text"]


def test_every_verb_has_a_handler_and_a_place_of_its_own():
    assert set(VERBS) <= set(HANDLERS)
    assert len({(each.method, each.path) for each in VERBS}) == len(VERBS)
    assert len({each.name for each in VERBS}) == len(VERBS)


def test_every_verb_of_the_clients_makes_a_request_of_its_type():
    values = {
        "lines": None,
        "usage": None,
        "tiers": {3: "keep"},
        "steers": None,
        "message": {"role": "user", "content": "Hello"},
        "window": 200_000,
        "tools": [{"name": "read"}],
    }
    for declared in (each for each in vars(Verbs).values() if isinstance(each, Verb)):
        names = list(inspect.signature(declared.arguments).parameters)[1:]
        call = declared.call(**{name: values.get(name, "x") for name in names})
        assert type(call.request) is declared.request, declared.name
        assert isinstance(call.request, Struct)
        assert ("{id}" in declared.path) == bool(call.id)
        assert ("{ref}" in declared.path) == bool(call.ref)
