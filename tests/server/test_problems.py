"""What goes wrong is said as a problem that names what to try, and never more than the caller may know."""

from __future__ import annotations

import logging

import pytest

from context_compactor.errors import StoreError, StoreLocked

# None of them changes what another one sees.
ASK = {"role": "user", "content": "Hello"}


@pytest.fixture
def server(shared):
    return shared


@pytest.mark.parametrize(
    ("method", "path", "status", "name"),
    [
        ("GET", "/v1/sessions/nobody", 404, "unknown-session"),
        ("GET", "/v1/sessions/nobody/context", 404, "unknown-session"),
        ("POST", "/v1/sessions/nobody/undo", 404, "unknown-session"),
        ("GET", "/v1/nothing", 404, "not-found"),
        ("GET", "/nothing", 404, "not-found"),
        ("PUT", "{session}", 405, "method-not-allowed"),
        ("PUT", "/healthz", 405, "method-not-allowed"),
        ("GET", "{session}/archive/tool_001", 404, "unknown-reference"),
        ("GET", "{session}/archive/..%20", 404, "unknown-reference"),
        ("GET", "{session}/history?limit=0", 422, "bad-input"),
        ("GET", "{session}/history?limit=many", 422, "bad-input"),
        ("GET", "{session}/history?limits=1", 422, "bad-input"),
        ("GET", "{session}/history?limit=1&limit=2", 422, "bad-input"),
        ("GET", "{session}/archive?after=x", 422, "bad-setting"),
        ("GET", "{session}/search", 422, "bad-input"),
        ("GET", "{session}/facts?kind=gossip", 422, "bad-setting"),
        ("GET", "/v1/sessions/a%2Fb", 404, "not-found"),
        ("GET", "/v1/sessions/%00", 404, "unknown-session"),
        ("GET", "/v1/sessions/" + "x" * 400, 404, "unknown-session"),
    ],
)
def test_a_wrong_request_has_a_status_and_a_name(server, method, path, status, name):
    got = server.call(method, path.replace("{session}", server.made()))
    assert (got.status, got.problem) == (status, name)
    assert got.json["title"]


def test_a_wrong_method_says_which_are_right(server):
    assert "GET" in server.call("DELETE", "/healthz").headers["allow"]


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        (b"{", 400, "bad-request"),
        (b"", 422, "bad-input"),
        (b"[]", 422, "bad-input"),
        (b'{"messages": "no"}', 422, "bad-input"),
        (b'{"messages": [1]}', 422, "bad-input"),
        (b'{"messages": [], "mesages": []}', 422, "bad-input"),
        (b'{"messages": [NaN]}', 400, "bad-request"),
        (b'{"messages": [{"role": "nobody"}]}', 422, "bad-message"),
        (b"\xff\xfe", 400, "bad-request"),
    ],
)
def test_a_bad_body_appends_nothing(server, body, status, name):
    path = server.made()
    got = server.post(f"{path}/messages", body)
    assert (got.status, got.problem) == (status, name)
    assert server.get(f"{path}/history").json["total"] == 0


def test_a_bad_message_is_named_by_its_index_and_field(server):
    path = server.made()
    got = server.post(f"{path}/messages", {"messages": [ASK, {"role": "wizard", "content": "x"}]})
    assert (got.problem, got.json["index"], got.json["field"]) == ("bad-message", 1, "role")
    assert server.get(f"{path}/history").json["total"] == 0


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_must_be_called_json(server, content_type):
    path = server.made()
    got = server.post(f"{path}/messages", {"messages": [ASK]}, Content_Type=content_type)
    assert (got.status, got.problem) == (415, "media-type")


@pytest.mark.parametrize("window", [0, -1, 1.5, "many", None, True])
def test_a_window_must_be_a_number_of_tokens(server, window):
    assert server.post("/v1/sessions", {"window": window}).problem == "bad-input"


@pytest.mark.parametrize("name", ["a/b", ".", "..", "", " ", "x" * 201, "tab\there", "a\nb"])
def test_a_session_needs_a_name_that_can_stand_in_an_address(server, name):
    got = server.post("/v1/sessions", {"id": name, "window": 200_000})
    assert got.status == 422
    assert got.problem in ("bad-input", "bad-setting")


@pytest.mark.parametrize("name", ["ünïcode", "emoji 🚀", "with space", "100%", "a?b#c", "semi;colon", "コード"])
def test_other_names_are_fine(server, name):
    from urllib.parse import quote

    assert server.post("/v1/sessions", {"id": name, "window": 200_000}).status == 201
    got = server.get(f"/v1/sessions/{quote(name, safe='')}")
    assert (got.status, got.json["id"]) == (200, name)


def test_an_unknown_setting_is_named_with_the_nearest_one(server):
    got = server.post("/v1/sessions", {"window": 200_000, "settings": {"preserve_recent_turn": 3}})
    assert "preserve_recent_turns" in got.json["detail"]


def test_a_request_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    from tests.server.running import running

    monkeypatch.chdir(tmp_path)
    with running(tmp_path, max_body_bytes=1000) as server:
        path = server.made()
        got = server.post(f"{path}/messages", {"messages": [{"role": "user", "content": "x" * 2000}]})
        assert (got.status, got.problem) == (413, "too-large")
        assert server.get(f"{path}/history").json["total"] == 0


@pytest.mark.parametrize(("error", "status"), [(StoreError("disk of /secret/place"), 503), (StoreLocked("busy"), 503)])
def test_a_store_that_fails_is_said_without_its_place(server, monkeypatch, error, status, caplog):
    def fail(*_args, **_more):
        raise error

    path = server.made()
    monkeypatch.setattr(server.service.store, "session", fail)
    with caplog.at_level(logging.CRITICAL):
        got = server.get(path)
    monkeypatch.undo()
    assert got.status == status
    assert b"secret" not in got.raw
    assert got.headers["retry-after"] == "1"


def test_a_failure_that_nobody_has_foreseen_shows_no_trace(server, monkeypatch, caplog):
    def fail(*_args, **_more):
        raise ZeroDivisionError("the password is 1234")

    path = server.made()
    monkeypatch.setattr(server.service.store, "session", fail)
    with caplog.at_level(logging.ERROR):
        got = server.get(path)
    monkeypatch.undo()
    assert (got.status, got.problem) == (500, "internal")
    assert b"1234" not in got.raw
    assert b"Traceback" not in got.raw
    assert got.json["ref"] in caplog.text
    assert got.json["ref"] in got.json["detail"]


def test_another_session_is_never_named_in_an_error(server):
    server.made("private-session")
    assert b"private-session" not in server.get("/v1/sessions/nobody").raw
