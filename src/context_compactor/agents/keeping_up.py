"""The session of an agent, opened and up to date with the agent's log: what hooks, tools and imports begin with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from context_compactor.agents.diary import write_line
from context_compactor.agents.following import Followed, follow
from context_compactor.agents.leaving import Left, carry_over, leave
from context_compactor.agents.places import prepare_home
from context_compactor.agents.tally import Row, Tally, open_tally
from context_compactor.errors import BadTranscript, NoConversation, OtherConversation, StoreError
from context_compactor.files import locked, make_private_folder
from context_compactor.measure.windows import window_for
from context_compactor.messages.jsontext import read_json
from context_compactor.messages.transcript import Transcript
from context_compactor.messages.transcripts import parse_transcript, read_transcript
from context_compactor.protocols import Store
from context_compactor.session.core import Clock, Core, wall_clock
from context_compactor.session.opening import open_core
from context_compactor.session.project import local_owner
from context_compactor.session.session import Session
from context_compactor.settings import Settings

_LOCKS = 64
MOST_WAYS = 50
"""How often a session can go another way."""


class Log(Struct, frozen=True):
    """Where an agent writes a session down: its project, what the session is called here, and the file."""

    root: str
    key: str
    path: str
    agent: str
    wait: float = 20.0
    """Seconds to wait while somebody else follows it."""


class Kept(Struct, frozen=True):
    """A session that is up to date, and what was new."""

    session: Session
    core: Core
    transcript: Transcript
    followed: Followed


@contextmanager
def alone(root: str, key: str, wait: float = 20.0) -> Iterator[None]:
    """One process at a time for a session of an agent."""
    folder = Path(prepare_home(root), "locks")
    make_private_folder(folder)
    number = int.from_bytes(sha256(key.encode("utf-8", "replace")).digest()[:4]) % _LOCKS
    with locked(folder / f"{number:02d}", wait_seconds=wait):
        yield


@contextmanager
def keep_up(log: Log, settings: Settings, *, is_closed: bool = False, archive: bool = True) -> Iterator[Kept]:
    """The session of a log, after everything new in it was taken over. `following.py` says what that is."""
    with alone(log.root, log.key, log.wait):
        size = os.path.getsize(log.path)
        transcript = read_log(log)
        left: Left | None = None
        for name in _names(log):
            core = open_for(name, transcript, settings, owner=local_owner(settings.store, Path(log.root)))
            with Session(core, owns_store=True) as session:
                try:
                    if left is not None:
                        carry_over(core, left)
                    followed = follow(core, transcript, is_closed=is_closed, archive=archive)
                except OtherConversation as other:
                    left = leave(core, other.at)
                    continue
                if archive:
                    core.index()
                remember(log, session=name, transcript=log.path, agent=log.agent, model=transcript.model, size=size)
                yield Kept(session, core, transcript, followed)
                return
    raise StoreError(f"session {log.key!r} has gone {MOST_WAYS} other ways already. Try: a new session of the agent.")


def read_log(log: Log) -> Transcript:
    """The conversation in a log. Lines that are damaged are passed over and told: the others are no worse for it."""
    try:
        return read_transcript(log.path)
    except NoConversation:
        raise
    except BadTranscript:
        lines = Path(log.path).read_bytes().split(b"\n")
        whole = [line for line in lines if _is_object(line)]
        if not whole or len(whole) == sum(1 for line in lines if line.strip()):
            raise
    transcript = parse_transcript(b"\n".join(whole), log.path)
    damaged = sum(1 for line in lines if line.strip()) - len(whole)
    write_line(log.root, "follow", "lines passed over", key=log.key, damaged=damaged, path=log.path)
    return transcript


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(read_json(line), dict) if line.strip() else False
    except ValueError:
        return False


def open_for(
    name: str,
    transcript: Transcript,
    settings: Settings,
    store: Store | None = None,
    clock: Clock = wall_clock,
    owner: str = "",
) -> Core:
    """The inside of the session of this name, made as what a log says of it.

    In a `store` that is open it belongs to no project: the logs there may be of any.
    """
    seen = max((usage.prompt for usage in transcript.usages.values()), default=0)
    window = window_for(transcript.model, settings.window, transcript.window, transcript.source, seen)
    return open_core(
        name,
        window=window.tokens,
        store=settings.store if store is None else store,
        dialect=transcript.dialect,
        model=transcript.model or None,
        settings=None,
        count_tokens=None,
        bus=None,
        clock=clock,
        owner=owner,
    )


def remember(log: Log, **values: object) -> Row:
    """Note something about the session of a log."""
    with using_tally(log.root) as tally:
        return tally.change(log.key, time.time(), values)


@contextmanager
def using_tally(root: str) -> Iterator[Tally]:
    """The tally of a project, which is made when there is none."""
    tally = open_tally(prepare_home(root), create=True)
    assert tally is not None  # it was to be made
    try:
        yield tally
    finally:
        tally.close()


def _names(log: Log) -> Iterator[str]:
    """What the session is called in the store: as it is known, then the names of further ways."""
    with using_tally(log.root) as tally:
        row = tally.find(log.key)
    known = row.session if row and row.session else log.key
    _, mark, number = known.rpartition("~")
    first = int(number) if mark and number.isdigit() else 1
    yield known
    yield from (f"{log.key}~{way}" for way in range(first + 1, first + MOST_WAYS))
