"""What an install or an uninstall would change, without changing it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from context_compactor.agents.known import Agent
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.install.changes import Change, missing_folders, read_file
from context_compactor.install.jsonspots import BadSettingsText
from context_compactor.install.ledger import Ledger, Record, digest, encode
from context_compactor.install.shape import UNKNOWN
from context_compactor.install.targets import BOM, Target, decoded


class FilePlan(Struct, frozen=True):
    """One settings file: what changes in it and in the ledger, and what of ours stands in it before and after.

    `folders` were made by us and go when they are empty. `is_exact` says of an uninstall that the file becomes what it
    was, byte by byte.
    """

    path: Path
    change: Change
    ledger: Change
    was: tuple[str, ...]
    becomes: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    is_exact: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether the settings file itself is written."""
        return self.change.before != self.change.after

    @property
    def status(self) -> str:
        """What happens to the settings file: `unchanged`, `created`, `removed` or `changed`."""
        if not self.is_changed:
            return "unchanged"
        if self.change.before is None:
            return "created"
        return "removed" if self.change.after is None else "changed"


def plan_install(agent: Agent, wanted: Sequence[Target], ledger: Ledger) -> list[FilePlan]:
    """Bring every file to where everything of ours is registered in it."""
    return [_install(agent, target, ledger) for target in wanted]


def plan_uninstall(wanted: Sequence[Target], ledger: Ledger) -> list[FilePlan]:
    """Bring every file to where nothing of ours is left in it."""
    return [_uninstall(target, ledger) for target in wanted]


def _install(agent: Agent, target: Target, ledger: Ledger) -> FilePlan:
    path, content, record = _look(target, ledger)
    with _naming(target.path):
        base = _without(target, content, record)
        shape = target.settings.shape_of(decoded(base or b""))
        text = decoded(content or b"")
        after = _encoded(content, target.settings.with_ours(text, shape))
        becomes = tuple(target.settings.registered(decoded(after)))
    if after == (content or b""):
        return FilePlan(target.path, Change(path, content, content), _same(ledger, path), becomes, becomes)
    folders = record.folders if record else tuple(str(folder) for folder in missing_folders(path))
    new = Record(str(path), agent.name, None if base is None else digest(base), shape, folders)
    if _without(target, after, new) != base:
        raise CompactorError(f"{target.path}: what would be added could not be taken out again; nothing was changed")
    place = ledger.place(path)
    return FilePlan(
        target.path,
        Change(path, content, after, is_private=target.is_private and content is None),
        Change(place, read_file(place), encode(new), is_private=True),
        tuple(target.settings.registered(text)),
        becomes,
    )


def _uninstall(target: Target, ledger: Ledger) -> FilePlan:
    path, content, record = _look(target, ledger)
    with _naming(target.path):
        was = tuple(target.settings.registered(decoded(content or b"")))
        after = _without(target, content, record)
    change, known = Change(path, content, after), _same(ledger, path)
    if not target.registers:
        return FilePlan(target.path, change, known, was, ())
    return FilePlan(
        target.path,
        change,
        Change(known.path, known.before, None),
        was,
        (),
        tuple(Path(folder) for folder in record.folders) if record else (),
        record is not None and record.before == (None if after is None else digest(after)),
    )


def _look(target: Target, ledger: Ledger) -> tuple[Path, bytes | None, Record | None]:
    path = Path(os.path.realpath(target.path))
    content = read_file(path)
    with _naming(target.path):
        target.settings.check(decoded(content or b""))
    return path, content, ledger.read(path)


def _without(target: Target, content: bytes | None, record: Record | None) -> bytes | None:
    """A file without anything of ours, None where there would be no file."""
    if content is None:
        return None
    text = target.settings.without_ours(decoded(content), record.shape if record else UNKNOWN)
    is_nothing = "".join(text.split()) in ("", "{}")
    return None if is_nothing and record is not None and record.before is None else _encoded(content, text)


def _encoded(like: bytes | None, text: str) -> bytes:
    return (BOM if like is not None and like.startswith(BOM) else b"") + text.encode()


def _same(ledger: Ledger, path: Path) -> Change:
    place = ledger.place(path)
    content = read_file(place)
    return Change(place, content, content)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except BadSettingsText as error:
        raise BadSetting(f"{path}, line {error.line}: {error.problem} Nothing was changed.") from error
