"""Several connections of one process, and another process that comes and goes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from context_compactor.sessions.session import Session
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import messages, opened

APPEND = """
import sys
from pathlib import Path
from tests.sessions.talk import messages, opened
with opened(Path(sys.argv[1]), automatic=False) as session:
    session.append(messages({first}, {first} + 2))
"""


def test_what_another_process_writes_is_seen_by_every_connection_however_many_are_open(tmp_path):
    with opened(tmp_path, automatic=False) as session:
        session.append(messages(0, 2))
        with closing(SqliteStore(str(tmp_path / "sessions.db"))) as second:
            for first in (2, 4, 6):
                command = [sys.executable, "-c", APPEND.format(first=first), tmp_path]
                subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
                assert session.history() == messages(0, first + 2)
                assert second.session("run").messages == first + 2
        session.append(messages(8, 10))
    url = f"sqlite:///{tmp_path / 'sessions.db'}"
    with Session.open("run", store=url) as session:
        assert session.history() == messages(0, 10)
        assert session.verify() == []
