"""What each settings file was before us: a small file for each, outside of the project, without its content.

A ledger that is lost costs little: our entries are found by what they run. Only the white space of empty containers
and whether a file was there at all are known from here alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from context_compactor.install.homes import home_of
from context_compactor.install.shape import Shape


class Record(Struct, frozen=True, omit_defaults=True):
    """One settings file. `before` is its SHA-256 without us, None where there was no file; we made `folders`."""

    path: str
    agent: str
    before: str | None
    shape: Shape
    folders: tuple[str, ...] = ()


class Ledger:
    """The records, one file each, named by the settings file they are about."""

    def __init__(self, env: Mapping[str, str]) -> None:
        state = env.get("XDG_STATE_HOME", "")
        base = Path(state) if Path(state).is_absolute() else home_of(env) / ".local" / "state"
        self.folder = base / "compactor" / "installs"

    def place(self, path: Path) -> Path:
        """Where the record of a settings file lies."""
        return self.folder / f"{digest(os.fsencode(path))[:32]}.json"

    def read(self, path: Path) -> Record | None:
        """The record of a settings file; None where there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self.place(path).read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            return None

    def records(self) -> set[Path]:
        """Where all records lie."""
        return set(self.folder.glob("*.json"))


def digest(content: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def encode(record: Record) -> bytes:
    """A record as it lies in its file."""
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"
