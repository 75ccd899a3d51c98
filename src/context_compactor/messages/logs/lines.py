"""From the text of a file to its JSON values, each with the number of its line or item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_compactor.errors import BadTranscript
from context_compactor.messages.logs.decode import Malformed, decode

Entry = tuple[int, Any]

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


class Entries:
    """The JSON values of one file. After a walk, `cut` is the number of a last line that is cut off, or 0."""

    def __init__(self, text: bytes, name: str) -> None:
        self.name = name
        self.text = text.rstrip(_SPACES)
        self.start = len(text) - len(text.lstrip(_SPACES))
        self.unit = "line"
        self.cut = 0

    def __iter__(self) -> Iterator[Entry]:
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

    def _document(self) -> Iterator[Entry]:
        try:
            value = decode(self.text[self.start :])
        except Malformed as problem:
            raise self._document_error(problem) from None
        if isinstance(value, dict):
            return iter([(0, value)])
        self.unit = "item"
        if not value:
            raise self.error(0, "the list is empty", "give a list with at least one message")
        return iter(list(enumerate(value, 1)))

    def _document_error(self, problem: Malformed) -> BadTranscript:
        line = problem.line + self.text.count(b"\n", 0, self.start)
        if problem.is_cut:
            return self.error(line, f"the JSON is cut off ({problem})", "write the file again, whole")
        return self.error(line, f"not JSON: {problem}, column {problem.column}", f"correct it, or give {FORMATS}")

    def _lines(self) -> Iterator[Entry]:
        number, at, size = 1 + self.text.count(b"\n", 0, self.start), self.start, len(self.text)
        while at < size:
            end = self.text.find(b"\n", at)
            end = size if end < 0 else end
            line = self.text[at:end]
            if line and not line.isspace():
                try:
                    yield number, decode(line)
                except Malformed as problem:
                    self._reject(number, line, problem, is_last=end == size)
            number, at = number + 1, end + 1

    def _reject(self, number: int, line: bytes, problem: Malformed, is_last: bool) -> None:
        if is_last and problem.is_cut:
            self.cut = number
            return
        what = f"not JSON: {problem}, column {problem.column} of {_shown(line)}"
        raise self.error(number, what, "correct or remove that line") from None


def _is_json(line: bytes) -> bool:
    try:
        decode(line)
    except Malformed:
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
