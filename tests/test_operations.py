"""The files that operators copy: they can be read, and name only commands, options and metrics that exist."""

from __future__ import annotations

import re
import sqlite3
from configparser import ConfigParser
from contextlib import closing
from pathlib import Path

import pytest
import typer.main
import yaml

from context_compactor.cli.main import app
from context_compactor.sessions.session import Session
from tests.cli.conftest import conversation
from tests.server.running import running

PLACE = Path(__file__).parent.parent / "docs/operations"
FILES = sorted(path for path in PLACE.iterdir() if path.suffix in (".md", ".yaml", ".service"))
_COMMAND = re.compile(r"compactor (serve|worker|token|migrate|copy|verify)\b([^\n`|;,]*)")


def _options(command: str) -> set[str]:
    known = typer.main.get_command(app).commands[command]
    parts = [known, *getattr(known, "commands", {}).values()]
    return {option for part in parts for param in part.params for option in param.opts}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_command_has_the_options_that_are_named(path):
    found = _COMMAND.findall(path.read_text())
    assert found
    for command, rest in found:
        assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) <= _options(command), (command, rest)


@pytest.mark.parametrize("name", ["compose.yaml", "prometheus.yml", "alerts.yml"])
def test_the_yaml_can_be_read(name):
    assert yaml.safe_load((PLACE / name).read_text())


def test_every_service_of_the_compose_file_has_what_it_needs():
    made = yaml.safe_load((PLACE / "compose.yaml").read_text())
    assert made["services"].keys() == {"database", "server-1", "server-2", "worker"}
    for name in ("server-1", "server-2", "worker"):
        assert "POSTGRES_PASSWORD" in made["services"][name]["environment"]["COMPACTOR_STORE"]


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".service"], ids=lambda path: path.name)
def test_the_units_can_be_read(path):
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read(path)
    assert unit["Service"]["ExecStart"].startswith("/opt/compactor/bin/compactor ")


def test_every_metric_that_is_named_is_exported(tmp_path):
    with running(tmp_path) as server:
        found = server.get("/metrics").raw.decode()
    exported = set(re.findall(r"^# TYPE (\S+)", found, re.MULTILINE))
    text = (PLACE / "README.md").read_text() + (PLACE / "alerts.yml").read_text()
    named = set(re.findall(r"\bcompactor_[a-z_]+[a-z]\b", text))
    assert len(named) > 15
    assert {re.sub(r"_(sum|count|bucket)$", "", name) for name in named} <= exported


def test_a_backup_that_is_made_while_the_server_writes_is_whole(tmp_path):
    with running(tmp_path) as server:
        path = server.made("run")
        server.post(f"{path}/messages", {"messages": conversation()})
        with (
            closing(sqlite3.connect(tmp_path / "compactor.db")) as live,
            closing(sqlite3.connect(tmp_path / "backup.db")) as copy,
        ):
            server.post(f"{path}/compact", {"target_tokens": 9_000})
            live.backup(copy)  # what `.backup` does
        context = server.get(f"{path}/context").json["messages"]
    with Session.open("run", store=f"sqlite:///{tmp_path}/backup.db") as session:
        assert session.verify() == []
        assert session.history() == conversation()
        assert session.context() == context
