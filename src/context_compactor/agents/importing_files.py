"""One file that may be the log of an agent: what its beginning says, and the conversations it holds."""

from __future__ import annotations

import codecs
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from context_compactor.agents.places import session_key
from context_compactor.agents.traces import read_time
from context_compactor.errors import BadTranscript, NoConversation
from context_compactor.messages.logs import claude_code, codex, pi
from context_compactor.messages.logs.decode import Malformed, decode, unpack
from context_compactor.messages.transcript import Transcript
from context_compactor.messages.transcripts import parse_transcript

AGENTS = ("claude-code", "codex", "pi")
LARGEST = 512_000_000
_START = 256 * 1024
_HASHED = 4_096
_GZIP = b"\x1f\x8b"
_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TALK = ("user", "assistant")

Line = dict[str, Any]


class Mark(Struct, frozen=True, array_like=True):
    """What tells whether a file is still the one that was read. `is_closed` says that all of it was taken."""

    size: int
    modified_ns: int
    start: str
    is_closed: bool = False


class Head(Struct, frozen=True, kw_only=True):
    """What the beginning of a file says. Where it says too little to know, its kind is `unclear`."""

    kind: Literal["log", "unclear", "other", "empty"]
    mark: Mark
    cwd: str = ""
    session_id: str = ""
    """The session that called the sub-agent of this log, where the log says so."""
    agent_id: str = ""
    began: datetime | None = None


class Part(Struct, frozen=True):
    """One conversation of a file, and what its session is called."""

    key: str
    transcript: Transcript


class Story(Struct, frozen=True):
    """All conversations of a file, that of the agent itself last, and when they began and ended."""

    parts: list[Part]
    began: datetime
    ended: datetime


def peek(path: str) -> Head:
    """Look at the beginning of a file, however long it is."""
    with Path(path).open("rb") as file:
        stat = os.fstat(file.fileno())
        start = file.read(_START)
    mark = Mark(stat.st_size, stat.st_mtime_ns, sha256(start[:_HASHED]).hexdigest()[:16])
    text = _unpacked(start).removeprefix(codecs.BOM_UTF8).lstrip()
    if not text:
        return Head(kind="empty" if not start.strip() else "other", mark=mark)
    if text[:1] not in (b"{", b"[") and not start.startswith(_MARKS):
        return Head(kind="other", mark=mark)
    rows = text.split(b"\n")
    lines = list(_objects(rows if stat.st_size < _START else rows[:-1]))
    is_log = any(map(_is_line, lines)) or codex.is_old_header(lines[0] if lines else None)
    kind: Literal["log", "unclear", "other"] = "log" if is_log else "other" if lines else "unclear"
    session_id, agent_id = _who(lines, path)
    cwd = next((found for line in lines if (found := _text(_body(line), "cwd"))), "")
    return Head(kind=kind, mark=mark, cwd=cwd, session_id=session_id, agent_id=agent_id, began=_first_time(lines))


def read_story(path: str, head: Head) -> Story | None:
    """Everything that was said in a log; None when nothing was, or it is none. `BadTranscript` when it is broken."""
    content = _content(path)
    try:
        transcript = parse_transcript(content, path)
    except NoConversation:
        return None
    except BadTranscript:
        if head.kind == "unclear":
            return None
        raise
    if transcript.source not in AGENTS:
        return None
    own = session_key(head.session_id or transcript.session_id or _stem(path), head.agent_id)
    parts = [Part(session_key(own, name), _alone(transcript, name)) for name in _chains(transcript, own, path)]
    ended = _ended(content, head)
    return Story([*parts, Part(own, transcript)], min(head.began or ended, ended), ended)


def _ended(content: bytes, head: Head) -> datetime:
    """When the last line was written. What comes from the future was written now."""
    last = content[-_START:].split(b"\n")
    told = _first_time(_objects(reversed(last if len(content) <= _START else last[1:])))
    return min(told or datetime.fromtimestamp(head.mark.modified_ns / 1e9, UTC), datetime.now(UTC))


def _is_line(line: Line) -> bool:
    return codex.is_line(line) or pi.is_line(line) or claude_code.is_line(line)


def _who(lines: Sequence[Line], path: str) -> tuple[str, str]:
    """The session and the name of a sub-agent, when the log is one of a sub-agent's own."""
    meta = next((_body(line) for line in lines if line.get("type") == "session_meta"), {})
    caller = _text(meta, "session_id") or _text(meta, "parent_thread_id")
    if caller and _text(meta, "id") not in ("", caller):
        return caller, _text(meta, "id")
    talk = [line for line in lines if line.get("type") in _TALK and "sessionId" in line]
    if talk and all(line.get("isSidechain") for line in talk):
        return "", _text(talk[0], "agentId") or _stem(path).removeprefix("agent-")
    return "", ""


def _chains(transcript: Transcript, key: str, path: str) -> Iterator[str]:
    """The sub-agents whose words stand in this file alone. Others have a log of their own, which says more."""
    folder = Path(path).parent
    for name in transcript.side_chains:
        places = (folder / f"agent-{name}.jsonl", folder / key / "subagents" / f"agent-{name}.jsonl")
        if not any(os.path.lexists(place) for place in places):
            yield name


def _alone(transcript: Transcript, name: str) -> Transcript:
    """A side chain as a transcript."""
    return Transcript(
        messages=transcript.side_chains[name],
        dialect=transcript.dialect,
        source=transcript.source,
        session_id=transcript.session_id,
        model=transcript.model,
        window=transcript.window,
        cwd=transcript.cwd,
    )


def _content(path: str) -> bytes:
    """The text of a file, never more of it than fits into memory."""
    with Path(path).open("rb") as file:
        content = file.read(LARGEST) if os.fstat(file.fileno()).st_size <= LARGEST else None
    if content is not None and content.startswith(_GZIP):
        content = _inflated(content, path)
    if content is None or len(content) > LARGEST:
        raise BadTranscript(f"{path}: it holds more than the {LARGEST // 1_000_000:,} MB that are read into memory.")
    # Without the end that a reader would cut off: it would hold a second copy of everything.
    return unpack(content, path).rstrip()


def _inflated(content: bytes, path: str) -> bytes:
    """What gzip holds, member by member; one member more than the largest is enough to refuse it."""
    found: list[bytes] = []
    try:
        while content and sum(map(len, found)) <= LARGEST:
            member = zlib.decompressobj(31)
            found.append(member.decompress(content, LARGEST + 1))
            if not member.eof and not member.unconsumed_tail:
                raise zlib.error("it ends too early")
            content = member.unused_data.lstrip(b"\0")  # some writers fill up a block
    except zlib.error as problem:
        raise BadTranscript(f"{path}: the gzip data is damaged ({problem}). Try: pack it again.") from None
    return b"".join(found)


def _unpacked(start: bytes) -> bytes:
    if not start.startswith(_GZIP):
        return start
    try:
        return zlib.decompressobj(31).decompress(start, _START)
    except zlib.error:
        return b"{"  # nothing is known of it; reading all of it says what is wrong


def _objects(rows: Iterable[bytes]) -> Iterator[Line]:
    """The lines that can be read."""
    for row in rows:
        try:
            value = decode(row) if row.strip() else None
        except Malformed:
            continue
        if isinstance(value, dict):
            yield value


def _first_time(lines: Iterable[Line]) -> datetime | None:
    return next((found for line in lines if (found := read_time(_text(line, "timestamp")))), None)


def _body(line: Line) -> Line:
    payload = line.get("payload")
    return payload if isinstance(payload, dict) else line


def _text(line: Line, name: str) -> str:
    value = line.get(name)
    return value if isinstance(value, str) else ""


def _stem(path: str) -> str:
    return Path(path).name.partition(".json")[0]
