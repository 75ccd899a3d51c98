"""Bytes to text, and text to JSON values, for whatever programs really write."""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

from context_compactor.errors import BadTranscript

_DECODER = msgspec.json.Decoder()
_GZIP = b"\x1f\x8b"
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UNMARKED = {b"{\0": "utf-16-le", b"[\0": "utf-16-le", b"\0{": "utf-16-be", b"\0[": "utf-16-be"}


class Malformed(Exception):
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
    encoding = next((_MARKS[mark] for mark in _MARKS if content.startswith(mark)), _UNMARKED.get(content[:2]))
    return _recode(content, encoding, name) if encoding else content


def decode(text: bytes) -> Any:
    """One JSON value. Lone surrogates, NaN and raw control characters are read too; of equal keys the last wins."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_odd(text)
    except RecursionError:
        raise Malformed("nested too deeply") from None


def _decode_odd(raw: bytes) -> Any:
    import json

    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as problem:
        # A cut in the middle of a character leaves bytes that are not UTF-8 at the very end.
        raise Malformed("not UTF-8 text", 1 + raw.count(b"\n", 0, problem.start), is_cut=_ends(problem)) from None
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as problem:
        raise _explain(text, problem.msg.startswith("Unterminated") or problem.pos >= len(text.rstrip())) from None
    except RecursionError:
        raise Malformed("nested too deeply") from None
    except ValueError as problem:
        raise Malformed(str(problem)) from None


def _ends(problem: UnicodeDecodeError) -> bool:
    return problem.reason == "unexpected end of data"


def _explain(text: str, is_cut: bool) -> Malformed:
    """The strict reading stops at the line where the trouble starts: a text in quotes cannot run over it."""
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as problem:
        return Malformed(problem.msg, problem.lineno, problem.colno, is_cut)
    except (ValueError, RecursionError) as problem:
        return Malformed(str(problem), is_cut=is_cut)
    return Malformed("not readable", is_cut=is_cut)


def _gunzip(content: bytes, name: str) -> bytes:
    import gzip
    import zlib

    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as problem:
        raise BadTranscript(f"{name}: the gzip data is damaged ({problem}). Try: pack it again.") from None


def _recode(content: bytes, encoding: str, name: str) -> bytes:
    try:
        text = content.decode(encoding, "surrogatepass")
    except UnicodeDecodeError as problem:
        raise BadTranscript(f"{name}: not {encoding} text ({problem.reason}). Try: save it as UTF-8.") from None
    return text.removeprefix("\ufeff").encode("utf-8", "surrogatepass")
