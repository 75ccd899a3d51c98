"""Reading over HTTP leaves the store as it is, and goes on where the store cannot be written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from context_compactor.server.dashboard.routes import VIEWS
from context_compactor.server.routes import ROUTES
from context_compactor.server.tokens import add_token
from tests.cli.conftest import conversation
from tests.server.running import Running, running

TIMES = 30


def filled(server: Running, token: str = "") -> str:
    """The path of a session that was compacted; the newest original of it has the id that is returned behind."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    assert server.post("/v1/sessions", {"id": "run", "window": 200_000}, **headers).status == 201
    path = "/v1/sessions/run"
    assert server.post(f"{path}/messages", {"messages": conversation()}, **headers).status == 200
    assert server.post(f"{path}/compact", {"target_tokens": 9_000}, **headers).json["compacted"]
    return path


def addresses(server: Running, **headers: str) -> list[str]:
    """Every address that can be read, of the API and of the dashboard, but the stream without end."""
    page = server.get("/v1/sessions/run/archive", **headers).json
    made = server.get("/v1/sessions/run/compactions", **headers).json["compactions"][0]["compaction_id"]
    ref = page["originals"][0]["id"]
    api = [
        route.path
        for route in ROUTES
        if route.method == "GET" and not route.is_endless and "webhooks" not in route.path
    ]
    found = [path.replace("{id}", "run").replace("{ref}", ref) for path in api]
    found += [f"/v1/sessions/run/archive/{ref}?page=1", "/v1/sessions/run/context?at=3", "/v1/webhooks"]
    for view in VIEWS:
        if view.form is None:
            known = made if "/compactions/" in view.path else ref
            found.append(view.path.replace("{id:str}", "run").replace("{ref:str}", known))
    return [f"{each}?q=error" if each.endswith("/search") else each for each in found]


@pytest.fixture
def looked_at(tmp_path: Path):
    """A server with a session, a token that may only read, and every address that it can read."""
    tokens = tmp_path / "tokens"
    writer = add_token(tokens, "writer", "team", read_only=False)
    reader = f"Bearer {add_token(tokens, 'reader', 'team', read_only=True)}"
    with running(tmp_path, token_file=tokens) as server:
        filled(server, writer)
        yield server, reader, addresses(server, Authorization=reader)


def test_a_token_that_may_only_read_changes_nothing_in_the_store(tmp_path, looked_at):
    server, reader, paths = looked_at
    assert len(paths) > 30
    with closing(sqlite3.connect(tmp_path / "compactor.db")) as watching:
        before = watching.execute("PRAGMA data_version").fetchone()
        for path in paths:
            assert server.get(path, Authorization=reader).status == 200, path
        assert watching.execute("PRAGMA data_version").fetchone() == before


def test_a_token_that_may_only_read_makes_no_events(looked_at):
    server, reader, paths = looked_at
    last = server.service.desk.events.last()
    recalled = [path for path in paths if "/archive/" in path]
    for _ in range(TIMES):
        for path in recalled:
            assert server.get(path, Authorization=reader).status == 200
    assert server.service.desk.events.last() == last
