"""Originals come back: by id, by lines, by page, by search, and into the context itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.display import (
    TURN,
    Surroundings,
    TurnEntry,
    neighbours,
    render_original,
    results_beside,
    turn_entry,
)
from context_compactor.archive.originals import Original, ids_of, turn_original, turn_summary
from context_compactor.archive.refetch import Refetched, RestoreRate
from context_compactor.archive.refetch import refetch as refetch_original
from context_compactor.archive.search.passages import Hit, original_texts
from context_compactor.archive.storage import load_originals
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, ToolResult
from context_compactor.dialects.turns import REFERENCE_PATTERN, ToolUse, Turn, reference_id
from context_compactor.engine.classify import result_original
from context_compactor.engine.request import level_target
from context_compactor.errors import BadSetting, StaleBase, UnknownReference
from context_compactor.facts.kinds import reference_of
from context_compactor.json_values import json_bytes
from context_compactor.sessions.append import after_context_change
from context_compactor.sessions.commit import as_logged
from context_compactor.sessions.compaction import compact
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import parsed_context
from context_compactor.sessions.log import REVISION, Raw, Revision, SessionContext
from context_compactor.sessions.state import read_session_state, replace_context
from context_compactor.settings import Level
from context_compactor.store.rows import OriginalRow, hash_of
from context_compactor.tokens.counting import MessageCounter

PAGE_TOKENS = 2_000
REFETCHED = "refetched"
# Calls are counted together, so the number alone says which one is meant.
_CALLS = ("tool", "file", "agent")


class RecallPage(Struct, frozen=True):
    """Some lines of an original. `pages` is how many there are at this size."""

    id: str
    number: int
    pages: int
    first_line: int
    last_line: int
    text: str


def find_original(core: Core, ref: str) -> Original:
    """The original under an id: from the archive, or what is still in the context as it was."""
    if not REFERENCE_PATTERN.fullmatch(str(ref)):
        raise UnknownReference(
            f"{ref!r:.60} is not a reference id. Try: an id such as tool_017 or turn_003, or search for it."
        )
    archived = core.store.original(core.id, ref)
    if archived is not None:
        return load_originals([archived], core.store)[0]
    live = _original_in_context(core, ref)
    if live is not None:
        return live
    prefix, number = ref.split("_")
    others = (f"{other}_{number}" for other in _CALLS if prefix in _CALLS and other != prefix)
    known = next(
        (other for other in others if core.store.original(core.id, other) or _original_in_context(core, other)), None
    )
    if known is None:
        raise UnknownReference(_unknown(core, ref))
    return find_original(core, known)


def _original_in_context(core: Core, ref: str) -> Original | None:
    turn = _turn_in_context(core, ref)
    if turn is None:
        return None
    parsed = core.parse_context()
    for exchange in turn.exchanges:
        if reference_of(exchange) == ref and exchange.result is not None:
            return result_original(exchange, parsed.content.verdicts.exchanges[exchange.number])
    if not ref.startswith("turn"):
        return None
    original = turn_original(turn, sum(len(message.text) for message in turn.messages) // 4)
    return as_logged([original], parsed.spans(), parsed.context, core.store, core.id)[0]


def _turn_in_context(core: Core, ref: str) -> Turn | None:
    return next((turn for turn in core.parse_context().content.turns if ref in ids_of(turn)), None)


def _unknown(core: Core, ref: str) -> str:
    there = [each.ref for each in core.store.originals(core.id)]
    if not there:
        return f"no original has the id {ref!r}: session {core.id!r} has archived nothing yet"
    return (
        f"no original of session {core.id!r} has the id {ref!r}; {len(there)} are archived, {there[0]} to {there[-1]}"
    )


def original_text(core: Core, ref: str, *, raw: bool = False) -> str:
    """An original as text: a turn as a conversation, with what stands beside it; `raw` as the JSON that it was."""
    original = find_original(core, ref)
    if raw:
        return original.text
    return render_original(original, _beside(core, original) if original.kind == TURN else Surroundings())


def _beside(core: Core, turn: Original) -> Surroundings:
    """The turns beside a turn, and the originals among which its results are."""
    rows = core.store.originals(core.id)
    before, after = neighbours(_entries(core, rows), turn.id)
    at = next((at for at, row in enumerate(rows) if row.ref == turn.id), None)
    if at is None:
        live = _turn_in_context(core, turn.id)
        verdicts, exchanges = core.parse_context().content.verdicts.exchanges, live.exchanges if live else ()
        results = [result_original(each, verdicts[each.number]) for each in exchanges if each.result is not None]
        return Surroundings(before, after, results)
    return Surroundings(before, after, load_originals(results_beside(rows, at), core.store))


def turns(core: Core, first: int = 1, last: int | None = None, words: str = "") -> list[TurnEntry]:
    """The index of turns, in their order: those from one number to another that hold all of some words."""
    rows, wanted = core.store.originals(core.id), words.casefold().split()

    def holds_words(ref: str) -> bool:
        said = "\n".join(text for _, text in original_texts(find_original(core, ref))).casefold()
        return all(word in said for word in wanted)

    entries = [each for each in _entries(core, rows) if first <= each.number <= (last or each.number)]
    return [each for each in entries if not wanted or holds_words(each.id)]


def _entries(core: Core, rows: Iterable[OriginalRow]) -> list[TurnEntry]:
    """Every turn that is archived or still in the context, once, by its number."""
    live = {reference_id("turn", turn.number): turn for turn in core.parse_context().content.turns if turn.number > 0}
    entries = {row.ref: turn_entry(row.ref, row.summary, row.tokens) for row in rows if row.kind == TURN}
    for ref, turn in live.items():
        tokens = sum(len(message.text) for message in turn.messages) // 4
        tokens = entries[ref].tokens if ref in entries else tokens + sum(_size(each) for each in turn.exchanges)
        entries[ref] = turn_entry(ref, turn_summary(turn.messages), tokens, is_shown=True)
    return sorted(entries.values(), key=lambda entry: entry.number)


def _size(exchange: ToolUse) -> int:
    call, result = exchange.call, exchange.result
    return (len(call.arguments if call else "") + len(result.text if result else "")) // 4


def recall(core: Core, ref: str, lines: tuple[int, int] | None = None, *, emit: bool = True, raw: bool = False) -> str:
    """An original as text, or some lines of it, counted from 1. Without `emit` there is no event of it."""
    text = original_text(core, ref, raw=raw)
    found = text if lines is None else _lines(text, ref, lines)
    if emit:
        core.emit("item.recalled", ref=ref, lines=list(lines) if lines else None)
    return found


def _lines(text: str, ref: str, lines: tuple[int, int]) -> str:
    every = text.split("\n")
    first, last = lines
    if not 1 <= first <= last:
        raise BadSetting(f"lines {first}-{last} of {ref}: lines count from 1, and the first must not be after the last")
    if first > len(every):
        raise BadSetting(f"lines {first}-{last} of {ref}: it has {len(every):,} lines")
    return "\n".join(every[first - 1 : last])


def recall_page(
    core: Core, ref: str, number: int = 1, tokens: int = PAGE_TOKENS, *, emit: bool = True, raw: bool = False
) -> RecallPage:
    """One page of an original: whole lines of about so many tokens; a line that is longer is cut into pages.

    Without `emit` there is no event of it.
    """
    if tokens < 1:
        raise BadSetting(f"page of {tokens} tokens: too small for one line; use for example {PAGE_TOKENS:,}")
    pages = cut_pages(original_text(core, ref, raw=raw), tokens * 4)
    if not 1 <= number <= len(pages):
        raise BadSetting(f"page {number} of {ref}: it has {len(pages)} of {tokens:,} tokens")
    if emit:
        core.emit("item.recalled", ref=ref, page=number)
    first, last, text = pages[number - 1]
    return RecallPage(ref, number, len(pages), first, last, text)


def cut_pages(text: str, size: int) -> list[tuple[int, int, str]]:
    """A text in pieces of at most so many characters that join to the text, with their first and last lines."""
    pages: list[tuple[int, int, str]] = []
    line = start = 0
    while start < len(text) or not pages:
        end = min(start + size, len(text))
        if end < len(text):
            cut = text.rfind("\n", start, end) + 1
            end = cut if cut > start else end
        piece = text[start:end]
        breaks = piece.count("\n")
        pages.append((line + 1, line + 1 + breaks - piece.endswith("\n"), piece))
        line, start = line + breaks, end
    return pages


def refetch(core: Core, ref: str) -> Refetched:
    """What is behind an original today: the file read again, or the command to run; whether it went well is counted."""
    found = refetch_original(find_original(core, ref), core.project.root if core.project else Path())
    core.note(REFETCHED, msgspec.to_builtins(restore_rate(core).after(found)))
    core.emit("item.recalled", ref=ref, again=True)
    return found


def restore_rate(core: Core) -> RestoreRate:
    """How often that was tried, and how often it went well."""
    stored = read_session_state(core.row().state).notes.get(REFETCHED)
    return msgspec.convert(stored, RestoreRate) if stored else RestoreRate()


def search_originals(
    core: Core, text: str, *, tokens: int, limit: int | None, kind: str, since: str, until: str
) -> list[Hit]:
    """Lines of this session's originals that answer a question, best first."""
    from context_compactor.archive.search.stored import search_stored  # needed by few, and takes time to load

    context = core.current_context()
    dialect = core.dialect(context.raws)
    counter = core.counter(dialect)
    return search_stored(
        core.store,
        core.id,
        text,
        counter.counter,
        shown=dialect.parse(context.raws),
        tokens=tokens,
        limit=limit,
        kind=kind,
        since=since,
        until=until,
    )


RESTORED = "restored"
# An original that would fill more of the budget than this leaves too little for the conversation.
_MOST_SHARE = 0.5


class Restored(Struct, frozen=True):
    """What was put back: where it is now, its tokens, and whether room had to be made for it."""

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
    original = find_original(core, ref)
    compacted = _make_room(core, original)
    context = core.current_context()
    dialect = core.dialect(context.raws)
    counter = core.counter(dialect)
    revision, raw, tokens = _revision(core, original, context, dialect, counter)
    with core.writing() as row:
        if row.view != context.view:
            raise StaleBase(
                f"the context changed while {ref} was being restored; nothing was changed. Try: run it again."
            )
        core.store.put([json_bytes(raw)])
        core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())
        after = core.row()
        state = read_session_state(after.state)
        gauge = core.gauge(after, state, counter)
        core.save(after_context_change(core, replace_context(state, gauge), counter))
    tokens_after = core.tokens(structs.replace(state, gauge=gauge))
    core.emit("item.restored", ref=ref, tokens=tokens, in_place=revision.after < 0)
    return Restored(ref, tokens, revision.after < 0, compacted, tokens_after)


def _make_room(core: Core, original: Original) -> bool:
    """Compact first when the original would not fit; refuse one that leaves too little room."""
    row = core.row()
    counter = core.counter(core.dialect(core.current_context(row).raws))
    budget = core.budget(counter).tokens
    size = counter.text(original.text) + 60
    if size > _MOST_SHARE * budget:
        raise BadSetting(
            f"{original.id} has {size:,} tokens, more than half of the budget of {budget:,}. "
            "Try: recall some lines of it, or one page."
        )
    state = read_session_state(row.state)
    now = core.tokens(structs.replace(state, gauge=core.gauge(row, state, counter)))
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
    core: Core, original: Original, context: SessionContext, dialect: Dialect, counter: MessageCounter
) -> tuple[Revision, Raw, int]:
    under = context.log_state.under
    found = _find_result(core, original.id, context, dialect)
    edited = dialect.edit(found[1], {found[2]: original.text}) if found else None
    if found and edited is not None:
        item = context.items[found[0]]
        in_log = item.position > context.log_state.base
        revision = Revision(
            why=RESTORED,
            hash=hash_of(json_bytes(edited.raw)),
            position=item.position if in_log else 0,
            instead_of="" if in_log else item.hash,
            under=under,
        )
        return revision, edited.raw, counter.count(edited)
    message = dialect.user_text(
        f"[Original of {original.id}, {original.summary}: put back by Context Compactor, it is not a request.]\n"
        f"{original.text}\n[End of {original.id}.]"
    )
    name = hash_of(json_bytes(message.raw))
    revision = Revision(why=RESTORED, hash=name, after=context.head, under=under, ref=original.id)
    return revision, message.raw, counter.count(message)


def _find_result(core: Core, ref: str, context: SessionContext, dialect: Dialect) -> tuple[int, Message, int] | None:
    """Where the result of this id is in the context: message and part."""
    exchange = next(
        (each for turn in parsed_context(core).turns for each in turn.exchanges if reference_of(each) == ref), None
    )
    if exchange is None or exchange.result is None:
        return None
    for at, message in enumerate(dialect.parse(context.raws)):
        for index, part in enumerate(message.parts):
            if isinstance(part, ToolResult) and part.call_id == exchange.result.call_id and part == exchange.result:
                return at, message, index
    return None
