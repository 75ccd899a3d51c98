"""Nothing crosses from one namespace to another: what belongs to somebody else is answered as what never was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from context_compactor.server.tokens import add_token
from context_compactor.sessions.verbs import VERBS
from tests.cli.conftest import conversation
from tests.server.receivers import receiving
from tests.server.running import Got, Running, running
from tests.server.streams import event, following

SECRET = "omega_secret_of_red"
THEIRS, NOBODYS = "plans-of-red", "plans-of-xyz"
BODIES: dict[str, Any] = {
    "append": {"messages": [{"role": "user", "content": "Hello"}]},
    "restore": {"ref": "tool_001"},
    "compact": {"target_tokens": 9_000},
    "handoff": {"phase": "write", "task": "Go on."},
    "receive": {"answer": {"task_id": "t", "phase": "write"}},
    "replay": {"after": ""},
}
QUERIES = {"search": "?q=part", "recall": "?page=1"}
OF_SESSIONS = [route for route in VERBS if route.path.startswith("/v1/sessions/{id}")]
OF_WEBHOOKS = [route for route in VERBS if route.path.startswith("/v1/webhooks/{id}")]
PAGES = [
    "",
    "/now",
    "/series.json",
    "/compactions",
    "/archive",
    "/facts",
    "/plan",
    "/archive/tool_001",
    "/archive/turn_001",
]


class Walled(Running):
    """A server with a session and a webhook of the namespace `red`."""

    secrets: dict[str, str]
    webhook: str

    def as_(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets[name]}"}


@pytest.fixture(scope="module")
def walled(tmp_path_factory) -> Iterator[Walled]:
    folder = tmp_path_factory.mktemp("walled")
    tokens = folder / "tokens"
    names = {"red": "red", "blue": "blue", "plain": "", "re": "re", "reda": "reda"}
    secrets = {name: add_token(tokens, name, space, read_only=False) for name, space in names.items()}
    with running(folder, token_file=tokens, allow_private_webhooks=True) as made, receiving() as receiver:
        made.__class__ = Walled
        made.secrets = secrets
        red = made.as_("red")
        assert made.post("/v1/sessions", {"id": THEIRS, "window": 200_000}, **red).status == 201
        said = [{"role": "user", "content": f"The word is {SECRET}."}, *conversation()[1:]]
        path = f"/v1/sessions/{THEIRS}"
        assert made.post(f"{path}/messages", {"messages": said}, **red).status == 200
        assert made.post(f"{path}/compact", {"target_tokens": 9_000}, **red).json["compacted"]
        made.webhook = made.post("/v1/webhooks", {"url": receiver.url, "types": ["job.dropped"]}, **red).json["id"]
        yield made


def told(got: Got, name: str) -> tuple[int, dict[str, str], bytes]:
    """An answer without what differs in any two answers: its time, and the name that was asked for."""
    headers = {key: value for key, value in got.headers.items() if key not in ("date", "server-timing")}
    return got.status, headers, got.raw.replace(name.encode(), b"NAME")


@pytest.mark.parametrize("who", ["blue", "plain", "re", "reda"])
@pytest.mark.parametrize("route", OF_SESSIONS, ids=lambda route: f"{route.method} {route.path}")
def test_a_session_of_another_namespace_is_answered_as_one_that_never_was(walled: Walled, route, who: str):
    answers = []
    for name in (THEIRS, NOBODYS):
        path = route.path.replace("{id}", name).replace("{ref}", "tool_001") + QUERIES.get(route.name, "")
        got = walled.call(route.method, path, BODIES.get(route.name), **walled.as_(who))
        assert (got.status, got.problem) == (404, "unknown-session")
        assert SECRET.encode() not in got.raw
        answers.append(told(got, name))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("route", OF_WEBHOOKS, ids=lambda route: f"{route.method} {route.path}")
def test_a_webhook_of_another_namespace_is_answered_as_one_that_never_was(walled: Walled, route):
    never = walled.webhook[:-4] + "zzzz"
    answers = []
    for name in (walled.webhook, never):
        got = walled.call(route.method, route.path.replace("{id}", name), BODIES.get(route.name), **walled.as_("blue"))
        assert got.status == 404
        answers.append(told(got, name))
    assert answers[0] == answers[1]
    assert walled.get(f"/v1/webhooks/{walled.webhook}", **walled.as_("red")).status == 200


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_another_namespace_is_shown_as_one_that_never_was(walled: Walled, page: str):
    cookie = walled.call(
        "POST",
        "/login",
        f"token={walled.secrets['blue']}".encode(),
        Content_Type="application/x-www-form-urlencoded",
        Origin=walled.url,
    ).headers["set-cookie"]
    answers = []
    for name in (THEIRS, NOBODYS):
        got = walled.get(f"/sessions/{name}{page}", Cookie=cookie.partition(";")[0])
        assert SECRET.encode() not in got.raw
        answers.append((got.status, got.raw.replace(name.encode(), b"NAME")))
    assert answers[0][0] == 404
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", [THEIRS, NOBODYS])
def test_events_of_another_namespace_are_never_sent_whoever_asks_for_its_session(walled: Walled, name: str):
    with following(walled, f"?session_id={name}&last_event_id=0", **walled.as_("blue")) as stream:
        walled.service.bus.emit(event("job.dropped", f"red/{name}", reason=SECRET))
        walled.service.bus.emit(event("job.queued", f"blue/{name}", number=1))
        first = stream.told()[0]
    assert (first.kind, first.json["session_id"], first.json["payload"]) == ("job.queued", name, {"number": 1})


def test_a_stream_of_everything_is_of_ones_own_namespace(walled: Walled):
    kept = walled.service.service_store.events.after(0)
    theirs = next(each.event.id for each in kept if each.event.session_id == f"red/{THEIRS}")
    never = theirs[:-1] + ("0" if theirs[-1] != "0" else "1")
    for last_id in ("0", theirs, never):
        with following(walled, f"?last_event_id={last_id}", **walled.as_("re")) as stream:
            walled.service.bus.emit(event("job.queued", "re/own", number=7))
            if last_id != "0":  # an event of others is told apart from none at all by nobody
                assert stream.told()[0].kind == "gap"
            assert [frame.json["session_id"] for frame in stream.told(1)] == ["own"]


def test_a_reference_of_another_namespace_opens_nothing_in_a_session_of_ones_own(walled: Walled):
    blue = walled.as_("blue")
    walled.post("/v1/sessions", {"id": "own", "window": 200_000}, **blue)
    walled.post("/v1/sessions/own/messages", {"messages": conversation(4)}, **blue)
    archived = walled.get(f"/v1/sessions/{THEIRS}/archive", **walled.as_("red")).json["originals"]
    for item in archived[:5]:
        for method, path, body in (
            ("GET", f"/v1/sessions/own/archive/{item['id']}", None),
            ("POST", "/v1/sessions/own/restore", {"ref": item["id"]}),
        ):
            got = walled.call(method, path, body, **blue)
            assert SECRET.encode() not in got.raw
            assert THEIRS.encode() not in got.raw
            assert b"red/" not in got.raw
    hits = walled.get(f"/v1/sessions/own/search?q={SECRET}", **blue)
    assert SECRET.encode() not in hits.raw.replace(f'"query":"{SECRET}"'.encode(), b"")


def test_the_same_error_in_two_namespaces_teaches_neither_of_the_other(walled: Walled):
    """What several sessions of a project have met is kept as a lesson, but never over a wall."""
    failing = [
        {"role": "user", "content": "Run the tests."},
        {
            "role": "assistant",
            "content": "Running.",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "pytest -q"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": f"E   KeyError: '{SECRET}'\n1 failed in 0.1s"},
        {"role": "assistant", "content": "It fails."},
        {"role": "user", "content": "Go on."},
    ]
    for who, name in (("red", "one"), ("red", "two"), ("red", "three"), ("blue", "mine")):
        path = f"/v1/sessions/{name}"
        walled.post("/v1/sessions", {"id": name, "window": 200_000}, **walled.as_(who))
        messages = failing if who == "red" else [{"role": "user", "content": "Hello"}]
        walled.post(f"{path}/messages", {"messages": [*conversation()[1:-1], *messages]}, **walled.as_(who))
        walled.post(f"{path}/compact", {"target_tokens": 9_000}, **walled.as_(who))
    for what in ("context", "facts", "checkpoint", "compactions"):
        assert SECRET.encode() not in walled.get(f"/v1/sessions/mine/{what}", **walled.as_("blue")).raw, what
