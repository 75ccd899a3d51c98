"""Restore: put an original back into the context, and keep the budget."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from context_compactor.archive.archive import Original
from context_compactor.classify.references import reference_of
from context_compactor.errors import BadSetting, StaleBase
from context_compactor.levels import Level
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.jsontext import json_bytes
from context_compactor.messages.message import Message, ToolResult
from context_compactor.plan.goal import level_target
from context_compactor.session.compacting import compact
from context_compactor.session.core import Core
from context_compactor.session.gauge import replace_context, tokens_now
from context_compactor.session.lens import Raw, Seen
from context_compactor.session.log import REVISION, Revision
from context_compactor.session.memory import scene_of
from context_compactor.session.recall import find
from context_compactor.session.values import read_state
from context_compactor.session.watch import settled
from context_compactor.store.rows import hash_of

RESTORED = "restored"
# An original that would fill more of the budget than this leaves too little for the conversation.
_MOST_SHARE = 0.5


class Restored(Struct, frozen=True):
    """What was put back: where it stands now, what it weighs, and whether room had to be made for it."""

    ref: str
    tokens: int
    in_place: bool
    compacted: bool
    tokens_after: int

    def in_words(self) -> str:
        """All of it in one line."""
        where = "in its place" if self.in_place else "at the end"
        room = "; the rest was compacted to make room" if self.compacted else ""
        return f"{self.ref} is back in the context, {where}: {self.tokens:,} tokens{room}"


def restore(core: Core, ref: str) -> Restored:
    """Put an original back: in its place when its turn is still there, else at the end of the context.

    Room is made first when it would not fit. It stays until the next compaction, which leaves its reference again.
    """
    original = find(core, ref)
    compacted = _make_room(core, original)
    seen = core.seen()
    dialect = core.dialect(seen.raws)
    counter = core.counter(dialect)
    revision, raw, tokens = _revision(core, original, seen, dialect, counter)
    with core.writing() as row:
        if row.view != seen.view:
            raise StaleBase(f"the context changed while {ref} was being restored; nothing was done. Try: again.")
        core.store.put([json_bytes(raw)])
        core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())
        after = core.row()
        state = read_state(after.state)
        gauge = core.gauge(after, state, counter)
        core.save(settled(core, replace_context(state, gauge), counter))
    tokens_after = tokens_now(gauge, state.calibration, core.settings.overhead_tokens)
    core.emit("item.restored", ref=ref, tokens=tokens, in_place=revision.after < 0)
    return Restored(ref, tokens, revision.after < 0, compacted, tokens_after)


def _make_room(core: Core, original: Original) -> bool:
    """Compact first when the original would not fit; refuse one that leaves too little room."""
    row = core.row()
    counter = core.counter(core.dialect(core.seen(row).raws))
    budget = core.budget(counter).tokens
    size = counter.text(original.text) + 60
    if size > _MOST_SHARE * budget:
        raise BadSetting(
            f"{original.id} has {size:,} tokens, more than half of the budget of {budget:,}. "
            "Try: recall some lines of it, or one page."
        )
    state = read_state(row.state)
    now = tokens_now(core.gauge(row, state, counter), state.calibration, core.settings.overhead_tokens)
    soft = min(rule.threshold for rule in core.settings.levels)
    if now + size <= soft * budget:
        return False
    target = min(level_target(Level.SOFT, core.settings.levels, budget), int(soft * budget) - size)
    report = compact(core, core.ask(target_tokens=max(target, 1), kind="manual"), with_model=False)
    if report.tokens_after + size > budget:
        raise BadSetting(
            f"{original.id} has {size:,} tokens and does not fit into the budget of {budget:,} beside the "
            f"{report.tokens_after:,} that must stay. Try: recall some lines of it."
        )
    return report.changed


def _revision(
    core: Core, original: Original, seen: Seen, dialect: Dialect, counter: MessageCounter
) -> tuple[Revision, Raw, int]:
    under = seen.sight.under
    place = _place(core, original.id, seen, dialect)
    edited = dialect.edit(place[1], {place[2]: original.text}) if place else None
    if place and edited is not None:
        shown = seen.shown[place[0]]
        in_log = shown.position > seen.sight.base
        revision = Revision(
            why=RESTORED,
            hash=hash_of(json_bytes(edited.raw)),
            position=shown.position if in_log else 0,
            instead_of="" if in_log else shown.hash,
            under=under,
        )
        return revision, edited.raw, counter.count(edited)
    message = dialect.user_text(
        f"[Original of {original.id}, {original.summary}: put back by Context Compactor, it is not a request.]\n"
        f"{original.text}\n[End of {original.id}.]"
    )
    name = hash_of(json_bytes(message.raw))
    revision = Revision(why=RESTORED, hash=name, after=seen.head, under=under, ref=original.id)
    return revision, message.raw, counter.count(message)


def _place(core: Core, ref: str, seen: Seen, dialect: Dialect) -> tuple[int, Message, int] | None:
    """Where the result of this id stands in the context: message and part."""
    exchange = next(
        (each for turn in scene_of(core).turns for each in turn.exchanges if reference_of(each) == ref), None
    )
    if exchange is None or exchange.result is None:
        return None
    for at, message in enumerate(dialect.parse(seen.raws)):
        for index, part in enumerate(message.parts):
            if isinstance(part, ToolResult) and part.call_id == exchange.result.call_id and part == exchange.result:
                return at, message, index
    return None
