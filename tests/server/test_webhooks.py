"""Webhooks are told every event, in order and at least once; they cannot be used to reach what is inside."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.client import Client
from context_compactor.errors import BadSetting
from context_compactor.server import webhook_delivery
from context_compactor.server.tokens import add_token
from context_compactor.server.webhook_delivery import MAX_FAILURES, WebhookSender, is_public, read_target
from tests.server import receivers
from tests.server.receivers import receiving, status
from tests.server.running import running
from tests.server.streams import tell
from tests.waiting import PATIENCE, wait_for

ROOT = Path(__file__).parent.parent.parent


CERTIFICATE = Path(__file__).parent / "certificate" / "hooks_invalid.pem"


def hurry(server) -> None:
    """Wait for nothing for long."""
    server.service.sender.first_wait = 0.001
    server.service.sender.poll_seconds = 0.02
    server.service.sender.answer_seconds = 0.7


@pytest.fixture
def inside(tmp_path):
    """A server that may tell this machine."""
    with running(tmp_path, allow_private_webhooks=True) as server:
        hurry(server)
        yield server


def add(server, url: str, *types: str, **headers: str):
    got = server.post("/v1/webhooks", {"url": url, "types": list(types)}, **headers)
    assert got.status == 201, got.raw
    return got.json


def standing(server, webhook_id: str):
    return server.get(f"/v1/webhooks/{webhook_id}").json


def attempts(server, webhook_id: str):
    return server.get(f"/v1/webhooks/{webhook_id}/deliveries").json["attempts"]


def test_a_webhook_is_told_each_event_in_order_with_its_id_and_a_signature(inside):
    with receiving() as receiver:
        made = add(inside, receiver.url)
        ids = tell(inside, *range(5))
        wait_for(lambda: len(receiver.requests) == 5)
        bodies = [json.loads(request.body) for request in receiver.requests]
        assert [body["payload"]["number"] for body in bodies] == list(range(5))
        assert [request.headers["webhook-id"] for request in receiver.requests] == ids
        assert bodies[0].keys() == {"id", "type", "session_id", "created_at", "payload"}
        first = receiver.requests[0]
        assert first.line == "POST /hook?to=me HTTP/1.1"
        assert first.headers["content-type"] == "application/json"
        assert first.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert first.headers["webhook-signature"] == _signature(made["secret"], first)
        wait_for(lambda: len(attempts(inside, made["id"])) == 5)
        assert {(each["attempt"], each["status"], each["reason"]) for each in attempts(inside, made["id"])} == {
            (1, 204, "")
        }


def test_the_example_of_the_documentation_verifies_what_is_sent_and_nothing_else(inside):
    page = (ROOT / "docs/how-to/webhooks.md").read_text()
    code = re.search(r"```python\n(import base64.*?)```", page, re.DOTALL)
    assert code is not None
    assert len(code[1].strip().splitlines()) <= 9  # two of them are imports, one is blank
    names: dict = {}
    exec(code[1], names)
    with receiving() as receiver:
        secret = add(inside, receiver.url)["secret"]
        tell(inside, 1)
        wait_for(lambda: bool(receiver.requests))
        request = receiver.requests[0]
    is_genuine = names["is_genuine"]
    assert is_genuine(secret, request.headers, request.body)
    assert not is_genuine(secret, request.headers, request.body + b" ")
    assert not is_genuine(secret, {**request.headers, "webhook-id": "other"}, request.body)
    assert not is_genuine(secret, {**request.headers, "webhook-timestamp": "1000000000"}, request.body)
    old = _signed_at(secret, request, 1_000_000_000)
    assert not is_genuine(secret, old, request.body)


def test_only_the_wanted_types_of_the_own_namespace_are_told(tmp_path):
    tokens = tmp_path / "tokens"
    mine, theirs = (add_token(tokens, name, name, read_only=False) for name in ("mine", "theirs"))
    with running(tmp_path, token_file=tokens, allow_private_webhooks=True) as server, receiving() as receiver:
        made = add(server, receiver.url, "job.dropped", Authorization=f"Bearer {mine}")
        tell(server, 1, kind="job.dropped", session_id="theirs/run")
        tell(server, 2, session_id="mine/run")
        tell(server, 3, kind="job.dropped", session_id="mine/run")
        wait_for(lambda: bool(receiver.requests))
        body = json.loads(receiver.requests[0].body)
        assert (body["payload"], body["session_id"]) == ({"number": 3}, "run")
        path = f"/v1/webhooks/{made['id']}"
        for method, where in (
            ("GET", path),
            ("DELETE", path),
            ("GET", f"{path}/deliveries"),
            ("POST", f"{path}/replay"),
        ):
            got = server.call(method, where, Authorization=f"Bearer {theirs}")
            assert (got.status, got.problem) == (404, "not-found")
        assert server.get("/v1/webhooks", Authorization=f"Bearer {theirs}").json == {"webhooks": []}


def test_a_secret_is_shown_once(inside):
    made = add(inside, "https://192.0.2.1/hook")
    listed = inside.get("/v1/webhooks")
    assert [each["id"] for each in listed.json["webhooks"]] == [made["id"]]
    assert made["secret"].startswith("whsec_")
    assert b"whsec" not in listed.raw + inside.get(f"/v1/webhooks/{made['id']}").raw


def test_a_token_that_may_only_read_looks_and_changes_nothing(tmp_path):
    tokens = tmp_path / "tokens"
    token = add_token(tokens, "wall", "", read_only=True)
    with running(tmp_path, token_file=tokens) as server:
        allowed = {"Authorization": f"Bearer {token}"}
        assert server.get("/v1/webhooks", **allowed).status == 200
        assert server.post("/v1/webhooks", {"url": "https://example.org"}, **allowed).status == 403
        assert server.call("DELETE", "/v1/webhooks/wh_1", **allowed).status == 403
        assert server.post("/v1/webhooks/wh_1/replay", **allowed).status == 403
        assert server.get("/v1/webhooks").status == 401


def test_a_removed_webhook_is_told_nothing_more(inside):
    with receiving() as receiver:
        made = add(inside, receiver.url)
        assert inside.call("DELETE", f"/v1/webhooks/{made['id']}").json == {"id": made["id"]}
        tell(inside, 1)
        other = add(inside, receiver.url)
        tell(inside, 2)
        wait_for(lambda: len(receiver.requests) == 1)
        assert json.loads(receiver.requests[0].body)["payload"] == {"number": 2}
        assert standing(inside, other["id"])["is_enabled"]
        assert inside.get(f"/v1/webhooks/{made['id']}").status == 404


def test_the_client_has_a_verb_for_each_route(inside):
    with receiving() as receiver, Client(inside.url) as client:
        made = client.add_webhook(receiver.url, ["job.queued"])
        assert [each.id for each in client.webhooks()] == [made.id]
        ids = tell(inside, 1)
        wait_for(lambda: len(client.deliveries(made.id).attempts) == 1)
        assert client.deliveries(made.id).attempts[0].event_id == ids[0]
        assert client.replay(made.id) == 1
        wait_for(lambda: len(receiver.requests) == 2)
        client.remove_webhook(made.id)
        assert client.webhooks() == []


# What goes wrong


def test_what_failed_is_sent_again_until_it_arrives_and_the_order_stays(inside):
    with receiving(status(500), receivers.hung_up, status(503), status(200)) as receiver:
        made = add(inside, receiver.url)
        ids = tell(inside, 1, 2)
        wait_for(lambda: len(receiver.requests) == 5)
        assert [request.headers["webhook-id"] for request in receiver.requests] == [ids[0]] * 4 + [ids[1]]
        wait_for(lambda: len(attempts(inside, made["id"])) == 5)
        found = [(each["attempt"], each["status"]) for each in attempts(inside, made["id"])[::-1]]
        assert found == [(1, 500), (2, 0), (3, 503), (4, 200), (1, 200)]
        assert standing(inside, made["id"])["failures"] == 0


def test_waits_grow_and_have_an_end():
    sender = WebhookSender.__new__(WebhookSender)
    sender.first_wait = 5.0
    waits = [sender._wait(attempts) for attempts in range(1, 20)]
    assert all(0.9 * 5 * 2**at <= waits[at] <= 1.1 * 5 * 2**at for at in range(9))
    assert max(waits) <= 1.1 * 3600
    assert 0.9 * 2.42 <= sum(waits[: MAX_FAILURES - 1]) / 3600 <= 1.1 * 2.42  # hours until it is disabled


def test_after_too_many_failures_a_webhook_is_disabled_with_an_event_and_can_be_replayed(inside):
    with receiving(*[status(500)] * MAX_FAILURES, status(204)) as receiver:
        made = add(inside, receiver.url, "job.queued")
        first = tell(inside, 1)
        wait_for(lambda: not standing(inside, made["id"])["is_enabled"])
        found = standing(inside, made["id"])
        assert (found["failures"], found["reason"]) == (MAX_FAILURES, "it answered 500")
        wait_for(lambda: inside.service.service_store.events.after(0, types=["job.dropped"]))
        events = [kept.event for kept in inside.service.service_store.events.after(0, types=["job.dropped"])]
        assert [each.payload["webhook"] for each in events] == [made["id"]]
        missed = tell(inside, 2)
        got = inside.post(f"/v1/webhooks/{made['id']}/replay")
        assert got.json["queued"] >= 1
        wait_for(lambda: len(receiver.requests) == MAX_FAILURES + 2)
        assert [request.headers["webhook-id"] for request in receiver.requests[-2:]] == [*first, *missed]
        assert standing(inside, made["id"])["is_enabled"]


def test_what_was_told_can_be_told_again_from_any_event_on(inside):
    with receiving() as receiver:
        made = add(inside, receiver.url)
        ids = tell(inside, 1, 2, 3)
        wait_for(lambda: len(attempts(inside, made["id"])) == 3)
        assert inside.post(f"/v1/webhooks/{made['id']}/replay", {"after": ids[0]}).json == {"queued": 2, "owed": 2}
        wait_for(lambda: len(receiver.requests) == 5)
        assert [request.headers["webhook-id"] for request in receiver.requests[3:]] == ids[1:]


def test_one_that_is_gone_is_disabled_at_once(inside):
    with receiving(status(410)) as receiver:
        made = add(inside, receiver.url)
        tell(inside, 1)
        wait_for(lambda: not standing(inside, made["id"])["is_enabled"])
        assert len(receiver.requests) == 1


def test_a_webhook_that_fails_does_not_keep_others_waiting(inside):
    with receiving(receivers.silent) as bad, receiving() as good:
        add(inside, bad.url)
        add(inside, good.url)
        tell(inside, 1, 2, 3)
        wait_for(lambda: len(good.requests) == 3)


def test_what_was_not_told_before_a_server_stopped_is_told_by_the_next_one(tmp_path):
    with receiving(status(500), status(200)) as receiver:
        with running(tmp_path, allow_private_webhooks=True) as server:
            hurry(server)
            server.service.sender._service_store.webhooks.claim = lambda *_: None  # it never comes to it
            add(server, receiver.url)
            ids = tell(server, 1, 2)
        assert receiver.requests == []
        with running(tmp_path, allow_private_webhooks=True) as server:
            hurry(server)
            wait_for(lambda: len(receiver.requests) == 3)
            assert [request.headers["webhook-id"] for request in receiver.requests] == [ids[0], *ids]


def test_two_servers_tell_each_event_once_while_nobody_dies(tmp_path):
    with (
        running(tmp_path, allow_private_webhooks=True) as one,
        running(tmp_path, allow_private_webhooks=True) as two,
        receiving() as receiver,
    ):
        made = add(one, receiver.url)
        ids = tell(one, *range(10)) + tell(two, *range(10, 20))
        wait_for(lambda: len(attempts(two, made["id"])) == 20)
        assert [request.headers["webhook-id"] for request in receiver.requests] == ids


# Hostile receivers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (receivers.endless_head, "no answer"),
        (receivers.endless_promises, "the response ended after an interim status"),
        (receivers.slow_loris, "no answer within"),
        (receivers.silent, "no answer within"),
        (receivers.not_http, "not HTTP"),
        (receivers.hung_up, "no answer"),
        (status(302, Location="http://169.254.169.254/latest/meta-data"), "redirects are not followed"),
        (status(307, Location="http://127.0.0.1:1/"), "redirects are not followed"),
    ],
)
def test_a_hostile_receiver_gets_nothing_but_a_failure(inside, answer, reason):
    with receiving(answer, status(204)) as receiver:
        made = add(inside, receiver.url)
        tell(inside, 1)
        wait_for(lambda: len(attempts(inside, made["id"])) >= 2)
        assert reason in attempts(inside, made["id"])[-1]["reason"]
        assert len(receiver.requests) == 2


def test_a_body_without_end_is_not_read_to_its_end(inside):
    with receiving(receivers.endless_body) as receiver:
        made = add(inside, receiver.url)
        tell(inside, 1, 2)
        wait_for(lambda: len(attempts(inside, made["id"])) == 2)
        assert {each["status"] for each in attempts(inside, made["id"])} == {200}


PRIVATE = """
    127.0.0.1 127.8.8.8 0.0.0.0 10.0.0.1 172.16.3.4 192.168.1.1 169.254.169.254 100.64.0.1 224.0.0.1 255.255.255.255
    198.18.0.1 192.0.2.1 ::1 :: fe80::1 fe80::1%eth0 fc00::1 fd12::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1
    64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 2002:7f00:1:: 2002:a9fe:a9fe:: ::7f00:1 2001:db8::1
    2001:0:53aa:64c:0:0:80ff:fffe fec0::1 feff::1""".split()


@pytest.mark.parametrize("address", PRIVATE)
def test_no_address_inside_is_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_public_addresses_are(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/hook",
        "ftp://example.org/",
        "file:///etc/passwd",
        "https://user:secret@example.org/",
        "https://example.org/#part",
        "https:///path",
        "https://example.org:99999/",
        "https://exam\tple.org/",
        "https://example.org/\r\nHost: other",
        "https://exämple.org/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://localhost:8377/v1/sessions",
        "https://[::1]/",
        "https://[::ffff:169.254.169.254]/latest/meta-data",
        "https://169.254.169.254/latest/meta-data",
        "nothing",
        "",
    ],
)
def test_what_leads_inside_or_nowhere_is_refused_when_it_is_registered(shared, url):
    got = shared.post("/v1/webhooks", {"url": url})
    assert got.status == 422, got.raw
    assert b"secret@" not in got.raw
    assert shared.get("/v1/webhooks").json == {"webhooks": []}


def test_a_name_that_leads_inside_later_is_not_followed(server):
    """It was public when it was registered; whoever owns the name has changed it since."""
    answers = [["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "169.254.169.254"]]
    asked = []

    async def lookup(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    hurry(server)
    server.service.sender.lookup = lookup
    made = add(server, "https://rebinding.example/hook")
    tell(server, 1)
    wait_for(lambda: len(attempts(server, made["id"])) >= 2)
    reasons = [each["reason"] for each in attempts(server, made["id"])[::-1]][:2]
    assert all("does not resolve to a public address" in reason for reason in reasons)
    assert set(asked) == {"rebinding.example"}


def test_the_connection_goes_to_the_address_that_was_looked_at(inside):
    """The name is not resolved a second time: it is a name that nobody knows."""

    async def lookup(host: str, port: int) -> list[str]:
        assert host == "pinned.invalid"
        return ["127.0.0.1"]

    inside.service.sender.lookup = lookup
    with receiving() as receiver:
        add(inside, f"http://pinned.invalid:{receiver.port}/")
        tell(inside, 1)
        wait_for(lambda: bool(receiver.requests))
        assert receiver.requests[0].headers["host"] == f"pinned.invalid:{receiver.port}"


def test_only_who_can_prove_its_name_is_told(inside, monkeypatch):
    async def lookup(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    inside.service.sender.lookup = lookup
    inside.service.sender.answer_seconds = PATIENCE  # a handshake takes longer on a busy machine
    with receiving(certificate=CERTIFICATE) as receiver:
        made = add(inside, f"https://hooks.invalid:{receiver.port}/")
        tell(inside, 1)
        wait_for(lambda: bool(attempts(inside, made["id"])))
        assert "certificate" in attempts(inside, made["id"])[-1]["reason"].lower()
        assert receiver.requests == []
        trusting = ssl.create_default_context(cafile=CERTIFICATE)
        monkeypatch.setattr(webhook_delivery, "_ssl_context", lambda: trusting)
        wait_for(lambda: bool(receiver.requests))


def test_a_name_that_nobody_knows_yet_may_be_registered(server):
    async def lookup(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    server.service.sender.lookup = lookup
    made = add(server, "https://not-yet.example/hook")
    tell(server, 1)
    wait_for(lambda: bool(attempts(server, made["id"])))
    assert attempts(server, made["id"])[-1]["reason"] == "no such name"


@given(st.text(max_size=60))
def test_no_text_is_more_than_refused(text):
    try:
        target = read_target(text, allow_private=False)
    except BadSetting:
        return
    assert target.is_tls
    assert target.path.isprintable()


def test_there_can_be_only_so_many(inside):
    for _ in range(50):
        add(inside, "https://192.0.2.1/hook")
    assert inside.post("/v1/webhooks", {"url": "https://192.0.2.1/hook"}).problem == "bad-setting"


def _signature(secret: str, request) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _signed_at(secret: str, request, seconds: int) -> dict[str, str]:
    headers = {**request.headers, "webhook-timestamp": str(seconds)}
    return {**headers, "webhook-signature": _signature(secret, type(request)(request.line, headers, request.body))}
