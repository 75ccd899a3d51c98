"""Archive first, then commit: how a compaction becomes part of a session, or leaves it as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.display import TURN
from context_compactor.archive.originals import Original
from context_compactor.archive.storage import load_originals, prepare_items, store_items
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, Text
from context_compactor.dialects.record import OPENING, open_record
from context_compactor.dialects.strict_order import takes_turns
from context_compactor.dialects.turns import names_original, reference_id, text_reference
from context_compactor.engine.result import Compaction
from context_compactor.errors import StaleBase, StoreError
from context_compactor.json_values import json_bytes, read_json
from context_compactor.protocols import Store
from context_compactor.sessions.core import Core
from context_compactor.sessions.log import COMPACTION, CompactionNote, ContextItem, Raw, SessionContext, logged_bodies
from context_compactor.sessions.state import (
    SessionState,
    add_messages,
    measure_messages,
    read_session_state,
    replace_context,
)
from context_compactor.store.rows import MESSAGE
from context_compactor.tokens.counting import MessageCounter
from context_compactor.tracing import traced


@traced("archive")
def archive(core: Core, originals: Sequence[Original], *, emit_retries: bool = False) -> None:
    """Put originals into the archive, on the disk when it returns, with retries; the last failure is raised.

    Search finds them at once, and faster after `core.index`.
    """
    ready, most = prepare_items(originals, core.store), core.settings.retry_attempts
    for attempt in range(1, most + 1):
        try:
            with core.writing():
                core.store.archive(core.id, store_items(ready, core.store), core.now())
            return
        except StoreError as error:
            if attempt == most:
                raise
            if emit_retries:
                core.emit("job.retried", what="archive", attempt=attempt, reason=str(error))
            time.sleep(core.settings.retry_delay_seconds * 2 ** (attempt - 1))


def as_logged(
    originals: Iterable[Original],
    spans: dict[int, tuple[int, int]],
    context: SessionContext,
    store: Store,
    session_id: str,
) -> list[Original]:
    """Originals with every turn as it stands in the log: before any repair, and with outputs whole."""
    own = [item for item, _ in context.own()]
    positions = [item.position for item in own if item.position]
    if not positions:
        return list(originals)
    bodies = logged_bodies(store, session_id, context.log_state, after=min(positions) - 1, until=max(positions))
    turns = {reference_id("turn", number): own[slice(*span)] for number, span in spans.items()}
    return [_as_logged(original, turns.get(original.id, ()), bodies) for original in originals]


def _as_logged(original: Original, items: Sequence[ContextItem], bodies: dict[int, bytes]) -> Original:
    if not items or not all(item.position in bodies for item in items):
        return original
    return structs.replace(original, value=[read_json(bodies[item.position]) for item in items])


def with_added_words(
    core: Core, originals: Sequence[Original], dialect: Dialect, counter: MessageCounter
) -> Iterator[Original]:
    """Originals, and words that the user has added to a turn since it was archived, which stays as it was then.

    That happens where the provider takes no two messages of the user in a row.
    """
    yield from originals
    if not takes_turns(dialect):
        return
    rows = {row.ref: row for row in core.store.originals(core.id, kind=TURN) if row.content}
    grown = [original for original in originals if original.id in rows and isinstance(original.value, list)]
    for new, old in zip(grown, load_originals([rows[each.id] for each in grown], core.store), strict=True):
        known = "\n".join(_user_texts(old.value, dialect))
        for text in _user_texts(new.value, dialect):
            if text not in known and not names_original(text):
                ref, what = text_reference(text), f"what the user added to {new.id}"
                yield Original(ref, "user message", what, counter.text(text), text, f'recall("{ref}")')


def _user_texts(raws: Sequence[Raw], dialect: Dialect) -> list[str]:
    spoken = [message for message in dialect.parse(raws) if message.role == "user"]
    return [part.text for message in spoken for part in message.parts if isinstance(part, Text) and part.text.strip()]


class NewContext(Struct, frozen=True):
    """A new context before it is committed: its messages, and which of them were added from outside."""

    result: Compaction
    context: SessionContext
    raws: list[Raw]
    added: dict[int, ContextItem]


def new_context(result: Compaction, context: SessionContext, dialect: Dialect) -> NewContext:
    """Put what is to stay of the added messages behind the instructions and the record of the new context."""
    raws = list(result.messages)
    memory = [(item, raw) for item, raw in zip(context.items, context.raws, strict=True) if item.added == "memory"]
    parsed = dialect.parse(raws)
    at = next((at for at, each in enumerate(parsed) if each.role not in ("system", "developer")), len(raws))
    at += at < len(raws) and parsed[at].text.startswith(OPENING)
    raws[at:at] = [raw for _, raw in memory]
    return NewContext(result, context, raws, {at + index: item for index, (item, _) in enumerate(memory)})


@traced("commit")
def commit(
    core: Core,
    new: NewContext,
    dialect: Dialect,
    counter: MessageCounter,
    remember: Callable[[SessionState], SessionState],
) -> int:
    """Make a new context the session's, or raise `StaleBase` when the context it was made from is no longer there.

    Messages that came meanwhile stay behind it, once and in order. `remember` gives the state from then on, and may
    write what belongs to the same transaction. The position of the compaction is returned.
    """
    context, report, store, session_id = new.context, new.result.report, core.store, core.id
    messages = dialect.parse(new.raws)
    gauge = measure_messages(messages, counter, core.fixed_tokens(counter))
    bodies = store.ready(json_bytes(raw) for raw in new.raws)
    known = {each.hash: each for each in context.items if each.position}
    with core.writing() as row:
        if row.view != context.view:
            raise StaleBase(
                "another process has compacted or undone this context meanwhile; this compaction was discarded"
            )
        hashes = store.put(bodies)
        shown = [new.added.get(at) or known.get(name) or ContextItem(name) for at, name in enumerate(hashes)]
        _keep_position_behind_record(shown, messages, context, dialect)
        items, stored_report = store.put([msgspec.json.encode(shown), report.to_json().encode()])
        note = CompactionNote(
            id=report.compaction_id,
            base=context.head,
            view=context.view,
            items=items,
            report=stored_report,
            trigger=report.trigger,
            level=report.level,
            tokens_before=report.tokens_before,
            tokens_after=report.tokens_after,
            messages_removed=report.messages_removed,
        )
        position = store.append(session_id, COMPACTION, [msgspec.json.encode(note)], core.now())
        late = store.entries(session_id, kinds=(MESSAGE,), after=context.head, until=position)
        gauge = add_messages(gauge, dialect.parse([read_json(each.body) for each in late]), counter)
        gauge = structs.replace(gauge, head=position, view=position)
        core.save(remember(replace_context(read_session_state(row.state), gauge)))
        return position


def _keep_position_behind_record(
    items: list[ContextItem], messages: Sequence[Message], context: SessionContext, dialect: Dialect
) -> None:
    """Where the record was joined to the message behind it, that one's position in the log is not forgotten."""
    at = next((at for at, message in enumerate(messages) if message.text.startswith(OPENING)), None)
    live, record = open_record(messages, dialect)
    if at is None or record is None or len(live) < len(messages):
        return
    pairs = zip(context.items, dialect.parse(context.raws), strict=True)
    known = next((each for each, message in pairs if each.position and message.parts == live[at].parts), None)
    if known is not None:
        items[at] = ContextItem(items[at].hash, known.position, at=known.at)
