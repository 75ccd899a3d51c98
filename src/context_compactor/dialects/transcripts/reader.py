"""Reading transcripts: any known file, stream or text becomes a `Transcript`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import msgspec

from context_compactor.dialects.dialect import kind_of_value
from context_compactor.dialects.transcripts import claude_code, codex, opencode, pi
from context_compactor.dialects.transcripts.json_lines import FORMATS, JsonFile, NumberedValue, unpack
from context_compactor.dialects.transcripts.plain import is_conversation, is_message, read_conversation, read_messages
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.errors import BadTranscript, NoConversation

_LOGS = ((codex.is_line, codex.read), (pi.is_line, pi.read), (claude_code.is_line, claude_code.read))
_SHOWN_IDS = 3

Stream = IO[bytes] | IO[str]


def read_transcript(path: str | os.PathLike[str], stdin: Stream | None = None, dialect: str = "auto") -> Transcript:
    """The conversation in a file. Raises `BadTranscript` with the line, what is wrong and what to try.

    Plain messages are read in the `dialect` that is named; `auto` looks at them.
    """
    name, choice = _split_choice(os.fspath(path))
    return parse_transcript(_content(name, stdin), name, choice, dialect)


def read_transcripts(path: str | os.PathLike[str], stdin: Stream | None = None) -> Iterator[Transcript]:
    """Every conversation in a file, one after the other."""
    name = os.fspath(path)
    yield from parse_transcripts(_content(name, stdin), name)


def parse_transcript(content: bytes | str, name: str = "", choice: str = "", dialect: str = "auto") -> Transcript:
    """The conversation in a text; `choice` is the id or the number of one among several."""
    name = name or "transcript"
    ids: list[str] = []
    first: Transcript | None = None
    for number, transcript in enumerate(parse_transcripts(content, name, dialect), 1):
        if choice and choice in (transcript.session_id, str(number)):
            return transcript
        first = first or transcript
        ids.append(transcript.session_id or str(number))
    if first is None or choice:
        raise BadTranscript(f"{name}: it has no conversation {choice!r}. Try: {_choices(name, ids)}.")
    if len(ids) > 1:
        raise BadTranscript(f"{name}: it holds {len(ids)} conversations. Try: {_choices(name, ids)}.")
    return first


def parse_transcripts(content: bytes | str, name: str = "", dialect: str = "auto") -> Iterator[Transcript]:
    """Every conversation in a text. A file of recorded conversations is read one line at a time."""
    name = name or "transcript"
    source = JsonFile(unpack(content, name), name)
    entries = iter(source)
    first = next(entries)
    if opencode.is_session(first[1]):
        yield _log(opencode.read(first[1]), source, dialect)
    elif is_conversation(first[1]):
        for entry in chain([first], entries):
            yield read_conversation(entry, source, dialect)
        if source.cut:
            raise source.cut_error()
    else:
        yield _read_one([first, *entries], source, dialect)


def _read_one(entries: list[NumberedValue], source: JsonFile, dialect: str) -> Transcript:
    for is_line, read in _LOGS:
        if any(is_line(value) for _, value in entries):
            return _log(read(_objects(entries, source)), source, dialect)
    if codex.is_old_header(entries[0][1]):
        return _log(codex.read(_objects(entries, source)), source, dialect)
    if source.cut:
        raise source.cut_error()
    if not is_message(entries[0][1]):
        shown = kind_of_value(entries[0][1])
        raise source.error(entries[0][0], f"this is {shown} in no known format", f"give {FORMATS}")
    return read_messages(entries, source, dialect)


def _objects(entries: list[NumberedValue], source: JsonFile) -> list[dict[str, object]]:
    for number, value in entries:
        if not isinstance(value, dict):
            raise source.error(number, f"this is {kind_of_value(value)}, not an object", "remove that line")
    return [value for _, value in entries]


def _log(transcript: Transcript, source: JsonFile, dialect: str) -> Transcript:
    """A log that an agent has written, whose dialect is known."""
    if dialect not in ("auto", transcript.dialect):
        problem = f"this is a log of {transcript.source}, whose messages are {transcript.dialect} and not {dialect}"
        raise source.error(0, problem, "without --dialect")
    return _with_cut_note(transcript, source)


def _with_cut_note(transcript: Transcript, source: JsonFile) -> Transcript:
    """A session that is still running is caught in the middle of a line: that is no error."""
    if not transcript.messages:
        problem = source.error(0, f"this log of {transcript.source} holds no conversation", "give another session")
        raise NoConversation(str(problem))
    if not source.cut:
        return transcript
    cut = f"the last line ({source.cut}) is cut off, the log is still being written: left out"
    return msgspec.structs.replace(transcript, notes=[*transcript.notes, cut])


def _content(name: str, stdin: Stream | None) -> bytes | str:
    if name == "-":
        return _piped(getattr(sys.stdin, "buffer", sys.stdin) if stdin is None else stdin)
    try:
        return Path(name).read_bytes()
    except FileNotFoundError:
        raise BadTranscript(f"{name}: there is no such file. Try: check the path, or '-' for standard input.") from None
    except IsADirectoryError:
        raise BadTranscript(f"{name}: it is a folder. Try: the path of one file in it.") from None
    except PermissionError:
        raise BadTranscript(f"{name}: no permission to read it. Try: chmod u+r, or run as another user.") from None
    except (OSError, ValueError) as problem:
        raise BadTranscript(f"{name!r}: cannot be read ({problem}). Try: another file.") from None


def _piped(stream: Stream) -> bytes | str:
    if stream.isatty():
        raise BadTranscript("standard input is a terminal. Try: name a file, or pipe one in.")
    try:
        return stream.read()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadTranscript(f"standard input cannot be read ({problem}). Try: name a file.") from None


def _split_choice(path: str) -> tuple[str, str]:
    """`FILE#ID` names one conversation, unless there is a file of just that name."""
    name, mark, choice = path.rpartition("#")
    if not mark or not name or os.path.lexists(path):
        return path, ""
    return name, choice


def _choices(name: str, ids: list[str]) -> str:
    shown = ", ".join(f"#{choice}" for choice in ids[:_SHOWN_IDS])
    if name == "-":
        name = "-- -"
    return f"{name}#1 to {name}#{len(ids)}, or by id: {shown}{', …' if len(ids) > _SHOWN_IDS else ''}"
