"""A session on a server counts the tools and the system prompt that its agent sends beside the messages."""

from __future__ import annotations

import pytest

from context_compactor.client import Client
from tests.tokens.test_prompt import WORDS, Declared, tools_in

QUESTION = {"role": "user", "content": "Hello"}


def test_they_are_given_with_the_session_and_fill_its_gauge(shared):
    made = shared.call(
        "POST", "/v1/sessions", {"window": 20_000, "tools": tools_in("openai-chat", 47), "system": WORDS}
    )
    assert made.status == 201
    path = f"/v1/sessions/{made.json['id']}"
    appended = shared.call("POST", f"{path}/messages", {"messages": [QUESTION]}).json
    assert appended["tokens"] > 2_000
    shown = shared.call("GET", path).json
    assert shown["usage"]["tokens"] == shown["tokens"] == appended["tokens"]
    assert shown["usage"]["sections"]["tools"] > 2_000
    again = shared.call("POST", "/v1/sessions", {"id": made.json["id"], "window": 20_000, "tools": []})
    assert (again.status, again.json["tokens"] < 100) == (200, True)
    assert shared.call("GET", f"{path}/context").json["messages"] == [QUESTION]


@pytest.mark.parametrize("given", [{"tools": "read"}, {"tools": ["read"]}, {"tools": {"name": "read"}}, {"system": 7}])
def test_what_is_neither_is_refused(shared, given):
    refused = shared.call("POST", "/v1/sessions", {"id": "none", "window": 20_000, **given})
    assert refused.status in (400, 422)
    assert next(iter(given)) in refused.json["detail"]
    assert shared.call("GET", "/v1/sessions/none").status == 404


def test_clients_take_objects_of_sdks(shared):
    with Client(shared.url) as client:
        made = client.create(window=20_000, tools=[Declared()], system=[{"type": "text", "text": WORDS}])
        client.append(made.id, QUESTION)
        assert client.session(made.id).usage.sections.tools > 20
