"""Keeps the session of an agent up to date with the agent's log, also when the user goes back and takes another
branch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from context_compactor.agents.adoption import (
    SummaryLosses,
    adopt_compaction,
    adopted_compactions,
    forget_compactions,
    pending_offer,
    take_offer,
    withdraw_offer,
)
from context_compactor.agents.hook_log import log_hook
from context_compactor.agents.hook_state import AgentSessionRow, HookState, open_hook_state
from context_compactor.agents.paths import prepare_home
from context_compactor.archive.originals import Original
from context_compactor.archive.storage import load_originals, prepare_items, store_items
from context_compactor.dialects.transcripts.reader import parse_transcript, read_transcript
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.dialects.turns import FIRST_EXTRA_NUMBER
from context_compactor.engine.report import Report
from context_compactor.errors import BadTranscript, NoConversation, OtherConversation, StoreError
from context_compactor.files import locked, make_private_folder
from context_compactor.json_values import read_json
from context_compactor.protocols import Store
from context_compactor.sessions.archive import archive_history
from context_compactor.sessions.core import Clock, Core, wall_clock
from context_compactor.sessions.facts import prepare_compaction
from context_compactor.sessions.handoff import ORCHESTRATOR
from context_compactor.sessions.lifecycle import open_core
from context_compactor.sessions.log import logged_bodies
from context_compactor.sessions.project import local_owner
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_session_state
from context_compactor.sessions.transcripts import append_transcript
from context_compactor.settings import Settings
from context_compactor.tokens.models import window_for
from context_compactor.tokens.overflow import learned_limit


class SharedHistory(Struct, frozen=True):
    """What another branch has in common with the one that was left."""

    originals: list[Original]
    notes: dict[str, Any]


def read_shared_history(core: Core, at: int) -> SharedHistory:
    """The originals of calls before the message with this index, and those beside the conversation."""
    bodies = list(logged_bodies(core.store, core.id, core.context_reader.log_state()).values())[:at]
    calls = sum(len(message.calls) for message in core.dialect().parse([read_json(body) for body in bodies]))
    common = [each for each in core.store.originals(core.id) if _is_common(each.ref, calls)]
    notes = read_session_state(core.row().state).notes
    return SharedHistory(
        load_originals(common, core.store), {ORCHESTRATOR: notes[ORCHESTRATOR]} if ORCHESTRATOR in notes else {}
    )


def _is_common(ref: str, calls: int) -> bool:
    prefix, _, number = ref.partition("_")
    return prefix != "turn" and (int(number) <= calls or int(number) >= FIRST_EXTRA_NUMBER)


def carry_over(core: Core, left: SharedHistory) -> None:
    """Give a new branch what it has in common with the one before; one that has begun already has it."""
    if core.row().messages:
        return
    ready = prepare_items(left.originals, core.store)
    with core.writing():
        core.store.archive(core.id, store_items(ready, core.store), core.now())
        core.change(lambda state: structs.replace(state, notes={**state.notes, **left.notes}))


class SyncResult(Struct, frozen=True):
    """What was new in a log: messages, originals in the archive, and the agent's own compactions."""

    appended: int = 0
    archived: int = 0
    adopted: tuple[Report, ...] = ()
    losses: SummaryLosses | None = None
    """What the summary of the last of these compactions lost."""


def sync_transcript(
    core: Core, transcript: Transcript, *, is_closed: bool, archive: bool = True, trigger: str = ""
) -> SyncResult:
    """Bring a session up to date with a log. A turn that may still grow is archived the next time.

    With `is_closed` nothing grows at its end any more. With `archive` everything is archived and its facts are kept,
    else only what lies before a compaction of the agent. `trigger` is why the agent compacted, where its log does not
    say.
    """
    followed = SyncResult()
    if len(transcript.messages) > core.row().messages:  # an older copy of a log has fewer compactions too
        forget_compactions(core, len(transcript.compactions))
    for number, past in enumerate(transcript.compactions, 1):
        if number > adopted_compactions(core):
            appended = append_transcript(core, transcript.messages[: past.at], transcript.times)
            followed = structs.replace(followed, appended=followed.appended + appended)
            if take_offer(core, past, number):
                continue
            known = structs.replace(past, trigger=past.trigger or trigger)
            report, losses = adopt_compaction(core, known, transcript.source, number)
            followed = structs.replace(
                followed,
                archived=followed.archived + len(report.archived),
                adopted=(*followed.adopted, report),
                losses=losses,
            )
    appended = append_transcript(core, transcript.messages, transcript.times)
    followed = structs.replace(followed, appended=followed.appended + appended)
    offer = pending_offer(core)
    if offer and any(message.get("role") == "assistant" for message in transcript.messages[offer.messages :]):
        withdraw_offer(core)  # the model has answered to what it had before
    if not archive:
        return followed
    archived = archive_history(core, is_closed=is_closed)
    prepare_compaction(core, fewest=1)
    return structs.replace(followed, archived=followed.archived + len(archived.new))


_LOCKS = 64
MAX_BRANCHES = 50
"""How many branches a session can have."""


class AgentLog(Struct, frozen=True):
    """Where an agent writes a session down: its project, what the session is called here, and the file."""

    root: str
    key: str
    path: str
    agent: str
    wait: float = 20.0
    """Seconds to wait while somebody else follows it."""


class SyncedSession(Struct, frozen=True):
    """A session that is up to date, and what was new."""

    session: Session
    core: Core
    transcript: Transcript
    followed: SyncResult


@contextmanager
def session_lock(root: str, key: str, wait: float = 20.0) -> Iterator[None]:
    """One process at a time for a session of an agent."""
    folder = Path(prepare_home(root), "locks")
    make_private_folder(folder)
    number = int.from_bytes(sha256(key.encode("utf-8", "replace")).digest()[:4]) % _LOCKS
    with locked(folder / f"{number:02d}", wait_seconds=wait):
        yield


@contextmanager
def synced_session(
    log: AgentLog, settings: Settings, *, is_closed: bool = False, archive: bool = True, trigger: str = ""
) -> Iterator[SyncedSession]:
    """The session of a log, after everything new in it was taken over; see `sync_transcript`."""
    with session_lock(log.root, log.key, log.wait):
        size = os.path.getsize(log.path)
        transcript = read_log(log)
        left: SharedHistory | None = None
        for name in _branch_names(log):
            core = open_agent_session(name, transcript, settings, owner=local_owner(settings.store, Path(log.root)))
            with Session(core, owns_store=True) as session:
                try:
                    if left is not None:
                        carry_over(core, left)
                    followed = sync_transcript(core, transcript, is_closed=is_closed, archive=archive, trigger=trigger)
                except OtherConversation as other:
                    left = read_shared_history(core, other.at)
                    continue
                if archive:
                    core.index()
                update_hook_state(
                    log, session=name, transcript=log.path, agent=log.agent, model=transcript.model, size=size
                )
                yield SyncedSession(session, core, transcript, followed)
                return
    raise StoreError(
        f"session {log.key!r} already has {MAX_BRANCHES} branches, which is the limit. "
        "Try: start a new session of the agent."
    )


def read_log(log: AgentLog) -> Transcript:
    """The conversation in a log. Damaged lines are left out and logged."""
    try:
        return read_transcript(log.path)
    except NoConversation:
        raise
    except BadTranscript:
        lines = Path(log.path).read_bytes().split(b"\n")
        whole = [line for line in lines if _is_json_object(line)]
        if not whole or len(whole) == sum(1 for line in lines if line.strip()):
            raise
    transcript = parse_transcript(b"\n".join(whole), log.path)
    damaged = sum(1 for line in lines if line.strip()) - len(whole)
    log_hook(log.root, "follow", "lines passed over", key=log.key, damaged=damaged, path=log.path)
    return transcript


def _is_json_object(line: bytes) -> bool:
    try:
        return isinstance(read_json(line), dict) if line.strip() else False
    except ValueError:
        return False


def open_agent_session(
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
    model, reported, source = transcript.model or settings.model, transcript.window, transcript.source
    limit = learned_limit(transcript.errors)
    window = window_for(model, settings.window, reported, source, seen, settings.models, limit)
    core = open_core(
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
    core.offer_recall()  # over MCP, which `compactor install` sets up
    return core


def update_hook_state(log: AgentLog, **values: object) -> AgentSessionRow:
    """Note something about the session of a log."""
    with hook_state_of(log.root) as state:
        return state.change(log.key, time.time(), values)


@contextmanager
def hook_state_of(root: str) -> Iterator[HookState]:
    """What hooks remember in a project; the file is created when there is none."""
    state = open_hook_state(prepare_home(root), create=True)
    assert state is not None  # it was to be made
    with closing(state):
        yield state


def _branch_names(log: AgentLog) -> Iterator[str]:
    """What the session is called in the store: as it is known, then the names of further branches."""
    with hook_state_of(log.root) as state:
        row = state.find(log.key)
    known = row.session if row and row.session else log.key
    _, mark, last = known.rpartition("~")
    first = int(last) if mark and last.isdigit() else 1
    yield known
    yield from (f"{log.key}~{number}" for number in range(first + 1, first + MAX_BRANCHES))
