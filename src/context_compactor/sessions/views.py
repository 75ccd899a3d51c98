"""Reading a session: its context now or then, pages of its history, usage, undo and redo, differences, and totals."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.search.passages import texts_of
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, Opaque, Part, Thinking
from context_compactor.dialects.repair import repair_with_indexes
from context_compactor.dialects.turns import split_turns
from context_compactor.engine.report import Report
from context_compactor.errors import BadSetting
from context_compactor.json_values import copy_containers, read_json
from context_compactor.sessions.append import after_context_change
from context_compactor.sessions.core import Core
from context_compactor.sessions.log import REDO, UNDO, LoggedCompaction, Raw, SessionContext, UndoNote, logged_bodies
from context_compactor.sessions.state import measure_messages, read_session_state, replace_context
from context_compactor.settings import Spending
from context_compactor.text import clip, one_line
from context_compactor.tokens.budget import Anchor, Usage, measure

# What a provider has written for itself in the place of a conversation.
_SEALED = frozenset({"compaction", "compaction_summary", "item_reference"})


def context(core: Core, current: SessionContext, *, sealed: bool = True) -> list[Raw]:
    """A context as it is sent: legal for its provider, unless compaction is off, when it is what was appended.

    Without `sealed` it holds nothing that only the provider who wrote it can read.
    """
    return [copy_containers(raw) for _, raw in sent_messages(core, current, sealed=sealed)]


def sent_messages(core: Core, current: SessionContext, *, sealed: bool = True) -> list[tuple[int, Raw]]:
    """The same, each with its index in the context that it was made from."""
    unchanged = list(enumerate(current.raws))
    if not core.settings.enabled and sealed:
        return unchanged
    dialect = core.dialect(current.raws)
    messages = list(enumerate(dialect.parse(current.raws)))
    if not sealed:
        messages = [(at, kept) for at, each in messages if (kept := _without_sealed(each, dialect))]
    steps, repairs = repair_with_indexes([message for _, message in messages], dialect)
    return unchanged if sealed and not repairs else [(messages[at][0], message.raw) for at, message in steps]


def _without_sealed(message: Message, dialect: Dialect) -> Message | None:
    """A message without reasoning and without items that are sealed; None when nothing else is in it."""
    sealed: dict[int, str | None] = {at: None for at, part in enumerate(message.parts) if _is_sealed(part)}
    return dialect.edit(message, sealed) if sealed else message


def _is_sealed(part: Part) -> bool:
    return isinstance(part, Thinking) or (isinstance(part, Opaque) and part.type in _SEALED)


def context_at(core: Core, message: int) -> SessionContext:
    """The context as it was sent when so many messages had been appended."""
    row = core.row()
    if type(message) is not int or not 0 <= message <= row.messages:
        raise BadSetting(f"context at message {message!r:.40}: this session has {row.messages:,} messages")
    following = core.store.message_position(core.id, message + 1)
    return core.context_reader.at(row.head if following is None else following - 1)


def tokens_of(core: Core, past: SessionContext) -> int:
    """The tokens of a context of any moment, counted anew; one in which nothing was said yet has none."""
    dialect = core.dialect(past.raws)
    messages = dialect.parse(past.raws)
    counter = core.counter(dialect)
    return measure_messages(messages, counter, core.fixed_tokens(counter)).tokens if messages else 0


def history(core: Core, after: int = 0, limit: int | None = None) -> list[Raw]:
    """Everything that was appended, in order, or so many messages behind the first ones."""
    first = core.store.message_position(core.id, after) if after else 0
    if first is None:
        return []
    last = None if limit is None else core.store.message_position(core.id, after + limit)
    bodies = logged_bodies(core.store, core.id, core.context_reader.log_state(), after=first, until=last)
    return [read_json(body) for body in bodies.values()]


def usage(core: Core) -> Usage:
    """How full the context is, by section."""
    row = core.row()
    raws = core.current_context(row).raws
    dialect = core.dialect(raws)
    counter = core.counter(dialect)
    state = read_session_state(row.state)
    state = structs.replace(state, gauge=core.gauge(row, state, counter))
    messages = dialect.parse(raws)
    return measure(
        split_turns(messages),
        core.budget(counter),
        counter,
        fixed=counter.fixed_tokens(core.ask().prompt, other=core.settings.overhead_tokens),
        anchor=Anchor(len(messages), core.tokens(state)) if state.gauge.anchor is not None else None,
        calibration=state.calibration,
        files_loaded=len(state.gauge.files),
        levels=core.settings.levels,
    )


# Undo and redo


def undo(core: Core) -> Report | None:
    """Take the last compaction back; its report, or None when there is none."""
    return _undo_or_redo(core, UNDO)


def redo(core: Core) -> Report | None:
    """Take the last undo back; the report of the compaction that counts again, or None."""
    return _undo_or_redo(core, REDO)


def _undo_or_redo(core: Core, kind: str) -> Report | None:
    with core.writing() as row:
        log_state = core.context_reader.log_state(row.head)
        compacted = log_state.last if kind == UNDO else log_state.can_redo[-1] if log_state.can_redo else None
        if compacted is None:
            return None
        note = msgspec.json.encode(UndoNote(compacted.note.id))
        core.store.append(core.id, kind, [note], core.now())
        after = core.row()
        counter = core.counter(core.dialect(core.current_context(after).raws))
        state = read_session_state(after.state)
        state = replace_context(state, core.gauge(after, state, counter))
        core.save(after_context_change(core, structs.replace(state, held=True), counter))
    core.emit("compaction.undone", compaction_id=compacted.note.id, redone=kind == REDO)
    return report_of(core, compacted)


def report_of(core: Core, compacted: LoggedCompaction) -> Report:
    """The report of a compaction, as it was written."""
    content = core.store.get([compacted.note.report])[compacted.note.report]
    return msgspec.convert(read_json(content), Report)


class Placed(Struct, frozen=True):
    """A compaction in its place: behind so many messages of the history. One that is not active was undone."""

    id: str
    message: int
    tokens_before: int
    tokens_after: int
    messages_removed: int
    is_active: bool = True


class HistoryPage(Struct, frozen=True):
    """Messages of a history from the index `first` on, how many there are in all, and the compactions among these."""

    messages: list[Raw]
    first: int
    total: int
    compactions: list[Placed]


def history_page(core: Core, first: int | None = None, count: int | None = None) -> HistoryPage:
    """So many messages from an index on, or without one the last ones; without a count, all."""
    store, total = core.store, core.row().messages
    if first is None:
        first = 0 if count is None else max(total - count, 0)
    first = min(max(first, 0), total)
    end = total if count is None else min(first + max(count, 0), total)
    if end == first:
        return HistoryPage([], first, total, [])
    before = store.message_position(core.id, first) or 0 if first else 0
    following = store.message_position(core.id, end + 1)
    log_state = core.context_reader.log_state()
    said = logged_bodies(store, core.id, log_state, after=before, until=None if following is None else following - 1)
    positions = sorted(said)
    total = max(total, first + len(positions))  # others may have appended meanwhile
    places = _placed(log_state.compactions, positions, first, following)
    return HistoryPage([read_json(said[position]) for position in positions], first, total, places)


def _placed(
    made: Sequence[LoggedCompaction], positions: Sequence[int], first: int, following: int | None
) -> list[Placed]:
    return [
        Placed(
            each.note.id,
            first + bisect_left(positions, each.position),
            each.note.tokens_before,
            each.note.tokens_after,
            each.note.messages_removed,
            each.is_active,
        )
        for each in made
        if positions[0] < each.position and (following is None or each.position < following)
    ]


DiffChange = Literal["same", "removed", "added", "changed"]
_MARKS = {"same": "=", "removed": "<", "added": ">", "changed": "|"}
_MAX_CHARACTERS = 400

NamedMessage = tuple[str, Raw]
"""A message, with a name that only its equals have."""


class DiffSide(Struct, frozen=True):
    """A message on one side: as it is sent, and its words in one line."""

    raw: Raw
    words: str


class DiffRow(Struct, frozen=True):
    """One message on either side, or on both; `before` or `after` is None where there is none."""

    change: DiffChange
    before: DiffSide | None
    after: DiffSide | None


class ContextDiff(Struct, frozen=True):
    """Two contexts side by side."""

    title: tuple[str, str]
    rows: tuple[DiffRow, ...]
    tokens: tuple[int, int]

    def counts(self) -> dict[str, int]:
        """How many messages are the same, removed, added and changed."""
        return {name: sum(row.change == name for row in self.rows) for name in _MARKS}

    def to_text(self, width: int = 160) -> str:
        """A line for each message, marked as in a diff: `=` same, `<` removed, `>` added, `|` changed."""
        half = max((width - 3) // 2, 20)
        lines = [f"{self.title[0]:<{half}}   {self.title[1]}"]
        lines.append(f"{f'{self.tokens[0]:,} tokens':<{half}}   {self.tokens[1]:,} tokens")
        for row in self.rows:
            left, right = _line(row.before, half), _line(row.after, half)
            lines.append(f"{left:<{half}} {_MARKS[row.change]} {right}".rstrip())
        return "\n".join(lines)


def _line(side: DiffSide | None, width: int) -> str:
    words = side.words if side else ""
    return clip(words, width, strip=False)


def diff(core: Core, before: int | None, after: int | None) -> ContextDiff:
    """Two contexts side by side: those of two messages, or those before and after the last compaction."""
    if before is None and after is None:
        last = core.context_reader.log_state().last
        if last is None:
            now = core.current_context()
            return _diff(core, ("now", "now"), now, now)
        old, new = core.context_reader.at(last.position - 1), core.context_reader.at(last.position)
        return _diff(core, (f"before {last.note.id}", f"after {last.note.id}"), old, new)
    total = core.row().messages
    start, end = before if before is not None else 0, after if after is not None else total
    return _diff(core, (f"at message {start}", f"at message {end}"), context_at(core, start), context_at(core, end))


def _diff(core: Core, title: tuple[str, str], old: SessionContext, new: SessionContext) -> ContextDiff:
    dialect = core.dialect([*old.raws, *new.raws])
    counter = core.counter(dialect)
    before, after = (counter.request_tokens(dialect.parse(each.raws)) for each in (old, new))
    return side_by_side(title, _named(old), _named(new), dialect, (before, after))


def _named(past: SessionContext) -> list[NamedMessage]:
    return [(item.hash, raw) for item, raw in zip(past.items, past.raws, strict=True)]


def side_by_side(
    title: tuple[str, str],
    old: Sequence[NamedMessage],
    new: Sequence[NamedMessage],
    dialect: Dialect,
    tokens: tuple[int, int],
) -> ContextDiff:
    """Two contexts compared. Messages of one name are the same."""
    left, right = (_sides([raw for _, raw in each], dialect) for each in (old, new))
    matcher = SequenceMatcher(None, [name for name, _ in old], [name for name, _ in new], autojunk=False)
    rows: list[DiffRow] = []
    for change, left_from, left_to, right_from, right_to in matcher.get_opcodes():
        rows += _change_rows(change, left[left_from:left_to], right[right_from:right_to])
    return ContextDiff(title, tuple(rows), tokens)


def _sides(raws: Sequence[Raw], dialect: Dialect) -> list[DiffSide]:
    found = []
    for message in dialect.parse(raws):
        words = one_line(" ".join(text[:_MAX_CHARACTERS] for text in texts_of([message])), _MAX_CHARACTERS)
        found.append(DiffSide(message.raw, f"{message.role}: {words}"))
    return found


def _change_rows(change: str, left: Sequence[DiffSide], right: Sequence[DiffSide]) -> Iterator[DiffRow]:
    if change == "equal":
        yield from (DiffRow("same", *pair) for pair in zip(left, right, strict=True))
        return
    pairs = len(left) if len(left) == len(right) else 0
    yield from (DiffRow("changed", *pair) for pair in zip(left[:pairs], right[:pairs], strict=True))
    yield from (DiffRow("removed", side, None) for side in left[pairs:])
    yield from (DiffRow("added", None, side) for side in right[pairs:])


class Totals(Struct, frozen=True):
    """All compactions of a session together. Those that were undone are counted and named, but have saved nothing."""

    compactions: int
    undone: int
    undone_ids: tuple[str, ...]
    tokens_saved: int
    messages_removed: int
    first_at: str
    last_at: str
    spent: Spending = Spending()
    """What models have taken in all, also for what came to nothing."""


def compactions(core: Core) -> list[Report]:
    """The report of every compaction, in order."""
    return [report_of(core, each) for each in core.context_reader.log_state().compactions]


def totals(core: Core) -> Totals:
    """How often, when, what it saved, and what models have taken."""
    made = core.context_reader.log_state().compactions
    counted = [each for each in made if each.is_active]
    return Totals(
        compactions=len(made),
        undone=len(made) - len(counted),
        undone_ids=tuple(each.note.id for each in made if not each.is_active),
        tokens_saved=sum(each.note.tokens_before - each.note.tokens_after for each in counted),
        messages_removed=sum(each.note.messages_removed for each in counted),
        first_at=made[0].created_at if made else "",
        last_at=made[-1].created_at if made else "",
        spent=read_session_state(core.row().state).spent,
    )
