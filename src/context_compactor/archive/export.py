"""The readable export: a folder for each session in which archived originals can be read without the store.

    <folder>/<session>/tool-calls.json       every tool result, file and turn in full, by id
    <folder>/<session>/file-summaries.md     what is in the files
    <folder>/<session>/subagent-outputs.md   what sub-agents answered, in full
    <folder>/<session>/manifest.json         what there is, where it stands and how to get it back

An export adds to what is there. The manifest is written last, so at every moment it names only what can be read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.archive.archive import Original
from context_compactor.archive.export_files import checked_id, page_content, rows_content, section_of, value_fences
from context_compactor.archive.export_read import (
    CALLS,
    MANIFEST,
    OUTPUTS,
    SUMMARIES,
    Held,
    Item,
    Manifest,
    damaged,
    read_file,
    read_held,
    read_manifest,
)
from context_compactor.errors import CompactorError
from context_compactor.files import (
    make_private_folder,
    naming_write_errors,
    one_writer,
    remove_scraps,
    write_atomically,
)
from context_compactor.messages.jsontext import json_bytes

_TYPES = {"tool": "tool_call", "file": "file_content", "agent": "subagent_output", "turn": "turn"}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?")


class Exported(Struct, frozen=True):
    """The session's folder, its files, and how many originals it holds now."""

    folder: Path
    paths: tuple[Path, ...]
    count: int


class Export(Struct, frozen=True):
    """An export that was read back: the manifest, and every value by id."""

    manifest: Manifest
    values: dict[str, Any]


def session_folder(folder: Path, session_id: str) -> Path:
    """Where a session is exported: under its id if that is a safe name, else under one made from it; never shared."""
    if _PLAIN_NAME.fullmatch(session_id):
        return folder / session_id
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    words = re.sub(r"[^a-z0-9_]+", "-", session_id[:60].lower()).strip("-")
    return folder / f"{words or 'session'}~{digest[:32]}"


def export_folder(
    folder: Path,
    session_id: str,
    originals: Iterable[Original],
    archived_at: str,
    *,
    summarize: Callable[[Original], str] = lambda original: original.summary,
) -> Exported:
    """Add originals to the session's folder. Give all of them or only new ones; the same id replaces.

    `summarize` writes what `file-summaries.md` says of a file. Whatever fails or is killed, the folder stays readable.
    """
    place = session_folder(folder, session_id)
    make_private_folder(place)
    with one_writer(folder):
        remove_scraps(place)
        before = _held_by(place, session_id)
        after = _with(before, originals, summarize)
        after.refuse_gaps(place)
        _write(place, before, after, Manifest(session_id, archived_at, tuple(after.items.values())))
    return Exported(place, tuple(place / name for name in (CALLS, SUMMARIES, OUTPUTS, MANIFEST)), len(after.items))


def remove_export(folder: Path, session_id: str) -> None:
    """Delete the files of a session's folder that an export has made, and the folder when nothing else is in it."""
    place = session_folder(folder, session_id)
    if not place.is_dir() or place.is_symlink():
        return
    with one_writer(folder), naming_write_errors(place):
        remove_scraps(place)
        for name in (MANIFEST, CALLS, SUMMARIES, OUTPUTS):
            (place / name).unlink(missing_ok=True)
        if not any(place.iterdir()):
            place.rmdir()


def read_export(place: Path) -> Export:
    """Every value of a session's folder, each one proven to be written as the bytes it was read from.

    An error names what is missing or was changed.
    """
    manifest = read_manifest(place)
    if manifest is None:
        raise CompactorError(f"there is no export in {place}: it has no {MANIFEST}")
    # The manifest was read first: while somebody writes, the other files hold more than it names, never less.
    held = read_held(place, manifest)
    held.refuse_gaps(place)
    return Export(manifest, {item.id: _value(place, held, item) for item in manifest.items})


def _value(place: Path, held: Held, item: Item) -> Any:
    try:
        return held.value(item)
    except (CompactorError, UnicodeDecodeError) as error:
        raise damaged(place / item.file, f"{item.key}: {error}") from None


def _held_by(place: Path, session_id: str) -> Held:
    manifest = read_manifest(place) or Manifest(session_id, "")
    if manifest.session_id != session_id:
        raise damaged(place / MANIFEST, f"it is of the session {manifest.session_id!r}, not {session_id!r}")
    return read_held(place, manifest)


def _with(before: Held, originals: Iterable[Original], summarize: Callable[[Original], str]) -> Held:
    after = Held(dict(before.items), dict(before.rows), dict(before.summaries), dict(before.outputs))
    for original in originals:
        try:
            _add(after, checked_id(original), original, summarize)
        except ValueError as error:
            raise CompactorError(f"cannot export {original.id}: {error}") from error
    return after


def _add(held: Held, key: str, original: Original, summarize: Callable[[Original], str]) -> None:
    kind = key.partition("_")[0]
    if kind == "agent":
        held.outputs[key] = section_of(original, _note(original), value_fences(original.value))
    else:
        held.rows[key] = json_bytes(original.value)
    if kind == "file":
        note = f"{_note(original)}. In full: {CALLS}, key {key}"
        held.summaries[key] = section_of(original, note, value_fences(summarize(original)))
    file = OUTPUTS if kind == "agent" else CALLS
    held.items[key] = Item(key, _TYPES[kind], original.summary, file, key, original.recovery)


def _note(original: Original) -> str:
    return " ".join(f"{original.kind}, {original.tokens:,} tokens, {original.recovery}".split())


def _write(place: Path, before: Held, after: Held, manifest: Manifest) -> None:
    written = [
        _write_new(place / CALLS, rows_content(after.rows)),
        _write_new(place / SUMMARIES, page_content("File summaries", after.summaries)),
        _write_new(place / OUTPUTS, page_content("Sub-agent outputs", after.outputs)),
    ]
    if any(written) or before.items != after.items or not (place / MANIFEST).exists():
        text = json.dumps(msgspec.to_builtins(manifest), indent=2, ensure_ascii=False)
        # Half characters become the escapes that JSON has for them.
        write_atomically(place / MANIFEST, f"{text}\n".encode("utf-8", "backslashreplace"), private=True)


def _write_new(path: Path, content: bytes) -> bool:
    is_new = read_file(path) != content
    if is_new:
        write_atomically(path, content, private=True)
    return is_new
