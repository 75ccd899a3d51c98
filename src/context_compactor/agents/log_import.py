"""Imports the logs that agents have left behind as sessions of a store, each whole or not at all, and none twice."""

from __future__ import annotations

import codecs
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from os.path import realpath
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from context_compactor.agents.compaction_trace import read_time
from context_compactor.agents.paths import session_key
from context_compactor.agents.sync import MAX_BRANCHES, SyncResult, open_agent_session, session_lock, sync_transcript
from context_compactor.dialects.transcripts import claude_code, codex, pi
from context_compactor.dialects.transcripts.json_lines import MalformedJson, decode_json, unpack
from context_compactor.dialects.transcripts.reader import parse_transcript
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.engine.report import Report
from context_compactor.errors import BadTranscript, CompactorError, NoConversation, OtherConversation, StoreError
from context_compactor.sessions.state import read_session_state
from context_compactor.settings import Settings
from context_compactor.store.rows import SessionRow
from context_compactor.store.sql_store import SqlStore

LOG_SOURCES = ("claude-code", "codex", "pi")
MAX_LOG_BYTES = 512_000_000
_HEAD_BYTES = 256 * 1024
_HASHED = 4_096
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SPEAKERS = ("user", "assistant")

LogLine = dict[str, Any]


class LogMark(Struct, frozen=True, array_like=True):
    """What tells whether a file is still the one that was read. `is_closed` says that all of it was taken."""

    size: int
    modified_ns: int
    start: str
    is_closed: bool = False


class LogHead(Struct, frozen=True, kw_only=True):
    """What the beginning of a file says. Where it says too little to know, its kind is `unclear`."""

    kind: Literal["log", "unclear", "other", "empty"]
    mark: LogMark
    cwd: str = ""
    session_id: str = ""
    """The session that called the sub-agent of this log, where the log says so."""
    agent_id: str = ""
    began: datetime | None = None


class LogConversation(Struct, frozen=True):
    """One conversation of a file, and what its session is called."""

    key: str
    transcript: Transcript


class LogContent(Struct, frozen=True):
    """All conversations of a file, that of the agent itself last, and when they began and ended."""

    parts: list[LogConversation]
    began: datetime
    ended: datetime


def read_head(path: str) -> LogHead:
    """Look at the beginning of a file, however long it is."""
    with Path(path).open("rb") as file:
        stat = os.fstat(file.fileno())
        start = file.read(_HEAD_BYTES)
    mark = LogMark(stat.st_size, stat.st_mtime_ns, sha256(start[:_HASHED]).hexdigest()[:16])
    text = _unpacked(start).removeprefix(codecs.BOM_UTF8).lstrip()
    if not text:
        return LogHead(kind="empty" if not start.strip() else "other", mark=mark)
    if text[:1] not in (b"{", b"[") and not start.startswith(_BYTE_ORDER_MARKS):
        return LogHead(kind="other", mark=mark)
    rows = text.split(b"\n")
    lines = list(_objects(rows if stat.st_size < _HEAD_BYTES else rows[:-1]))
    is_line = any(agent.is_line(line) for line in lines for agent in (codex, pi, claude_code))
    is_log = is_line or codex.is_old_header(lines[0] if lines else None)
    kind: Literal["log", "unclear", "other"] = "log" if is_log else "other" if lines else "unclear"
    session_id, agent_id = _subagent_of(lines, path)
    cwd = next((found for line in lines if (found := _text(_body(line), "cwd"))), "")
    return LogHead(kind=kind, mark=mark, cwd=cwd, session_id=session_id, agent_id=agent_id, began=_first_time(lines))


def read_log_content(path: str, head: LogHead) -> LogContent | None:
    """Everything that was said in a log; None when nothing was, or it is none. `BadTranscript` when it is broken."""
    raw = _content(path)
    try:
        transcript = parse_transcript(raw, path)
    except NoConversation:
        return None
    except BadTranscript:
        if head.kind == "unclear":
            return None
        raise
    if transcript.source not in LOG_SOURCES:
        return None
    own = session_key(head.session_id or transcript.session_id or _stem(path), head.agent_id)
    parts = [
        LogConversation(session_key(own, name), _side_chain_transcript(transcript, name))
        for name in _own_side_chains(transcript, own, path)
    ]
    ended = _ended(raw, head)
    return LogContent([*parts, LogConversation(own, transcript)], min(head.began or ended, ended), ended)


def _ended(content: bytes, head: LogHead) -> datetime:
    """When the last line was written. What comes from the future was written now."""
    last = content[-_HEAD_BYTES:].split(b"\n")
    stamped = _first_time(_objects(reversed(last if len(content) <= _HEAD_BYTES else last[1:])))
    return min(stamped or datetime.fromtimestamp(head.mark.modified_ns / 1e9, UTC), datetime.now(UTC))


def _subagent_of(lines: Sequence[LogLine], path: str) -> tuple[str, str]:
    """The session and the name of a sub-agent, when the log is one of a sub-agent's own."""
    meta = next((_body(line) for line in lines if line.get("type") == "session_meta"), {})
    caller = _text(meta, "session_id") or _text(meta, "parent_thread_id")
    if caller and _text(meta, "id") not in ("", caller):
        return caller, _text(meta, "id")
    talk = [line for line in lines if line.get("type") in _SPEAKERS and "sessionId" in line]
    if talk and all(line.get("isSidechain") for line in talk):
        return "", _text(talk[0], "agentId") or _stem(path).removeprefix("agent-")
    return "", ""


def _own_side_chains(transcript: Transcript, key: str, path: str) -> Iterator[str]:
    """The sub-agents whose words stand in this file alone. Others have a log of their own, which says more."""
    folder = Path(path).parent
    for name in transcript.side_chains:
        paths = (folder / f"agent-{name}.jsonl", folder / key / "subagents" / f"agent-{name}.jsonl")
        if not any(map(os.path.lexists, paths)):
            yield name


def _side_chain_transcript(transcript: Transcript, name: str) -> Transcript:
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
        content = file.read(MAX_LOG_BYTES) if os.fstat(file.fileno()).st_size <= MAX_LOG_BYTES else None
    if content is not None and content.startswith(_GZIP):
        content = _inflated(content, path)
    if content is None or len(content) > MAX_LOG_BYTES:
        raise BadTranscript(
            f"{path}: it is larger than the {MAX_LOG_BYTES // 1_000_000:,} MB that are read into memory. Try: split it."
        )
    # Without the end that a reader would cut off: it would hold a second copy of everything.
    return unpack(content, path).rstrip()


def _inflated(content: bytes, path: str) -> bytes:
    """What gzip holds, member by member; one member more than the largest is enough to refuse it."""
    found: list[bytes] = []
    try:
        while content and sum(map(len, found)) <= MAX_LOG_BYTES:
            member = zlib.decompressobj(31)
            found.append(member.decompress(content, MAX_LOG_BYTES + 1))
            if not member.eof and not member.unconsumed_tail:
                raise zlib.error("it ends too early")
            content = member.unused_data.lstrip(b"\0")  # some writers fill up a block
    except zlib.error as problem:
        raise BadTranscript(f"{path}: the gzip data is damaged ({problem}). Try: compress it again.") from None
    return b"".join(found)


def _unpacked(start: bytes) -> bytes:
    if not start.startswith(_GZIP):
        return start
    try:
        return zlib.decompressobj(31).decompress(start, _HEAD_BYTES)
    except zlib.error:
        return b"{"  # nothing is known of it; reading all of it says what is wrong


def _objects(rows: Iterable[bytes]) -> Iterator[LogLine]:
    for row in rows:
        try:
            value = decode_json(row) if row.strip() else None
        except MalformedJson:
            continue
        if isinstance(value, dict):
            yield value


def _first_time(lines: Iterable[LogLine]) -> datetime | None:
    return next((found for line in lines if (found := read_time(_text(line, "timestamp")))), None)


def _body(line: LogLine) -> LogLine:
    payload = line.get("payload")
    return payload if isinstance(payload, dict) else line


def _text(line: LogLine, name: str) -> str:
    value = line.get(name)
    return value if isinstance(value, str) else ""


def _stem(path: str) -> str:
    return Path(path).name.partition(".json")[0]


LOGS_NOTE = "logs"
_QUIET_SECONDS = 60 * 60
_MOST_REFUSALS = 3

SessionChange = Literal["new", "continued", "unchanged"]


class ImportedSession(Struct, frozen=True, kw_only=True):
    """What an import made of one session.

    `summaries` of the agent's own compactions could be read, and mention all but `lost` of the `checked` facts.
    """

    session_id: str
    change: SessionChange
    messages: int = 0
    originals: int = 0
    compactions: int = 0
    summaries: int = 0
    checked: int = 0
    lost: int = 0
    began: datetime | None = None
    ended: datetime | None = None
    is_other_way: bool = False
    """Whether the log no longer continues what was stored under its own name."""


class ImportOutcome(Struct, frozen=True, kw_only=True):
    """What has become of one file. `no log` and `empty` are no fault; `older` and `elsewhere` were not asked for."""

    path: str
    status: Literal["read", "unchanged", "failed", "older", "elsewhere", "no log", "empty"]
    reason: str = ""
    size: int = 0
    taken: tuple[ImportedSession, ...] = ()


class ImportFilter(Struct, frozen=True, kw_only=True):
    """What to import: logs of a time or later, of work below a folder. A dry run writes nothing."""

    since: datetime | None = None
    below: str = ""
    dry_run: bool = False


class ImportTarget(Struct, frozen=True):
    """Where sessions are imported to. In a dry run there need not be a store; locks lie in the folder `root`."""

    store: SqlStore | None
    root: str
    settings: Settings


def import_logs(paths: Sequence[str], target: ImportTarget, wanted: ImportFilter) -> Iterator[ImportOutcome]:
    """Import files, those changed last first; each is yielded when done. It ends early when a store refuses all."""
    known = _stored_sessions(target.store.sessions() if target.store else [])
    refusals = 0
    for path in sorted(paths, key=_modified, reverse=True):
        try:
            outcome = _import_one(path, known, target, wanted)
            refusals = 0
        except (CompactorError, OSError, MemoryError) as error:
            outcome = ImportOutcome(path=path, status="failed", reason=_error_text(error, path))
            refusals = refusals + 1 if isinstance(error, StoreError) else 0
        yield outcome
        if refusals == _MOST_REFUSALS:
            return


class _StoredSessions(Struct):
    """What a store has: how many messages of each session, and which sessions each file was made into, as it was."""

    messages: dict[str, int]
    files: dict[str, list[tuple[str, LogMark]]]


def _stored_sessions(rows: Sequence[SessionRow]) -> _StoredSessions:
    files: dict[str, list[tuple[str, LogMark]]] = {}
    for row in rows:
        for path, mark in _marks(row).items():
            files.setdefault(path, []).append((row.id, mark))
    return _StoredSessions({row.id: row.messages for row in rows}, files)


def _marks(row: SessionRow) -> dict[str, LogMark]:
    try:
        return msgspec.convert(read_session_state(row.state).notes.get(LOGS_NOTE, {}), dict[str, LogMark])
    except msgspec.ValidationError:  # of another version of this program: the files are read again
        return {}


def _import_one(path: str, known: _StoredSessions, target: ImportTarget, wanted: ImportFilter) -> ImportOutcome:
    head = read_head(path)
    if aside := _skip_reason(head, wanted):
        return ImportOutcome(path=path, status=aside, size=head.mark.size)
    mark = head.mark
    if session_id := _unchanged_session(known, realpath(path), mark):
        same = ImportedSession(session_id=session_id, change="unchanged")
        return ImportOutcome(path=path, status="unchanged", size=mark.size, taken=(same,))
    content = read_log_content(path, head)
    if content is None:
        return ImportOutcome(path=path, status="no log", size=mark.size)
    if wanted.since and content.ended < wanted.since:
        return ImportOutcome(path=path, status="older", size=mark.size)
    if wanted.dry_run or target.store is None:
        taken = tuple(_dry_run_result(part, content, known) for part in content.parts)
    else:
        closed = msgspec.structs.replace(mark, is_closed=_is_quiet(content.ended.timestamp()))
        work = _FileImport(target.store, target, content, closed, realpath(path))
        taken = tuple(_import_part(part, work) for part in content.parts)
    return ImportOutcome(path=path, status="read", size=mark.size, taken=taken)


def _skip_reason(head: LogHead, wanted: ImportFilter) -> Literal["no log", "empty", "older", "elsewhere"] | None:
    """Why a file need not be read further; None when it must be."""
    if head.kind in ("other", "empty"):
        return "no log" if head.kind == "other" else "empty"
    if wanted.since and head.mark.modified_ns / 1e9 < wanted.since.timestamp():
        return "older"
    is_elsewhere = wanted.below and not (head.cwd and Path(realpath(head.cwd)).is_relative_to(wanted.below))
    return "elsewhere" if is_elsewhere else None


def _unchanged_session(known: _StoredSessions, path: str, mark: LogMark) -> str:
    """The session that has all of a file already; "" when there may be more in it."""
    for session_id, before in known.files.get(path, ()):
        is_same = msgspec.structs.replace(before, is_closed=mark.is_closed) == mark
        if is_same and (before.is_closed or not _is_quiet(mark.modified_ns / 1e9)):
            return session_id
    return ""


def _is_quiet(last: float) -> bool:
    """Whether a log, last written to at this time, is taken with its end. What is younger may still grow there."""
    return time.time() - last > _QUIET_SECONDS


def _dry_run_result(part: LogConversation, content: LogContent, known: _StoredSessions) -> ImportedSession:
    """What taking a conversation would come to, as far as that can be known without doing it."""
    there = known.messages.get(part.key)
    new = len(part.transcript.messages) - (there or 0)
    change: SessionChange = "new" if there is None else "continued" if new > 0 else "unchanged"
    compactions = len(part.transcript.compactions) if there is None else 0
    return ImportedSession(
        session_id=part.key,
        change=change,
        messages=max(new, 0),
        compactions=compactions,
        began=content.began,
        ended=content.ended,
    )


class _FileImport(Struct, frozen=True):
    store: SqlStore
    target: ImportTarget
    content: LogContent
    mark: LogMark
    path: str


def _import_part(part: LogConversation, work: _FileImport) -> ImportedSession:
    """Make a conversation a session, or continue one. When it continues none of its name, it gets another name."""
    if not part.transcript.messages:
        return ImportedSession(session_id=part.key, change="unchanged")
    with session_lock(work.target.root, part.key):
        for branch in range(1, MAX_BRANCHES + 1):
            name = part.key if branch == 1 else f"{part.key}~{branch}"
            try:
                return _import_as(name, part, work)
            except OtherConversation:
                continue
    raise StoreError(
        f"session {part.key!r} already has {MAX_BRANCHES} branches, which is the limit. Try: another --store."
    )


def _import_as(name: str, part: LogConversation, work: _FileImport) -> ImportedSession:
    content, clock = work.content, _LogClock(work.content.began)
    # One transaction around many: what is interrupted has never been.
    with work.store.together():
        core = open_agent_session(name, part.transcript, work.target.settings, store=work.store, clock=clock)
        before = work.store.session(name)
        clock.moment = content.ended
        followed = sync_transcript(core, part.transcript, is_closed=work.mark.is_closed)
        if part is content.parts[-1]:
            core.note(LOGS_NOTE, msgspec.to_builtins({**_marks(before), work.path: work.mark}))
    core.index()
    summaries = _with_summary(part.transcript, followed)
    is_longer = bool(followed.appended or followed.adopted)
    return ImportedSession(
        session_id=name,
        change="new" if not before.messages else "continued" if is_longer else "unchanged",
        messages=followed.appended,
        originals=followed.archived,
        compactions=len(followed.adopted),
        summaries=len(summaries),
        checked=sum(report.fidelity.checked for report in summaries),
        lost=sum(report.fidelity.checked - report.fidelity.retained for report in summaries),
        began=content.began,
        ended=content.ended,
        is_other_way=name != part.key,
    )


class _LogClock:
    """The time at which a log was written, instead of the time at which it is read."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        return self.moment


def _with_summary(transcript: Transcript, followed: SyncResult) -> list[Report]:
    """The adopted compactions whose summary can be read. Some agents keep theirs at the provider."""
    if not followed.adopted:
        return []
    reached = transcript.compactions[-len(followed.adopted) :]
    return [report for past, report in zip(reached, followed.adopted, strict=True) if past.summary.strip()]


def _modified(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


def _error_text(error: BaseException, path: str) -> str:
    """What went wrong, without the name of the file, which stands beside it."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, MemoryError):
        return "it does not fit into memory"
    return str(error).removeprefix(path).lstrip(":, ")
