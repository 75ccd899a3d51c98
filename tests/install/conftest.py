"""A home and a project in a temporary folder, and `compactor` run in them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from context_compactor.cli.main import main
from tests.cli.conftest import Ran

PROGRAM = [sys.executable, "-c", "from context_compactor.cli.main import main; main()"]


class Place(Struct):
    """Somebody's home, with a project in it."""

    home: Path
    project: Path

    @property
    def settings(self) -> Path:
        return self.home / ".claude" / "settings.json"

    @property
    def state(self) -> Path:
        return self.home / ".claude.json"

    def write(self, path: Path, content: str | bytes, mode: int = 0o644) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def tree(self) -> dict[str, tuple[int, bytes | str]]:
        """Everything in the home but our own state: modes, contents, where links lead."""
        found: dict[str, tuple[int, bytes | str]] = {}
        for path in sorted(self.home.rglob("*")):
            name = str(path.relative_to(self.home))
            if name.startswith(".local"):
                continue
            mode = stat.S_IMODE(path.lstat().st_mode)
            link = path.readlink() if path.is_symlink() else None
            found[name] = (mode, str(link) if link else b"" if path.is_dir() else path.read_bytes())
        return found


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    project = tmp_path / "work" / "project"
    (project / ".git").mkdir(parents=True)
    (project / "src").mkdir()
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME", "CLAUDE_PROJECT_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(project / "src")
    return Place(tmp_path, project)


@pytest.fixture
def run(place, capfd):
    """Runs `compactor` in this process."""

    def run_command(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(left.value.code or 0, out, err)

    return run_command


def start(*arguments: object, **options) -> subprocess.Popen[bytes]:
    """Starts `compactor` as a process of its own."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*PROGRAM, *map(str, arguments)], env=dict(os.environ), **{**pipes, **options})
