"""From the bytes of a file to its JSON values, each with the number of its line or item."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any

import msgspec

from context_compactor.errors import BadTranscript

_DECODER = msgspec.json.Decoder()
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UNMARKED = {b"{\0": "utf-16-le", b"[\0": "utf-16-le", b"\0{": "utf-16-be", b"\0[": "utf-16-be"}


class MalformedJson(Exception):
    """A text that is not JSON: where, and whether it only ends too early."""

    def __init__(self, problem: str, line: int = 1, column: int = 1, is_cut: bool = False) -> None:
        self.line = line
        self.column = column
        self.is_cut = is_cut
        super().__init__(problem)


def unpack(content: bytes | str, name: str) -> bytes:
    """The content as UTF-8 without a byte order mark; gzip and UTF-16 are undone."""
    if isinstance(content, str):
        return content.removeprefix("\ufeff").encode("utf-8", "surrogatepass")
    if content.startswith(_GZIP):
        content = _gunzip(content, name)
    if content.startswith(codecs.BOM_UTF8):
        return content.removeprefix(codecs.BOM_UTF8)
    encoding = next(
        (_BYTE_ORDER_MARKS[mark] for mark in _BYTE_ORDER_MARKS if content.startswith(mark)), _UNMARKED.get(content[:2])
    )
    return _recode(content, encoding, name) if encoding else content


def decode_json(text: bytes) -> Any:
    """One JSON value. Lone surrogates, NaN and raw control characters are read too; of equal keys the last wins."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_odd(text)
    except RecursionError:
        raise MalformedJson("nested too deeply") from None


def _decode_odd(raw: bytes) -> Any:
    import json

    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as problem:
        # A cut in the middle of a character leaves bytes that are not UTF-8 at the very end.
        raise MalformedJson("not UTF-8 text", 1 + raw.count(b"\n", 0, problem.start), is_cut=_ends(problem)) from None
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as problem:
        raise _explain(text, problem.msg.startswith("Unterminated") or problem.pos >= len(text.rstrip())) from None
    except RecursionError:
        raise MalformedJson("nested too deeply") from None
    except ValueError as problem:
        raise MalformedJson(str(problem)) from None


def _ends(problem: UnicodeDecodeError) -> bool:
    return problem.reason == "unexpected end of data"


def _explain(text: str, is_cut: bool) -> MalformedJson:
    """The strict reading stops at the line where the trouble starts: a text in quotes cannot run over it."""
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as problem:
        return MalformedJson(problem.msg, problem.lineno, problem.colno, is_cut)
    except (ValueError, RecursionError) as problem:
        return MalformedJson(str(problem), is_cut=is_cut)
    return MalformedJson("not readable", is_cut=is_cut)


def _gunzip(content: bytes, name: str) -> bytes:
    import gzip
    import zlib

    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as problem:
        raise BadTranscript(f"{name}: the gzip data is damaged ({problem}). Try: compress it again.") from None


def _recode(content: bytes, encoding: str, name: str) -> bytes:
    try:
        text = content.decode(encoding, "surrogatepass")
    except UnicodeDecodeError as problem:
        raise BadTranscript(f"{name}: not {encoding} text ({problem.reason}). Try: save it as UTF-8.") from None
    return text.removeprefix("\ufeff").encode("utf-8", "surrogatepass")


NumberedValue = tuple[int, Any]

FORMATS = "JSON or JSON lines of messages, a request body, or a session log of Claude Code, Codex or pi; gzip too"
_SPACES = b" \t\r\n"
_SHOWN = 60
_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive",
    b"(\xb5/\xfd": "zstd data",
    b"\xfd7zXZ": "xz data",
    b"BZh": "bzip2 data",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF",
    b"\x89PNG": "an image",
}


class JsonFile:
    """The JSON values of one file. After a walk, `cut` is the number of a last line that is cut off, or 0."""

    def __init__(self, text: bytes, name: str) -> None:
        self.name = name
        self.text = text.rstrip(_SPACES)
        self.start = len(text) - len(text.lstrip(_SPACES))
        self.unit = "line"
        self.cut = 0

    def __iter__(self) -> Iterator[NumberedValue]:
        first = self.text[self.start : self.start + 1]
        if not first:
            raise self.error(0, "there is nothing in it", f"give {FORMATS}")
        if first not in (b"{", b"["):
            raise self.error(0, *_not_json(self.text[self.start :]))
        return self._lines() if first == b"{" and self._is_lines() else self._document()

    def error(self, number: int, problem: str, advice: str) -> BadTranscript:
        """An error that names the file, the place, what is wrong and what to try."""
        place = f"{self.name}, {self.unit} {number}" if number else self.name
        return BadTranscript(f"{place}: {problem}. Try: {advice}.")

    def cut_error(self) -> BadTranscript:
        """The error for a file whose last line is cut off."""
        return self.error(self.cut, "the last line is cut off", "write it whole, or remove it")

    def _is_lines(self) -> bool:
        end = self.text.find(b"\n", self.start)
        return end > 0 and _is_json(self.text[self.start : end])

    def _document(self) -> Iterator[NumberedValue]:
        try:
            value = decode_json(self.text[self.start :])
        except MalformedJson as problem:
            raise self._document_error(problem) from None
        if isinstance(value, dict):
            return iter([(0, value)])
        self.unit = "item"
        if not value:
            raise self.error(0, "the list is empty", "give a list with at least one message")
        return iter(list(enumerate(value, 1)))

    def _document_error(self, problem: MalformedJson) -> BadTranscript:
        line = problem.line + self.text.count(b"\n", 0, self.start)
        if problem.is_cut:
            return self.error(line, f"the JSON is cut off ({problem})", "write the file again, whole")
        return self.error(line, f"not JSON: {problem}, column {problem.column}", f"correct it, or give {FORMATS}")

    def _lines(self) -> Iterator[NumberedValue]:
        number, at, size = 1 + self.text.count(b"\n", 0, self.start), self.start, len(self.text)
        while at < size:
            end = self.text.find(b"\n", at)
            end = size if end < 0 else end
            line = self.text[at:end]
            if line and not line.isspace():
                try:
                    yield number, decode_json(line)
                except MalformedJson as problem:
                    self._reject(number, line, problem, is_last=end == size)
            number, at = number + 1, end + 1

    def _reject(self, number: int, line: bytes, problem: MalformedJson, is_last: bool) -> None:
        if is_last and problem.is_cut:
            self.cut = number
            return
        what = f"not JSON: {problem}, column {problem.column} of {_shown(line)}"
        raise self.error(number, what, "correct or remove that line") from None


def _is_json(line: bytes) -> bool:
    try:
        decode_json(line)
    except MalformedJson:
        return False
    return True


def _not_json(text: bytes) -> tuple[str, str]:
    for magic, what in _OTHER_FILES.items():
        if text.startswith(magic):
            return f"this is {what}, not JSON", "unpack it first"
    if b"\0" in text[:4096]:
        return "this is binary, not JSON", f"give {FORMATS}"
    return f"not JSON: it starts with {_shown(text)}", f"give {FORMATS}"


def _shown(text: bytes) -> str:
    return ascii(text[:_SHOWN].decode("utf-8", "replace"))
