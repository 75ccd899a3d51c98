"""Reading over HTTP leaves the store as it is, goes on where it cannot be written, and health is told in any case."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from context_compactor.server.dashboard.routes import PAGE_ROUTES
from context_compactor.server.service import ReadinessCheck
from context_compactor.server.tokens import add_token
from context_compactor.sessions.verbs import VERBS
from tests.cli.conftest import conversation
from tests.postgres import new_schema
from tests.server.running import Running, free_port, running, serving
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow

TIMES = 30


def filled(server: Running, token: str = "") -> str:
    """The path of a session that was compacted."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    assert server.post("/v1/sessions", {"id": "run", "window": 200_000}, **headers).status == 201
    path = "/v1/sessions/run"
    assert server.post(f"{path}/messages", {"messages": conversation()}, **headers).status == 200
    assert server.post(f"{path}/compact", {"target_tokens": 9_000}, **headers).json["compacted"]
    return path


def addresses(server: Running, **headers: str) -> list[str]:
    """Every address that can be read, of the API and of the dashboard, but the stream without end.

    Whether the store can be written is found out by writing, at most once a second, so that is not among them.
    """
    page = server.get("/v1/sessions/run/archive", **headers).json
    made = server.get("/v1/sessions/run/compactions", **headers).json["compactions"][0]["compaction_id"]
    ref = page["originals"][0]["id"]
    api = [
        route.path
        for route in VERBS
        if route.method == "GET" and route.name != "events" and "webhooks" not in route.path and route.path != "/readyz"
    ]
    found = [path.replace("{id}", "run").replace("{ref}", ref) for path in api]
    found += [f"/v1/sessions/run/archive/{ref}?page=1", "/v1/sessions/run/context?at=3", "/v1/webhooks"]
    for view in PAGE_ROUTES:
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
    last = server.service.service_store.events.last()
    recalled = [path for path in paths if "/archive/" in path]
    for _ in range(TIMES):
        for path in recalled:
            assert server.get(path, Authorization=reader).status == 200
    assert server.service.service_store.events.last() == last


# A store that cannot be written


def ready(server: Running) -> tuple[int, str]:
    """What the server says of itself: the status, and what it says in words when it is not ready."""
    got = server.get("/readyz")
    if got.status == 503:
        assert (got.problem, got.headers["retry-after"]) == ("not-ready", "1")
    return got.status, got.json.get("detail", "")


def is_only_read(server: Running) -> bool:
    assert server.get("/healthz").status == 200
    status, detail = ready(server)
    return status == 503 and detail.startswith("The store fails to write. What is stored can still be read.")


def is_ready(server: Running) -> bool:
    return ready(server)[0] == 200


def test_a_server_whose_disk_is_full_can_be_read_and_says_that_it_cannot_write(tmp_path):
    """The system lets the process write to no file, as if there were no room left."""
    server = Running(None, None, free_port())
    with serving(tmp_path, server.port) as process:
        path = filled(server)
        paths = addresses(server)
        wait_for(lambda: is_ready(server))
        before, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, hard))
        try:
            wait_for(lambda: is_only_read(server))
            said = {"messages": [{"role": "user", "content": "more"}]}
            assert server.post(f"{path}/messages", said).problem == "store"
            for each in paths:
                assert server.get(each).status == 200, each
            assert is_only_read(server)
        finally:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (before, hard))
        wait_for(lambda: is_ready(server))
        assert server.post(f"{path}/messages", said).status == 200


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another process writes to a store, and does not come to an end."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE'); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        yield
        process.stdin.close()


def test_a_server_whose_store_is_locked_by_another_process_can_be_read_and_says_that_it_cannot_write(tmp_path):
    with running(tmp_path) as server:
        path = filled(server)
        with locked(tmp_path / "compactor.db"):
            wait_for(lambda: is_only_read(server))
            for look in ("context", "history", "archive", "search?q=error", "facts", "compactions"):
                assert server.get(f"{path}/{look}").status == 200, look
            assert is_only_read(server)
        wait_for(lambda: is_ready(server))


def test_a_context_that_nobody_has_looked_at_yet_can_be_read_while_the_store_is_locked(tmp_path):
    with running(tmp_path) as server:
        path = filled(server)
        context = server.get(f"{path}/context").json
    with running(tmp_path) as server, locked(tmp_path / "compactor.db"):
        assert server.get(f"{path}/context").json == context


def test_a_server_whose_postgresql_is_read_only_can_be_read_and_says_that_it_cannot_write(tmp_path, own_postgres):
    schema = new_schema()
    with running(tmp_path, store=own_postgres.url(schema=schema)) as server:
        path = filled(server)
        paths = addresses(server)
        context = server.get(f"{path}/context").json
    read_only = own_postgres.url(schema=schema, options="-cdefault_transaction_read_only%3Don")
    with running(tmp_path, store=read_only) as server:
        wait_for(lambda: is_only_read(server))
        for each in paths:
            assert server.get(each).status == 200, each
        assert server.get(f"{path}/context").json == context
        said = {"messages": [{"role": "user", "content": "more"}]}
        assert server.post(f"{path}/messages", said).problem == "store"


def test_a_server_whose_postgresql_is_stopped_is_alive_and_not_ready(tmp_path, own_postgres):
    with running(tmp_path, store=own_postgres.url(schema=new_schema())) as server:
        wait_for(lambda: is_ready(server))
        own_postgres.stop("immediate")
        try:
            wait_for(lambda: ready(server) == (503, "The store fails to read and to write. The server's log says why."))
            assert server.get("/healthz").status == 200
        finally:
            own_postgres.start()
        wait_for(lambda: is_ready(server))


def test_whoever_asks_while_a_check_hangs_is_answered_and_begins_no_other(tmp_path, caplog):
    begun, go_on = [], threading.Event()

    def hangs() -> dict[str, str]:
        begun.append(True)
        go_on.wait(PATIENCE)
        return {}

    with running(tmp_path) as server:
        server.service.readiness = ReadinessCheck(hangs)
        with ThreadPoolExecutor(8) as callers:
            assert {got[0] for got in callers.map(lambda _: ready(server), range(8))} == {503}
        assert server.get("/healthz").status == 200
        assert begun == [True]
        go_on.set()
        wait_for(lambda: is_ready(server))
    text = [record.message for record in caplog.records if "fails to" in record.message]
    assert len(text) == 2  # once for what is written and once for what is read, however many have asked


def test_a_result_counts_for_a_moment_so_that_nobody_can_make_a_server_write_all_the_time(server):
    checks = []
    server.service.readiness = ReadinessCheck(lambda: checks.append(True) or {})
    server.service.readiness._known_until = float("inf")
    assert [ready(server)[0] for _ in range(20)] == [200] * 20
    assert checks == []


def test_a_store_that_was_deleted_is_not_made_anew(tmp_path):
    with running(tmp_path) as server:
        wait_for(lambda: is_ready(server))
        for file in tmp_path.glob("compactor.db*"):
            file.unlink()
        wait_for(lambda: ready(server)[0] == 503)
        assert not (tmp_path / "compactor.db").exists()
