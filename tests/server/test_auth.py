"""Who may call, and what they see."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterator

import pytest

from context_compactor.errors import BadSetting
from context_compactor.server import tokens
from context_compactor.server.config import ServerConfig
from context_compactor.server.tokens import TokenFile, add_token, read_tokens, remove_token, token_hash
from tests.cli.conftest import conversation, run
from tests.server.running import Running, running

ASK = {"role": "user", "content": "Hello"}

__all__ = ["run"]


class Guarded(Running):
    """A server with tokens."""

    secrets: dict[str, str]

    def as_(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets[name]}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    path = folder / "tokens"
    secrets = {
        "red": add_token(path, "red", "red", read_only=False),
        "blue": add_token(path, "blue", "blue", read_only=False),
        "watcher": add_token(path, "watcher", "red", read_only=True),
        "plain": add_token(path, "plain", "", read_only=False),
    }
    with running(folder, token_file=path) as made:
        made.__class__ = Guarded
        made.secrets = secrets
        yield made


@pytest.fixture(scope="module")
def red_session(guarded) -> str:
    """A session of the namespace `red` with something in its archive."""
    assert guarded.post("/v1/sessions", {"id": "plans", "window": 200_000}, **guarded.as_("red")).status == 201
    guarded.post("/v1/sessions/plans/messages", {"messages": conversation()}, **guarded.as_("red"))
    guarded.post("/v1/sessions/plans/compact", {"target_tokens": 9_000}, **guarded.as_("red"))
    return "/v1/sessions/plans"


ROUTES = [
    ("POST", "/v1/sessions", {"window": 1000}),
    ("GET", "/v1/sessions", None),
    ("GET", "/v1/sessions/plans", None),
    ("POST", "/v1/sessions/plans/messages", {"messages": [ASK]}),
    ("GET", "/v1/sessions/plans/context", None),
    ("GET", "/v1/sessions/plans/history", None),
    ("POST", "/v1/sessions/plans/compact", {}),
    ("POST", "/v1/sessions/plans/cancel", None),
    ("GET", "/v1/sessions/plans/plan?keep=42", None),
    ("GET", "/v1/sessions/plans/compactions", None),
    ("POST", "/v1/sessions/plans/undo", None),
    ("POST", "/v1/sessions/plans/redo", None),
    ("GET", "/v1/sessions/plans/archive", None),
    ("GET", "/v1/sessions/plans/archive/tool_001", None),
    ("POST", "/v1/sessions/plans/restore", {"ref": "tool_001"}),
    ("GET", "/v1/sessions/plans/search?q=part", None),
    ("GET", "/v1/sessions/plans/facts", None),
    ("GET", "/v1/sessions/plans/checkpoint", None),
    ("POST", "/v1/sessions/plans/checkpoint", {"note": "mind the gap"}),
    ("POST", "/v1/sessions/plans/handoff", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer ", "Basic cmVkOnJlZA==", "bearer"])
def test_nobody_comes_in_without_a_token_that_is_known(guarded, red_session, method, path, body, header):
    got = guarded.call(method, path, body, **({"Authorization": header} if header else {}))
    assert (got.status, got.problem) == (401, "unauthorized")
    assert got.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("method", "path", "body"), ROUTES[2:])
def test_a_token_of_another_namespace_sees_nothing(guarded, red_session, method, path, body):
    for name in ("blue", "plain"):
        got = guarded.call(method, path, body, **guarded.as_(name))
        assert (got.status, got.problem) == (404, "unknown-session")
        assert b"red" not in got.raw


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
def test_a_token_that_may_only_read_changes_nothing(guarded, red_session, method, path, body):
    got = guarded.call(method, path, body, **guarded.as_("watcher"))
    assert got.status in ((403,) if method == "POST" else (200,)), got.raw


def test_the_same_id_in_two_namespaces_is_two_sessions(guarded, red_session):
    for name in ("blue", "plain"):
        made = guarded.post("/v1/sessions", {"id": "twin", "window": 200_000}, **guarded.as_(name))
        assert made.status == 201
        message = {"role": "user", "content": f"I am {name}"}
        guarded.post("/v1/sessions/twin/messages", {"messages": [message]}, **guarded.as_(name))
    for name in ("blue", "plain"):
        found = guarded.get("/v1/sessions/twin/history", **guarded.as_(name)).json["messages"]
        assert [message["content"] for message in found] == [f"I am {name}"]


def test_a_list_holds_the_sessions_of_its_namespace_alone(guarded, red_session):
    for at in range(3):
        guarded.post("/v1/sessions", {"id": f"blue-{at}", "window": 200_000}, **guarded.as_("blue"))
        guarded.post("/v1/sessions", {"id": f"zz-{at}", "window": 200_000}, **guarded.as_("plain"))
    seen = {}
    for name in ("red", "blue", "plain", "watcher"):
        seen[name] = {each["id"] for each in guarded.get("/v1/sessions", **guarded.as_(name)).json["sessions"]}
    assert seen["red"] == seen["watcher"]
    assert "plans" in seen["red"]
    assert seen["blue"] >= {"blue-0", "blue-1", "blue-2"}
    assert seen["plain"] >= {"zz-0", "zz-1", "zz-2"}
    assert not seen["red"] & seen["blue"] - {"twin"}
    assert "plans" not in seen["plain"] | seen["blue"]


def test_no_answer_shows_how_a_namespace_is_stored(guarded, red_session):
    for method, path, body in ROUTES:
        if method == "GET" or path.endswith(("cancel", "checkpoint", "compact", "handoff")):
            got = guarded.call(method, path, body, **guarded.as_("red"))
            assert b"red/plans" not in got.raw, path


@pytest.mark.parametrize("path", ["/healthz", "/openapi.json"])
def test_health_and_the_document_need_no_token(guarded, path):
    assert guarded.get(path).status == 200


def test_any_name_will_do_where_tokens_keep_strangers_out(guarded):
    assert guarded.get("/healthz", Host="compactor.example.org").status == 200


# Without tokens


@pytest.mark.parametrize("host", ["evil.example.org", "evil.example.org:8377", "127.0.0.1.evil.org", "", "[::2]"])
def test_a_name_that_was_led_to_this_machine_is_refused(shared, host):
    got = shared.get("/v1/sessions", Host=host)
    assert (got.status, got.problem) == (403, "forbidden")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8377", "[::1]:8377", "[::1]"])
def test_the_names_of_this_machine_are_fine(shared, host):
    assert shared.get("/v1/sessions", Host=host).status == 200


def test_a_page_of_another_site_may_not_call(shared):
    got = shared.post("/v1/sessions", {"window": 1000}, Origin="https://evil.example.org")
    assert (got.status, got.problem) == (403, "forbidden")
    assert shared.get("/v1/sessions", Origin="null").status == 403
    assert "access-control-allow-origin" not in shared.get("/v1/sessions").headers
    assert shared.get("/v1/sessions", Origin=shared.url).status == 200


def test_a_site_that_is_allowed_may_call(tmp_path):
    with running(tmp_path, origins=("https://dash.example.org",)) as server:
        asked = server.call(
            "OPTIONS",
            "/v1/sessions",
            Origin="https://dash.example.org",
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="content-type",
        )
        assert asked.headers["access-control-allow-origin"] == "https://dash.example.org"
        got = server.get("/v1/sessions", Origin="https://dash.example.org")
        assert (got.status, got.headers["access-control-allow-origin"]) == (200, "https://dash.example.org")
        assert server.get("/v1/sessions", Origin="https://evil.example.org").status == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org"])
def test_an_address_that_others_can_reach_needs_a_token_file(host, tmp_path):
    with pytest.raises(BadSetting, match="token"):
        ServerConfig(store="memory:", host=host)
    assert ServerConfig(store="memory:", host=host, token_file=tmp_path / "tokens").host == host


# The file


def test_only_hashes_are_kept_and_only_for_the_owner(tmp_path):
    path = tmp_path / "tokens"
    secret = add_token(path, "ci", "team", read_only=False)
    assert secret not in path.read_text()
    assert token_hash(secret) in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(secret) > 40


def test_a_change_of_the_file_counts_while_the_server_runs(tmp_path, monkeypatch):
    path = tmp_path / "tokens"
    first = add_token(path, "first", "", read_only=False)
    known = TokenFile(path)
    second = add_token(path, "second", "b", read_only=True)
    remove_token(path, "first")
    now = time.monotonic()
    monkeypatch.setattr(tokens.time, "monotonic", lambda: now + 5)
    assert known.find(first) is None
    assert known.find(second) is not None
    path.unlink()
    monkeypatch.setattr(tokens.time, "monotonic", lambda: now + 10)
    assert known.find(second) is None


def test_a_file_that_was_damaged_leaves_the_tokens_as_they_were(tmp_path, monkeypatch):
    path = tmp_path / "tokens"
    secret = add_token(path, "first", "", read_only=False)
    known = TokenFile(path)
    path.write_text("nonsense\n")
    now = time.monotonic()
    monkeypatch.setattr(tokens.time, "monotonic", lambda: now + 5)
    assert known.find(secret) is not None


def test_every_token_is_compared_in_full_whichever_it_is(tmp_path, monkeypatch):
    path = tmp_path / "tokens"
    secrets = [add_token(path, f"t{at}", "", read_only=False) for at in range(5)]
    known = TokenFile(path)
    compared = []

    def counting(ours, theirs):
        compared.append((ours, theirs))
        return hmac.compare_digest(ours, theirs)

    monkeypatch.setattr(tokens, "hmac", type("Counting", (), {"compare_digest": staticmethod(counting)}))
    for secret in (*secrets, "cct_wrong", ""):
        compared.clear()
        known.find(secret)
        assert len(compared) == 5
        assert {len(text) for pair in compared for text in pair} == {64}


def test_a_token_that_was_removed_while_the_file_could_not_be_read_counts_no_more_once_it_can(tmp_path, monkeypatch):
    path, now = tmp_path / "tokens", [0.0]
    monkeypatch.setattr(tokens, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    gone, stays = (add_token(path, name, "", read_only=False) for name in ("gone", "stays"))
    known = TokenFile(path)
    remove_token(path, "gone")

    def denied(_path):
        raise BadSetting("it cannot be read")

    with monkeypatch.context() as broken:
        broken.setattr(tokens, "read_tokens", denied)
        now[0] += 5
        assert known.find(stays)
    now[0] += 5
    assert known.find(gone) is None
    assert known.find(stays)


@pytest.mark.parametrize(
    "line",
    ["name", "a:b:c:d", "a:b:full:xyz", f"a b::full:{'0' * 64}", f"a:n/m:full:{'0' * 64}", f"a:b:root:{'0' * 64}"],
)
def test_a_line_that_is_no_token_is_named(tmp_path, line):
    path = tmp_path / "tokens"
    path.write_text(f"# fine\n{line}\n")
    with pytest.raises(BadSetting, match=r"line 2|is not a valid name"):
        read_tokens(path)


# The commands


def test_tokens_are_added_listed_and_removed_on_the_command_line(run, tmp_path):
    made = run("token", "add", "ci", "--namespace", "team", "--read-only")
    assert made.code == 0
    assert made.out.startswith("cct_")
    assert (tmp_path / ".compactor" / ".gitignore").exists()
    listed = run("token", "list", "--json").json["tokens"]
    assert listed == [{"name": "ci", "namespace": "team", "kind": "read"}]
    assert made.out.strip() not in run("token", "list").out
    assert run("token", "remove", "ci").code == 0
    assert run("token", "list", "--json").json["tokens"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("add",),
        ("add", "a/b"),
        ("add", "ok", "--namespace", "a:b"),
        ("remove", "nobody"),
        ("fetch", "ci"),
    ],
)
def test_a_wrong_use_of_the_command_is_said(run, arguments):
    got = run("token", *arguments)
    assert (got.code, got.out) == (2, "")
    assert got.err.startswith("error: ")


def test_a_name_is_used_once(run):
    run("token", "add", "ci")
    assert run("token", "add", "ci").code == 2


def test_serve_refuses_an_address_that_others_can_reach(run):
    got = run("serve", "--host", "0.0.0.0")
    assert got.code == 2
    assert "token" in got.err


def test_serve_refuses_a_token_file_without_tokens(run, tmp_path):
    got = run("serve", "--token-file", tmp_path / "none", "--port", "0")
    assert got.code == 2
    assert "no token" in got.err


def test_serve_says_that_a_port_is_taken(run, shared):
    got = run("serve", "--port", shared.port)
    assert got.code == 2
    assert str(shared.port) in got.err
