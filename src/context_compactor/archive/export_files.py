"""How originals are laid out in the files of an export, and read back.

`tool-calls.json` has one original in each row. The two Markdown pages have one section for each, whose texts stand
between fences that are longer than any inside, so that no original can end its own section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from context_compactor.archive.archive import Original
from context_compactor.errors import CompactorError
from context_compactor.messages.jsontext import json_bytes, read_json
from context_compactor.messages.references import ID

_HEAD = re.compile(rb"\n## ([a-z]+_\d+): [^\n]*\n\n[^\n]*\n")
_FENCE = re.compile(rb"\n(`{3,})([a-z ]+)\n")
_TICKS = re.compile(rb"`+")
_OTHER_LAYOUT = "it is not laid out as an export lays it out"

Fence = tuple[str, bytes]
"""What a fenced text is (`text`, `text block` or `json`), and the text."""


class Section(Struct, frozen=True):
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


def page_content(title: str, sections: Mapping[str, Section]) -> bytes:
    """A Markdown page with these sections."""
    return f"# {title}\n".encode() + b"".join(section.raw for section in sections.values())


def read_page(content: bytes) -> dict[str, Section]:
    """The sections of a Markdown page by id."""
    sections = {}
    at = content.find(b"\n") + 1 if content.startswith(b"# ") else 0
    while at < len(content):
        head = _HEAD.match(content, at)
        if head is None:
            raise CompactorError(f"{_OTHER_LAYOUT}, from byte {at} on")
        fences, end = _read_fences(content, head.end())
        sections[head[1].decode()] = Section(content[at:end], fences)
        at = end
    return sections


def section_of(original: Original, note: str, fences: Sequence[Fence]) -> Section:
    """A heading with the id and the summary, a line about the original, and its texts."""
    summary = " ".join(original.summary.split())
    head = f"\n## {original.id}: {summary}\n\n{note}\n".encode("utf-8", "backslashreplace")
    return Section(head + b"".join(_fenced(kind, text) for kind, text in fences), tuple(fences))


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
    raise CompactorError("its texts are not what an export writes")


def row_value(row: bytes) -> Any:
    """The value of a row, which must be one that is written as exactly these bytes."""
    try:
        value = read_json(row)
        is_exact = json_bytes(value) == row
    except (ValueError, RecursionError) as error:
        raise CompactorError(f"it is not JSON ({error})") from None
    if not is_exact:
        raise CompactorError("it is not written as an export writes it")
    return value


def checked_id(original: Original) -> str:
    """The id of an original, which is its key in every file."""
    if not (original.id.isascii() and ID.fullmatch(original.id)):
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
