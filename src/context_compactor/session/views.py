"""Looking at a session: what the model is shown now, what it was shown then, and what lies between the two."""

from __future__ import annotations

import msgspec
from msgspec import structs

from context_compactor.errors import BadSetting
from context_compactor.measure.usage import Anchor, Usage, measure
from context_compactor.messages.boundaries import repair
from context_compactor.messages.copying import copy_containers
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.jsontext import read_json
from context_compactor.messages.message import Message, Opaque, Part, Thinking
from context_compactor.messages.turn import split_turns
from context_compactor.report import Report
from context_compactor.session import gauge as gauging
from context_compactor.session.core import Core
from context_compactor.session.lens import Raw, Seen, logged
from context_compactor.session.log import REDO, UNDO, Compacted, UndoNote
from context_compactor.session.values import read_state
from context_compactor.session.watch import settled

# What a provider has written for itself in the place of a conversation.
_SEALED = frozenset({"compaction", "compaction_summary", "item_reference"})


def context(core: Core, seen: Seen, *, sealed: bool = True) -> list[Raw]:
    """A context as it is sent: legal for its provider, unless compaction is off, when it is what was appended.

    Without `sealed` it holds nothing that only the provider who wrote it can read.
    """
    raws = [copy_containers(raw) for raw in seen.raws]
    if not core.settings.enabled and sealed:
        return raws
    dialect = core.dialect(raws)
    messages = dialect.parse(raws)
    kept = messages if sealed else [each for each in (_opened(each, dialect) for each in messages) if each]
    legal, repairs = repair(kept, dialect)
    return raws if sealed and not repairs else [copy_containers(message.raw) for message in legal]


def _opened(message: Message, dialect: Dialect) -> Message | None:
    """A message without reasoning and without items that are sealed; None when nothing else is in it."""
    sealed: dict[int, str | None] = {at: None for at, part in enumerate(message.parts) if _is_sealed(part)}
    return dialect.edit(message, sealed) if sealed else message


def _is_sealed(part: Part) -> bool:
    return isinstance(part, Thinking) or (isinstance(part, Opaque) and part.type in _SEALED)


def seen_at(core: Core, message: int) -> Seen:
    """The context as it was sent when so many messages had been appended."""
    row = core.row()
    if type(message) is not int or not 0 <= message <= row.messages:
        raise BadSetting(f"context at message {message!r:.40}: this session has {row.messages:,} messages")
    following = core.store.message_position(core.id, message + 1)
    return core.lens.at(row.head if following is None else following - 1)


def tokens_of(core: Core, seen: Seen) -> int:
    """The tokens of a context of any moment, counted anew; one in which nothing was said yet has none."""
    messages = core.dialect(seen.raws).parse(seen.raws)
    return gauging.weigh(messages, core.counter(core.dialect(seen.raws))).tokens if messages else 0


def history(core: Core, after: int = 0, limit: int | None = None) -> list[Raw]:
    """Everything that was appended, in order, or so many messages behind the first ones."""
    first = core.store.message_position(core.id, after) if after else 0
    if first is None:
        return []
    last = None if limit is None else core.store.message_position(core.id, after + limit)
    return [*map(read_json, logged(core.store, core.id, core.lens.sight(), after=first, until=last).values())]


def usage(core: Core) -> Usage:
    """How full the context is, by section."""
    row = core.row()
    seen = core.seen(row)
    dialect = core.dialect(seen.raws)
    counter = core.counter(dialect)
    state = read_state(row.state)
    gauge = core.gauge(row, state, counter)
    messages = dialect.parse(seen.raws)
    anchor = None
    if gauge.anchor is not None:
        now = gauging.tokens_now(gauge, state.calibration, core.settings.overhead_tokens)
        anchor = Anchor(len(messages), now)
    return measure(
        split_turns(messages),
        core.budget(counter),
        counter,
        fixed_tokens=core.settings.overhead_tokens,
        anchor=anchor,
        calibration=state.calibration,
        files_loaded=len(gauge.files),
        levels=core.settings.levels,
    )


# Undo and redo


def undo(core: Core) -> Report | None:
    """Take the last compaction back; its report, or None when there is none."""
    return _turn_back(core, UNDO)


def redo(core: Core) -> Report | None:
    """Take the last undo back; the report of the compaction that counts again, or None."""
    return _turn_back(core, REDO)


def _turn_back(core: Core, kind: str) -> Report | None:
    with core.writing() as row:
        sight = core.lens.sight(row.head)
        compacted = sight.last if kind == UNDO else sight.can_redo[-1] if sight.can_redo else None
        if compacted is None:
            return None
        note = msgspec.json.encode(UndoNote(compacted.note.id))
        core.store.append(core.id, kind, [note], core.now())
        after = core.row()
        counter = core.counter(core.dialect(core.seen(after).raws))
        state = read_state(after.state)
        state = gauging.replace_context(state, core.gauge(after, state, counter))
        core.save(settled(core, structs.replace(state, held=True), counter))
    core.emit("compaction.undone", compaction_id=compacted.note.id, redone=kind == REDO)
    return report_of(core, compacted)


def report_of(core: Core, compacted: Compacted) -> Report:
    """The report of a compaction, as it was written."""
    content = core.store.get([compacted.note.report])[compacted.note.report]
    known = {name: value for name, value in read_json(content).items() if name in Report.__struct_fields__}
    return msgspec.convert(known, Report)
