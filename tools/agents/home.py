"""A home of its own for a live check: nothing of the real one is read or written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tools.agents.story import make_project

_OURS = Path(sys.executable).parent
_KEPT = ("LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE")
_SECONDS = 600


class Home(Struct, frozen=True):
    """A user's home with one project in it."""

    folder: Path
    env: Mapping[str, str]
    programs: tuple[Path, ...]

    @property
    def project(self) -> Path:
        """Where the agent works."""
        return self.folder / "project"

    def run(self, command: Sequence[str | Path], **more: str) -> subprocess.CompletedProcess[str]:
        """A command in the project, with what it printed; `more` are environment variables."""
        return subprocess.run(
            command,
            cwd=self.project,
            env={**self.env, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )

    def compactor(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """`compactor` in the project; `more` are environment variables."""
        return self.run(self.ours(*arguments), **more)

    def ours(self, *arguments: str) -> list[str]:
        """A command of ours."""
        return [str(_OURS / "compactor"), *arguments]

    def neutral(self, text: str) -> str:
        """A text without the places of this machine."""
        for folder in self.programs:
            text = text.replace(str(folder), "~/.local/bin")
        return text.replace(str(self.folder), "~")


@contextmanager
def new_home(agent: Path) -> Iterator[Home]:
    """A home in which this agent and ourselves are on the PATH."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:  # an agent that ends may still write
        folder = Path(name)
        programs = (_OURS, agent.parent)
        path = os.pathsep.join(map(str, (*programs, os.environ["PATH"])))
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        # Codex runs commands in a login shell, which begins with another PATH.
        (folder / ".profile").write_text(f"export PATH='{path}'\n")
        found = {"PATH": path, "HOME": name, "SHELL": "/bin/bash", "TERM": "xterm-256color"}
        home = Home(folder, kept | found, programs)
        make_project(home.project)
        yield home
