"""The readable export: a folder for each session in which originals can be read without the store."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from context_compactor.archive.originals import Original
from context_compactor.dialects.turns import REFERENCE_PATTERN
from context_compactor.errors import CompactorError
from context_compactor.files import (
    make_private_folder,
    naming_write_errors,
    one_writer,
    remove_scraps,
    write_atomically,
)
from context_compactor.json_values import json_bytes, read_json

_SECTION_HEAD = re.compile(rb"\n## ([a-z]+_\d+): [^\n]*\n\n[^\n]*\n")
_FENCE = re.compile(rb"\n(`{3,})([a-z ]+)\n")
_TICKS = re.compile(rb"`+")
_OTHER_LAYOUT = "it is not laid out as an export lays it out"

Fence = tuple[str, bytes]
"""What a fenced text is (`text`, `text block` or `json`), and the text."""


class PageSection(Struct, frozen=True):
    """One original on a Markdown page: as it stands there, and what its fences hold."""

    raw: bytes
    fences: tuple[Fence, ...]


def rows_content(rows: Mapping[str, bytes]) -> bytes:
    """`tool-calls.json`: a JSON object with each value, as JSON, in a row of its own."""
    return b"{\n" + b",\n".join(b'"%s": %s' % (key.encode(), row) for key, row in rows.items()) + b"\n}\n"


def read_rows(content: bytes) -> dict[str, bytes]:
    """The rows of `tool-calls.json` by key, each as JSON that was not decoded."""
    if not (content.startswith(b"{\n") and content.endswith(b"\n}\n")):
        raise CompactorError(_OTHER_LAYOUT)
    lines = content[2:-3].split(b"\n")
    return dict(_read_row(line) for line in lines if line)


def page_content(title: str, sections: Mapping[str, PageSection]) -> bytes:
    """A Markdown page with these sections."""
    return f"# {title}\n".encode() + b"".join(section.raw for section in sections.values())


def read_page(content: bytes) -> dict[str, PageSection]:
    """The sections of a Markdown page by id."""
    sections = {}
    at = content.find(b"\n") + 1 if content.startswith(b"# ") else 0
    while at < len(content):
        head = _SECTION_HEAD.match(content, at)
        if head is None:
            raise CompactorError(f"{_OTHER_LAYOUT}, from byte {at} on")
        fences, end = _read_fences(content, head.end())
        sections[head[1].decode()] = PageSection(content[at:end], fences)
        at = end
    return sections


def section_of(original: Original, note: str, fences: Sequence[Fence]) -> PageSection:
    """A heading with the id and the summary, a line about the original, and its texts."""
    summary = " ".join(original.summary.split())
    head = f"\n## {original.id}: {summary}\n\n{note}\n".encode("utf-8", "backslashreplace")
    return PageSection(head + b"".join(_fenced(kind, text) for kind, text in fences), tuple(fences))


def value_fences(value: Any) -> list[Fence]:
    """A value as texts that a person reads and `fenced_value` turns back: text as it is, the rest as JSON."""
    try:
        if isinstance(value, str):
            return [("text", value.encode())]
        if value and isinstance(value, list) and all(_is_text_block(block) for block in value):
            return [("text block", block["text"].encode()) for block in value]
    except UnicodeEncodeError:
        pass  # half a character has a form in JSON only
    return [("json", json_bytes(value))]


def fenced_value(fences: Sequence[Fence]) -> Any:
    """The value that was written as these texts."""
    kinds = {kind for kind, _ in fences}
    if kinds == {"text block"}:
        return [{"type": "text", "text": text.decode()} for _, text in fences]
    if len(fences) == 1 and kinds <= {"text", "json"}:
        ((kind, text),) = fences
        return text.decode() if kind == "text" else row_value(text)
    raise CompactorError("its texts are not in the format of an export")


def row_value(row: bytes) -> Any:
    """The value of a row, which must be one that is written as exactly these bytes."""
    try:
        value = read_json(row)
        is_exact = json_bytes(value) == row
    except (ValueError, RecursionError) as error:
        raise CompactorError(f"it is not JSON ({error})") from None
    if not is_exact:
        raise CompactorError("it is not in the format of an export")
    return value


def checked_id(original: Original) -> str:
    """The id of an original, which is its key in every file."""
    if not (original.id.isascii() and REFERENCE_PATTERN.fullmatch(original.id)):
        raise CompactorError(f"cannot export {original.id!r}: an id is turn_, tool_, file_ or agent_ and a number")
    return original.id


def _read_row(line: bytes) -> tuple[str, bytes]:
    key, found, row = line.partition(b'": ')
    if not found or not key.startswith(b'"'):
        raise CompactorError(_OTHER_LAYOUT)
    return key[1:].decode(), row.removesuffix(b",")


def _is_text_block(block: Any) -> bool:
    if not isinstance(block, dict) or list(block) != ["type", "text"]:
        return False
    return block["type"] == "text" and isinstance(block["text"], str)


def _fenced(kind: str, text: bytes) -> bytes:
    ticks = b"`" * max([3, *(len(run) + 1 for run in _TICKS.findall(text))])
    return b"\n%s%s\n%s\n%s\n" % (ticks, kind.encode(), text, ticks)


def _read_fences(content: bytes, at: int) -> tuple[tuple[Fence, ...], int]:
    fences = []
    while match := _FENCE.match(content, at):
        end = content.find(b"\n%s\n" % match[1], match.end())
        if end < 0:
            raise CompactorError(f"the text that begins at byte {at} does not end")
        fences.append((match[2].decode(), content[match.end() : end]))
        at = end + len(match[1]) + 2
    return tuple(fences), at


CALLS, SUMMARIES, OUTPUTS, MANIFEST = "tool-calls.json", "file-summaries.md", "subagent-outputs.md", "manifest.json"

T = TypeVar("T")


class ManifestItem(Struct, frozen=True):
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
    items: tuple[ManifestItem, ...] = ()


class ExportContents(Struct, frozen=True):
    """The items of a folder by id, and by key what its files hold of them."""

    items: dict[str, ManifestItem]
    rows: dict[str, bytes]
    summaries: dict[str, PageSection]
    outputs: dict[str, PageSection]

    def value(self, item: ManifestItem) -> Any:
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


def read_contents(place: Path, manifest: Manifest) -> ExportContents:
    """What the manifest names. Anything else was written by somebody who was killed before it counted."""
    items = {item.id: item for item in manifest.items}
    return ExportContents(
        items,
        _read_named(place / CALLS, read_rows, items),
        _read_named(place / SUMMARIES, read_page, items),
        _read_named(place / OUTPUTS, read_page, items),
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


def _read_named(
    path: Path, read: Callable[[bytes], Mapping[str, T]], items: Mapping[str, ManifestItem]
) -> dict[str, T]:
    content = read_file(path)
    try:
        found = {} if content is None else read(content)
    except (CompactorError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from None
    return {key: value for key, value in found.items() if key in items}


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
        known = read_manifest(place) or Manifest(session_id, "")
        if known.session_id != session_id:
            raise damaged(place / MANIFEST, f"it is of the session {known.session_id!r}, not {session_id!r}")
        before = read_contents(place, known)
        after = _with_originals(before, originals, summarize)
        after.refuse_gaps(place)
        _write_files(place, before, after, Manifest(session_id, archived_at, tuple(after.items.values())))
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
    held = read_contents(place, manifest)
    held.refuse_gaps(place)
    values: dict[str, Any] = {}
    for item in manifest.items:
        try:
            values[item.id] = held.value(item)
        except (CompactorError, UnicodeDecodeError) as error:
            raise damaged(place / item.file, f"{item.key}: {error}") from None
    return Export(manifest, values)


def _with_originals(
    before: ExportContents, originals: Iterable[Original], summarize: Callable[[Original], str]
) -> ExportContents:
    after = ExportContents(dict(before.items), dict(before.rows), dict(before.summaries), dict(before.outputs))
    for original in originals:
        try:
            _add(after, checked_id(original), original, summarize)
        except ValueError as error:
            raise CompactorError(f"cannot export {original.id}: {error}") from error
    return after


def _add(held: ExportContents, key: str, original: Original, summarize: Callable[[Original], str]) -> None:
    kind = key.partition("_")[0]
    if kind == "agent":
        held.outputs[key] = section_of(original, _section_note(original), value_fences(original.value))
    else:
        held.rows[key] = json_bytes(original.value)
    if kind == "file":
        note = f"{_section_note(original)}. In full: {CALLS}, key {key}"
        held.summaries[key] = section_of(original, note, value_fences(summarize(original)))
    file = OUTPUTS if kind == "agent" else CALLS
    held.items[key] = ManifestItem(key, _TYPES[kind], original.summary, file, key, original.recovery)


def _section_note(original: Original) -> str:
    return " ".join(f"{original.kind}, {original.tokens:,} tokens, {original.recovery}".split())


def _write_files(place: Path, before: ExportContents, after: ExportContents, manifest: Manifest) -> None:
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
