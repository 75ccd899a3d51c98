"""A server does not know who speaks in a namespace, so its sessions neither teach nor learn."""

from __future__ import annotations

from contextlib import chdir

from context_compactor.cli.compact_session import compact_stored
from context_compactor.server.tokens import add_token
from tests.cli.conftest import conversation
from tests.server.running import running

CHOICE = "We decided to keep sessions in PostgreSQL instead of SQLite because several machines write to it."
HELLO = {"role": "user", "content": "Hello."}


def test_no_session_of_a_server_learns_from_another_in_its_namespace_or_beyond(tmp_path):
    home = tmp_path / ".compactor"
    secrets = {name: add_token(home / "tokens", name, name, read_only=False) for name in ("red", "blue")}
    with running(home, token_file=home / "tokens") as server:
        headers = {name: {"Authorization": f"Bearer {secret}"} for name, secret in secrets.items()}
        for number, window in enumerate((9_000, 9_000, 900_000)):
            made = server.post("/v1/sessions", {"id": f"of-{number}", "window": window}, **headers["red"])
            assert made.status == 201
            said = [*conversation()[:2], {"role": "user", "content": CHOICE}, *conversation()[2:]]
            server.post(f"/v1/sessions/of-{number}/messages", {"messages": said}, **headers["red"])
        for number in range(2):
            server.post(f"/v1/sessions/of-{number}/compact", {"level": "emergency"}, **headers["red"])
        for name in ("red", "blue"):
            server.post("/v1/sessions", {"id": "new", "window": 9_000}, **headers[name])
            server.post("/v1/sessions/new/messages", {"messages": [HELLO]}, **headers[name])
            assert server.get("/v1/sessions/new/context", **headers[name]).json["messages"] == [HELLO]
    with chdir(tmp_path):  # and neither does what the command line does with them afterwards
        _, report = compact_stored("red/of-2", None, "9000", None, None, "")
    assert report.changed
    assert not (home / "learned").exists()
