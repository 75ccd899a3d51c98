"""`compactor migrate` and `copy` as real processes, and every command on a store in PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from context_compactor.store.connect import connect
from context_compactor.store.events import make_event
from context_compactor.store.rows import Webhook
from context_compactor.store.service_store import service_store_of
from tests.postgres import QUOTED, Server, new_schema
from tests.store.rows import AT
from tests.waiting import PATIENCE

PROGRAM = "from context_compactor.cli.main import main; main()"


def compactor(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture
def folder(tmp_path: Path, transcript: Path, run) -> Path:
    """A folder with a store in which are two sessions."""
    for name in ("one", "two"):
        done = run("compact", transcript, "--window", 20_000, "--session", name, "-o", "out.json")
        assert done.code == 0, done.err
    return tmp_path


def test_migrate_makes_a_store_once_and_says_so(tmp_path: Path, postgres_url: str):
    for store in (postgres_url, f"sqlite:///{tmp_path}/sessions.db"):
        made = compactor(tmp_path, "migrate", "--store", store)
        assert (made.returncode, "created" in made.stdout) == (0, True), made.stderr
        again = json.loads(compactor(tmp_path, "migrate", "--store", store, "--json").stdout)
        assert again["before"] == again["now"] >= 1


def test_several_processes_may_migrate_at_once(tmp_path: Path, postgres_url: str):
    command = [sys.executable, "-c", PROGRAM, "migrate", "--store", postgres_url]
    running = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [each.communicate(timeout=PATIENCE)[0] for each in running]
    assert [each.returncode for each in running] == [0] * 4
    assert sum("created" in each for each in said) == 1


def test_a_store_is_copied_there_and_back_and_is_the_same(folder: Path, run, postgres_url: str):
    there = compactor(folder, "copy", "--from", "sqlite:///.compactor/compactor.db", "--to", postgres_url)
    assert there.returncode == 0, there.stderr
    assert "Sessions copied" in there.stdout
    assert run("verify", "--store", postgres_url).code == 0
    back = compactor(folder, "copy", "--from", postgres_url, "--to", "sqlite:///back.db", "--json")
    assert json.loads(back.stdout)["copied"] == ["one", "two"]
    for verb in (["history", "one"], ["context", "one"], ["facts", "--session", "one"], ["sessions"]):
        shown = [
            run(*verb, "--store", store, "--json").json
            for store in ("sqlite:///.compactor/compactor.db", postgres_url, "sqlite:///back.db")
        ]
        for each in shown:
            each.pop("store", None)
        assert shown[0] == shown[1] == shown[2]
    again = run("copy", "--from", "sqlite:///.compactor/compactor.db", "--to", postgres_url, "--json")
    assert again.json["were_there"] == ["one", "two"]


def test_a_copy_says_what_it_takes_along_and_what_stays_behind(tmp_path: Path, run, postgres_url: str):
    store = f"sqlite:///{tmp_path}/sessions.db"
    with closing(connect(store)) as kept:
        service_store = service_store_of(kept)
        service_store.webhooks.add(Webhook("h1", "", "https://example.com/hook", "very secret", (), AT))
        for _ in range(2):
            service_store.record_event(make_event("job.queued", "one", {}, datetime(2026, 3, 1, tzinfo=UTC)))
    output = run("copy", "--from", store, "--to", postgres_url)
    assert "Webhooks copied, with their secrets: 1" in output.out
    assert "Not copied: events: 2, deliveries to webhooks: 2." in output.out
    assert "very secret" not in output.out + output.err
    again = run("copy", "--from", store, "--to", postgres_url, "--json").json
    assert (again["webhooks"], again["left"]) == (0, {"events": 2, "deliveries": 2, "jobs": 0})


def test_copying_onto_something_else_or_from_nowhere_is_wrong_usage(folder: Path, run, postgres_url: str):
    store = "sqlite:///.compactor/compactor.db"
    same = run("copy", "--from", store, "--to", store)
    nowhere = run("copy", "--from", "sqlite:///nowhere.db", "--to", postgres_url)
    no_store = run("copy", "--from", postgres_url, "--to", store)
    assert run("copy", "--from", store, "--to", postgres_url).code == 0
    with closing(connect(postgres_url)) as kept:
        kept.save_state("two", b"{}")
    other = run("copy", "--from", store, "--to", postgres_url)
    assert [each.code for each in (same, nowhere, no_store, other)] == [2, 2, 2, 2]
    assert "same store" in same.err
    assert "differ: 'two'" in other.err
    assert not (folder / "nowhere.db").exists()


def test_every_command_works_on_a_store_in_postgresql(
    transcript: Path, run, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COMPACTOR_STORE", postgres_url)
    made = run("compact", transcript, "--window", 20_000, "--session", "run", "--json")
    assert made.code == 0, made.err
    ref = made.json["report"]["archived"][0]["id"]
    for verb in (
        ["sessions"],
        ["show", "run"],
        ["context"],
        ["history", "--reports"],
        ["recall", ref],
        ["recall", "--search", "part_3 value"],
        ["facts"],
        ["diff"],
        ["undo"],
        ["redo"],
        ["checkpoint"],
        ["resume"],
        ["handoff", "--phase", "write"],
        ["export", "--dir", "archive"],
        ["verify"],
        ["migrate"],
    ):
        done = run(*verb)
        assert (done.code, bool(done.out)) == (0, True), (verb, done.err)


def test_a_password_is_never_printed(transcript: Path, run, own_postgres: Server, monkeypatch: pytest.MonkeyPatch):
    schema = new_schema()
    own_postgres.run(f"CREATE SCHEMA {schema} AUTHORIZATION guarded")
    url = own_postgres.url(user="guarded", password=QUOTED, schema=schema)
    wrong = own_postgres.url(user="guarded", password="wr0ng" + QUOTED, schema=schema)
    compacted = ("compact", transcript, "--window", 20_000, "--session", "run", "--json")
    said = []
    for store in (url, wrong, url.replace("127.0.0.1", "a b")):
        monkeypatch.setenv("COMPACTOR_STORE", store)
        for verb in (compacted, ("config",), ("config", "--json"), ("sessions", "--json"), ("migrate",)):
            said.append(run(*verb))
    assert [each.code for each in said[:5]] == [0] * 5, said[0].err
    printed = "".join(each.out + each.err for each in said)
    assert "s3cret" not in printed
    assert "wr0ng" not in printed
    with closing(connect(url)) as kept:
        assert b"s3cret" not in b"".join(row.profile + row.state for row in kept.sessions())
        assert not any(b"s3cret" in entry.body for entry in kept.entries("run"))
