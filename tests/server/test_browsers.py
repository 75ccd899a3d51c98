"""What browsers and probes are told and allowed: headers on every answer, no writing from other sites, `HEAD`."""

from __future__ import annotations

import pytest

from context_compactor.server.tokens import add_token
from tests.server.running import running

HEADERS = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@pytest.mark.parametrize(
    "path", ["/v1/sessions", "/v1/sessions/none", "/v1/nothing", "/healthz", "/metrics", "/v1/webhooks", "/", "/none"]
)
def test_every_answer_says_what_it_is_for_whom_and_that_it_is_not_to_be_kept(shared, path):
    headers = shared.get(path).headers
    assert {name: headers.get(name) for name in HEADERS} == HEADERS


def test_a_refusal_at_the_gate_says_so_too(shared):
    got = shared.get("/v1/sessions", Host="evil.example")
    assert got.status == 403
    assert {name: got.headers.get(name) for name in HEADERS} == HEADERS


def test_an_answer_that_may_be_kept_says_so_itself(shared):
    got = shared.get(f"{shared.made()}/context")
    assert got.headers["cache-control"] == "private, no-cache"


def test_what_has_not_changed_may_still_be_kept(shared):
    path = shared.made()
    tag = shared.get(f"{path}/context").headers["etag"]
    again = shared.get(f"{path}/context", If_None_Match=tag)
    assert again.status == 304
    assert "no-store" not in again.headers.get("cache-control", "")


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_another_site_may_not_write_even_if_it_does_not_say_which_it_is(shared, method):
    got = shared.call(method, "/v1/sessions", {"window": 1_000}, Sec_Fetch_Site="cross-site")
    assert (got.status, got.problem) == (403, "forbidden")


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_a_page_of_our_own_may(shared, site):
    assert shared.post("/v1/sessions", {"window": 1_000}, Sec_Fetch_Site=site).status == 201


def test_a_link_from_another_site_may_be_followed(shared):
    assert shared.get("/", Sec_Fetch_Site="cross-site").status == 200


def test_a_site_that_is_allowed_may_write(tmp_path):
    site = "https://dash.example.org"
    with running(tmp_path, origins=(site,)) as server:
        given = {"Sec_Fetch_Site": "cross-site"}
        assert server.post("/v1/sessions", {"window": 1_000}, Origin=site, **given).status == 201
        assert server.post("/v1/sessions", {"window": 1_000}, **given).status == 403


@pytest.mark.parametrize("scheme", ["chrome-extension", "moz-extension", "file", "ftp", ""])
def test_only_a_page_that_came_over_http_can_be_our_own(shared, scheme):
    host = f"127.0.0.1:{shared.port}"
    got = shared.post("/v1/sessions", {"window": 1_000}, Host=host, Origin=f"{scheme}://{host}")
    assert (got.status, got.problem) == (403, "forbidden")


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/", "/v1/sessions", "/openapi.json"])
def test_a_probe_may_ask_for_the_head_alone(shared, path):
    got = shared.call("HEAD", path)
    assert (got.status, got.raw) == (200, b"")
    assert shared.get(path).status == 200


def test_who_may_not_look_may_not_look_at_the_head(tmp_path):
    tokens = tmp_path / "tokens"
    add_token(tokens, "red", "", read_only=True)
    with running(tmp_path, token_file=tokens) as server:
        assert server.call("HEAD", "/v1/sessions").status == 401
        assert server.call("HEAD", "/healthz").status == 200


def test_a_stream_without_end_has_no_head_of_its_own(shared):
    assert shared.call("HEAD", "/v1/events").status == 405


def test_a_session_that_cannot_be_followed_is_named(shared):
    got = shared.get("/v1/events?session_id=team%2Fa")
    assert (got.status, got.problem) == (404, "unknown-session")
    assert "'team/a'" in got.json["detail"]
