"""What a session's export folder holds: its manifest, and what that names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from context_compactor.archive.export_files import Section, fenced_value, read_page, read_rows, row_value
from context_compactor.errors import CompactorError

CALLS, SUMMARIES, OUTPUTS, MANIFEST = "tool-calls.json", "file-summaries.md", "subagent-outputs.md", "manifest.json"

T = TypeVar("T")


class Item(Struct, frozen=True):
    """One original in the manifest: `file` and `key` say where it stands in full."""

    id: str
    type: str
    summary: str
    file: str
    key: str
    recovery_hint: str


class Manifest(Struct, frozen=True):
    """What a session's folder holds, and when it last gained something."""

    session_id: str
    archived_at: str
    items: tuple[Item, ...] = ()


class Held(Struct, frozen=True):
    """The items of a folder by id, and by key what its files hold of them."""

    items: dict[str, Item]
    rows: dict[str, bytes]
    summaries: dict[str, Section]
    outputs: dict[str, Section]

    def value(self, item: Item) -> Any:
        """The original itself, decoded."""
        return fenced_value(self.outputs[item.key].fences) if item.file == OUTPUTS else row_value(self.rows[item.key])

    def refuse_gaps(self, place: Path) -> None:
        """An error when an item names what is not there."""
        for item in self.items.values():
            is_summed = item.id in self.summaries or not item.id.startswith("file_")
            if not is_summed or item.key not in (self.outputs if item.file == OUTPUTS else self.rows):
                raise damaged(place / MANIFEST, f"it names {item.id}, which is not in the files beside it")


def read_manifest(place: Path) -> Manifest | None:
    """The manifest of a session's folder, if there is one."""
    content = read_file(place / MANIFEST)
    try:
        return None if content is None else msgspec.convert(json.loads(content), Manifest)
    except (ValueError, RecursionError) as error:
        raise damaged(place / MANIFEST, f"it is not a manifest ({error})") from None


def read_held(place: Path, manifest: Manifest) -> Held:
    """What the manifest names. Anything else was written by somebody who was killed before it counted."""
    items = {item.id: item for item in manifest.items}
    return Held(
        items,
        _named(place / CALLS, read_rows, items),
        _named(place / SUMMARIES, read_page, items),
        _named(place / OUTPUTS, read_page, items),
    )


def read_file(path: Path) -> bytes | None:
    """A file's content, if there is one."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CompactorError(f"cannot read {path}: {error.strerror or error}") from error


def damaged(path: Path, problem: str) -> CompactorError:
    """The error for a file that no export wrote, or that was changed since."""
    return CompactorError(f"{path} cannot be used: {problem}. Try: remove {path.parent} and export everything again.")


def _named(path: Path, read: Callable[[bytes], Mapping[str, T]], items: Mapping[str, Item]) -> dict[str, T]:
    content = read_file(path)
    try:
        found = {} if content is None else read(content)
    except (CompactorError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from None
    return {key: value for key, value in found.items() if key in items}
