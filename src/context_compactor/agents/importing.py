"""Logs that agents have left behind become sessions of a store, each whole or not at all, and none twice.

A session remembers the files it was made from, in the store and in the transaction that made it. So a second import
reads only what has changed, and one that was interrupted goes on where it was. A log is dated as it says itself: its
session was used last when the agent wrote last. Nothing beside the store is touched: neither the checkpoint nor the
memory of the project that the store lies in, since the logs may be of any project.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from os.path import realpath
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from context_compactor.agents.following import Followed, follow
from context_compactor.agents.importing_files import Head, Mark, Part, Story, peek, read_story
from context_compactor.agents.keeping_up import MOST_WAYS, alone, open_for
from context_compactor.errors import CompactorError, OtherConversation, StoreError
from context_compactor.messages.transcript import Transcript
from context_compactor.report import Report
from context_compactor.session.values import read_state
from context_compactor.settings import Settings
from context_compactor.store.rows import SessionRow
from context_compactor.store.sql_store import SqlStore

LOGS = "logs"
_QUIET_SECONDS = 60 * 60
_MOST_REFUSALS = 3

Change = Literal["new", "continued", "unchanged"]


class Taken(Struct, frozen=True, kw_only=True):
    """What an import made of one session.

    `summaries` of the agent's own compactions could be read, and told all but `lost` of the `checked` facts.
    """

    session_id: str
    change: Change
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


class Outcome(Struct, frozen=True, kw_only=True):
    """What has become of one file. `no log` and `empty` are no fault; `older` and `elsewhere` were not asked for."""

    path: str
    status: Literal["read", "unchanged", "failed", "older", "elsewhere", "no log", "empty"]
    reason: str = ""
    size: int = 0
    taken: tuple[Taken, ...] = ()


class Wish(Struct, frozen=True, kw_only=True):
    """What to import: logs of a time or later, of work below a folder. A dry run writes nothing."""

    since: datetime | None = None
    below: str = ""
    dry_run: bool = False


class Place(Struct, frozen=True):
    """Where sessions are imported to. In a dry run there need not be a store; locks lie in the folder `root`."""

    store: SqlStore | None
    root: str
    settings: Settings


def import_logs(paths: Sequence[str], place: Place, wish: Wish) -> Iterator[Outcome]:
    """Import files, those changed last first; each is told when it is done. It ends early when a store refuses all."""
    known = _known(place.store.sessions() if place.store else [])
    refusals = 0
    for path in sorted(paths, key=_modified, reverse=True):
        try:
            outcome = _import_one(path, known, place, wish)
            refusals = 0
        except (CompactorError, OSError, MemoryError) as error:
            outcome = Outcome(path=path, status="failed", reason=_told(error, path))
            refusals = refusals + 1 if isinstance(error, StoreError) else 0
        yield outcome
        if refusals == _MOST_REFUSALS:
            return


class _Known(Struct):
    """What a store has: how many messages of each session, and which sessions each file was made into, as it was."""

    messages: dict[str, int]
    files: dict[str, list[tuple[str, Mark]]]


def _known(rows: Sequence[SessionRow]) -> _Known:
    files: dict[str, list[tuple[str, Mark]]] = {}
    for row in rows:
        for path, mark in _marks(row).items():
            files.setdefault(path, []).append((row.id, mark))
    return _Known({row.id: row.messages for row in rows}, files)


def _marks(row: SessionRow) -> dict[str, Mark]:
    try:
        return msgspec.convert(read_state(row.state).notes.get(LOGS, {}), dict[str, Mark])
    except msgspec.ValidationError:  # of another version of this program: the files are read again
        return {}


def _import_one(path: str, known: _Known, place: Place, wish: Wish) -> Outcome:
    head = peek(path)
    if aside := _aside(head, wish):
        return Outcome(path=path, status=aside, size=head.mark.size)
    mark = head.mark
    if session_id := _unchanged(known, realpath(path), mark):
        same = Taken(session_id=session_id, change="unchanged")
        return Outcome(path=path, status="unchanged", size=mark.size, taken=(same,))
    story = read_story(path, head)
    if story is None:
        return Outcome(path=path, status="no log", size=mark.size)
    if wish.since and story.ended < wish.since:
        return Outcome(path=path, status="older", size=mark.size)
    if wish.dry_run or place.store is None:
        taken = tuple(_expected(part, story, known) for part in story.parts)
    else:
        closed = msgspec.structs.replace(mark, is_closed=_is_quiet(story.ended.timestamp()))
        work = _Work(place.store, place, story, closed, realpath(path))
        taken = tuple(_take(part, work) for part in story.parts)
    return Outcome(path=path, status="read", size=mark.size, taken=taken)


def _aside(head: Head, wish: Wish) -> Literal["no log", "empty", "older", "elsewhere"] | None:
    """Why a file need not be read further; None when it must be."""
    if head.kind in ("other", "empty"):
        return "no log" if head.kind == "other" else "empty"
    if wish.since and head.mark.modified_ns / 1e9 < wish.since.timestamp():
        return "older"
    is_elsewhere = wish.below and not (head.cwd and Path(realpath(head.cwd)).is_relative_to(wish.below))
    return "elsewhere" if is_elsewhere else None


def _unchanged(known: _Known, path: str, mark: Mark) -> str:
    """The session that has all of a file already; "" when there may be more in it."""
    for session_id, before in known.files.get(path, ()):
        is_same = msgspec.structs.replace(before, is_closed=mark.is_closed) == mark
        if is_same and (before.is_closed or not _is_quiet(mark.modified_ns / 1e9)):
            return session_id
    return ""


def _is_quiet(last: float) -> bool:
    """Whether a log, last written to at this time, is taken with its end. What is younger may still grow there."""
    return time.time() - last > _QUIET_SECONDS


def _expected(part: Part, story: Story, known: _Known) -> Taken:
    """What taking a conversation would come to, as far as that can be known without doing it."""
    there = known.messages.get(part.key)
    new = len(part.transcript.messages) - (there or 0)
    change: Change = "new" if there is None else "continued" if new > 0 else "unchanged"
    compactions = len(part.transcript.compactions) if there is None else 0
    return Taken(
        session_id=part.key,
        change=change,
        messages=max(new, 0),
        compactions=compactions,
        began=story.began,
        ended=story.ended,
    )


class _Work(Struct, frozen=True):
    """What is the same for all conversations of one file."""

    store: SqlStore
    place: Place
    story: Story
    mark: Mark
    path: str


def _take(part: Part, work: _Work) -> Taken:
    """Make a conversation a session, or continue one. When it continues none of its name, it gets another name."""
    if not part.transcript.messages:
        return Taken(session_id=part.key, change="unchanged")
    with alone(work.place.root, part.key):
        for way in range(1, MOST_WAYS + 1):
            name = part.key if way == 1 else f"{part.key}~{way}"
            try:
                return _take_as(name, part, work)
            except OtherConversation:
                continue
    raise StoreError(f"session {part.key!r} has gone {MOST_WAYS} other ways already. Try: another --store.")


def _take_as(name: str, part: Part, work: _Work) -> Taken:
    story, clock = work.story, _LogClock(work.story.began)
    # One transaction around many: what is interrupted has never been.
    with work.store.together():
        core = open_for(name, part.transcript, work.place.settings, store=work.store, clock=clock)
        before = work.store.session(name)
        clock.moment = story.ended
        followed = follow(core, part.transcript, is_closed=work.mark.is_closed)
        if part is story.parts[-1]:
            core.note(LOGS, msgspec.to_builtins({**_marks(before), work.path: work.mark}))
    core.index()
    summaries = _with_summary(part.transcript, followed)
    is_longer = bool(followed.appended or followed.adopted)
    return Taken(
        session_id=name,
        change="new" if not before.messages else "continued" if is_longer else "unchanged",
        messages=followed.appended,
        originals=followed.archived,
        compactions=len(followed.adopted),
        summaries=len(summaries),
        checked=sum(report.fidelity.checked for report in summaries),
        lost=sum(report.fidelity.checked - report.fidelity.retained for report in summaries),
        began=story.began,
        ended=story.ended,
        is_other_way=name != part.key,
    )


class _LogClock:
    """The time at which a log was written, in the place of the time at which it is read."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        return self.moment


def _with_summary(transcript: Transcript, followed: Followed) -> list[Report]:
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


def _told(error: BaseException, path: str) -> str:
    """What went wrong, without the name of the file, which stands beside it."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, MemoryError):
        return "it does not fit into memory"
    return str(error).removeprefix(path).lstrip(":, ")
