"""Archive first, then commit: how a compaction becomes part of a session, or leaves it as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.originals import Original
from context_compactor.archive.storage import prepare_items, store_items
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message
from context_compactor.dialects.record import OPENING, open_record
from context_compactor.dialects.turns import reference_id
from context_compactor.engine.api import Compaction
from context_compactor.errors import StaleBase, StoreError
from context_compactor.json_values import read_json
from context_compactor.protocols import Store
from context_compactor.sessions import state as gauging
from context_compactor.sessions.core import Core
from context_compactor.sessions.log import (
    COMPACTION,
    CompactionNote,
    ContextItem,
    Raw,
    SessionContext,
    encode_items,
    encode_raws,
    logged_bodies,
)
from context_compactor.sessions.state import SessionState, read_session_state
from context_compactor.store.rows import MESSAGE
from context_compactor.tokens.counting import MessageCounter
from context_compactor.tracing import traced


class ArchiveRetries(Struct, frozen=True):
    """How often archiving is tried, how long to wait before the second time, and whom to tell of a failure."""

    most: int
    delay: float
    retried: Callable[[int, str], None]


@traced("archive")
def archive(core: Core, originals: Sequence[Original], attempts: ArchiveRetries) -> list[str]:
    """Put originals into the archive, on the disk when it returns. The last failure is raised.

    Search finds them at once, and faster after `core.index`.
    """
    ready = prepare_items(originals, core.store)
    for attempt in range(1, attempts.most + 1):
        try:
            with core.writing():
                return core.store.archive(core.id, store_items(ready, core.store), core.now())
        except StoreError as error:
            if attempt == attempts.most:
                raise
            attempts.retried(attempt, str(error))
            time.sleep(attempts.delay * 2 ** (attempt - 1))
    return []


def as_logged(
    originals: Iterable[Original],
    spans: dict[int, tuple[int, int]],
    seen: SessionContext,
    store: Store,
    session_id: str,
) -> list[Original]:
    """Originals with every turn as it stands in the log: before any repair, and with outputs whole."""
    own = [shown for shown, _ in seen.own()]
    positions = [shown.position for shown in own if shown.position]
    if not positions:
        return list(originals)
    bodies = logged_bodies(store, session_id, seen.log_state, after=min(positions) - 1, until=max(positions))
    places = {reference_id("turn", number): own[slice(*span)] for number, span in spans.items()}
    return [_as_logged(original, places.get(original.id, ()), bodies) for original in originals]


def _as_logged(original: Original, places: Sequence[ContextItem], bodies: dict[int, bytes]) -> Original:
    if not places or not all(shown.position in bodies for shown in places):
        return original
    return structs.replace(original, value=[read_json(bodies[shown.position]) for shown in places])


class NewContext(Struct, frozen=True):
    """A new context before it is committed: its messages, and which of them were added from outside."""

    result: Compaction
    seen: SessionContext
    raws: list[Raw]
    added: dict[int, ContextItem]


def new_context(result: Compaction, seen: SessionContext, dialect: Dialect) -> NewContext:
    """Put what is to stay of the added messages behind the instructions and the record of the new context."""
    raws = list(result.messages)
    memory = [(shown, raw) for shown, raw in zip(seen.shown, seen.raws, strict=True) if shown.added == "memory"]
    parsed = dialect.parse(raws)
    at = next((at for at, each in enumerate(parsed) if each.role not in ("system", "developer")), len(raws))
    at += at < len(raws) and parsed[at].text.startswith(OPENING)
    raws[at:at] = [raw for _, raw in memory]
    return NewContext(result, seen, raws, {at + index: shown for index, (shown, _) in enumerate(memory)})


@traced("commit")
def commit(
    core: Core,
    new: NewContext,
    dialect: Dialect,
    counter: MessageCounter,
    remember: Callable[[SessionState], SessionState],
) -> int:
    """Make a draft the session's context, or raise `StaleBase` when the context it was made from is no longer there.

    Messages that came meanwhile stay behind it, once and in order. `remember` gives the state from then on, and may
    write what belongs to the same transaction. The position of the compaction is returned.
    """
    seen, report, store, session_id = new.seen, new.result.report, core.store, core.id
    messages = dialect.parse(new.raws)
    weighed = gauging.measure_messages(messages, counter)
    bodies = store.ready(encode_raws(new.raws))
    known = {each.hash: each for each in seen.shown if each.position}
    with core.writing() as row:
        if row.view != seen.view:
            raise StaleBase(
                "another process has compacted or undone this context meanwhile; this compaction was discarded"
            )
        hashes = store.put(bodies)
        shown = [new.added.get(at) or known.get(name) or ContextItem(name) for at, name in enumerate(hashes)]
        shown = _keep_position_behind_record(shown, messages, seen, dialect)
        items, told = store.put([encode_items(shown), report.to_json().encode()])
        note = CompactionNote(
            id=report.compaction_id,
            base=seen.head,
            view=seen.view,
            items=items,
            report=told,
            trigger=report.trigger,
            level=report.level,
            tokens_before=report.tokens_before,
            tokens_after=report.tokens_after,
            messages_removed=report.messages_removed,
        )
        position = store.append(session_id, COMPACTION, [msgspec.json.encode(note)], core.now())
        late = store.entries(session_id, kinds=(MESSAGE,), after=seen.head, until=position)
        weighed = gauging.add_messages(weighed, dialect.parse([read_json(each.body) for each in late]), counter)
        weighed = structs.replace(weighed, head=position, view=position)
        state = remember(gauging.replace_context(read_session_state(row.state), weighed))
        store.save_state(session_id, msgspec.json.encode(state))
        return position


def _keep_position_behind_record(
    shown: list[ContextItem], messages: Sequence[Message], seen: SessionContext, dialect: Dialect
) -> list[ContextItem]:
    """Where the record was joined to the message behind it, that one's place in the log is not forgotten."""
    at = next((at for at, message in enumerate(messages) if message.text.startswith(OPENING)), None)
    live, record = open_record(messages, dialect)
    if at is None or record is None or len(live) < len(messages):
        return shown
    parts = live[at].parts
    pairs = zip(seen.shown, dialect.parse(seen.raws), strict=True)
    place = next((each for each, message in pairs if each.position and message.parts == parts), None)
    if place is not None:
        shown[at] = ContextItem(shown[at].hash, place.position, at=place.at)
    return shown
