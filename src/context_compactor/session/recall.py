"""Originals come back: by id, by lines, by page, by search, and into the context itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from context_compactor.archive.archive import Original
from context_compactor.archive.conversation import (
    TURN,
    Beside,
    TurnEntry,
    neighbours,
    read_aloud,
    results_beside,
    turn_entry,
)
from context_compactor.archive.gather import ids_of, result_original, turn_original, turn_summary
from context_compactor.archive.refetch import Refetched, RestoreRate
from context_compactor.archive.refetch import refetch as refetch_original
from context_compactor.archive.search.hits import Hit
from context_compactor.archive.search.passages import read_original
from context_compactor.archive.shelve import read_originals
from context_compactor.classify.references import reference_of
from context_compactor.errors import BadSetting, UnknownReference
from context_compactor.messages.references import ID, reference_id
from context_compactor.messages.turn import ToolUse
from context_compactor.session.core import Core
from context_compactor.session.keep import as_logged
from context_compactor.session.values import read_state
from context_compactor.store.rows import Shelved

PAGE_TOKENS = 2_000
REFETCHED = "refetched"
# Calls are counted together, so the number alone says which one is meant.
_CALLS = ("tool", "file", "agent")


class Page(Struct, frozen=True):
    """Some lines of an original. `pages` is how many there are at this size."""

    id: str
    number: int
    pages: int
    first_line: int
    last_line: int
    text: str


def find(core: Core, ref: str) -> Original:
    """The original under an id: from the archive, or what is still in the context as it was."""
    if not ID.fullmatch(str(ref)):
        raise UnknownReference(f"{ref!r:.60} is no id. Try: one like tool_017 or turn_003, or a search.")
    shelved = core.store.original(core.id, ref)
    if shelved is not None:
        return read_originals([shelved], core.store)[0]
    live = _live(core, ref)
    if live is not None:
        return live
    prefix, number = ref.split("_")
    others = (f"{other}_{number}" for other in _CALLS if prefix in _CALLS and other != prefix)
    known = next((other for other in others if core.store.original(core.id, other) or _live(core, other)), None)
    if known is None:
        raise UnknownReference(_unknown(core, ref))
    return find(core, known)


def _live(core: Core, ref: str) -> Original | None:
    taken = core.take_apart()
    scene = taken.scene
    turn = next((turn for turn in scene.turns if ref in ids_of(turn)), None)
    if turn is None:
        return None
    for exchange in turn.exchanges:
        if reference_of(exchange) == ref and exchange.result is not None:
            return result_original(exchange, scene.verdicts.exchanges[exchange.number])
    if not ref.startswith("turn"):
        return None
    original = turn_original(turn, sum(len(message.text) for message in turn.messages) // 4)
    return as_logged([original], taken.spans(), taken.seen, core.store, core.id)[0]


def _unknown(core: Core, ref: str) -> str:
    there = [each.ref for each in core.store.originals(core.id)]
    if not there:
        return f"no original has the id {ref!r}: session {core.id!r} has archived nothing yet"
    return (
        f"no original of session {core.id!r} has the id {ref!r}; {len(there)} are archived, {there[0]} to {there[-1]}"
    )


def read(core: Core, ref: str, *, raw: bool = False) -> str:
    """An original as text: a turn as a conversation, with what stands beside it; `raw` as the JSON that it was."""
    original = find(core, ref)
    if raw:
        return original.text
    return read_aloud(original, _beside(core, original) if original.kind == TURN else Beside())


def _beside(core: Core, turn: Original) -> Beside:
    """The turns beside a turn, and the originals among which its results are."""
    rows = core.store.originals(core.id)
    before, after = neighbours(_entries(core, rows), turn.id)
    at = next((at for at, row in enumerate(rows) if row.ref == turn.id), None)
    if at is None:
        return Beside(before, after, _live_results(core, turn.id))
    return Beside(before, after, read_originals(results_beside(rows, at), core.store))


def _live_results(core: Core, ref: str) -> list[Original]:
    scene = core.take_apart().scene
    turn = next((turn for turn in scene.turns if ref in ids_of(turn)), None)
    exchanges = turn.exchanges if turn else ()
    return [
        result_original(each, scene.verdicts.exchanges[each.number]) for each in exchanges if each.result is not None
    ]


def turns(core: Core, first: int = 1, last: int | None = None, words: str = "") -> list[TurnEntry]:
    """The index of turns, in their order: those from one number to another that hold all of some words."""
    rows = core.store.originals(core.id)
    entries = [each for each in _entries(core, rows) if first <= each.number <= (last or each.number)]
    wanted = words.casefold().split()
    return [each for each in entries if not wanted or _holds(core, each.id, wanted)]


def _holds(core: Core, ref: str, words: Sequence[str]) -> bool:
    said = "\n".join(text for _, text in read_original(find(core, ref))).casefold()
    return all(word in said for word in words)


def _entries(core: Core, rows: Iterable[Shelved]) -> list[TurnEntry]:
    """Every turn that is archived or still in the context, once, by its number."""
    live = {reference_id("turn", turn.number): turn for turn in core.take_apart().scene.turns if turn.number > 0}
    entries = {row.ref: turn_entry(row.ref, row.summary, row.tokens) for row in rows if row.kind == TURN}
    for ref, turn in live.items():
        tokens = sum(len(message.text) for message in turn.messages) // 4
        tokens = entries[ref].tokens if ref in entries else tokens + sum(_size(each) for each in turn.exchanges)
        entries[ref] = turn_entry(ref, turn_summary(turn.messages), tokens, is_shown=True)
    return sorted(entries.values(), key=lambda entry: entry.number)


def _size(exchange: ToolUse) -> int:
    call, result = exchange.call, exchange.result
    return (len(call.arguments if call else "") + len(result.text if result else "")) // 4


def recall(core: Core, ref: str, lines: tuple[int, int] | None = None, *, tell: bool = True, raw: bool = False) -> str:
    """An original as text, or some lines of it, counted from 1. Without `tell` no event is made of it."""
    text = read(core, ref, raw=raw)
    found = text if lines is None else _lines(text, ref, lines)
    if tell:
        core.emit("item.recalled", ref=ref, lines=list(lines) if lines else None)
    return found


def _lines(text: str, ref: str, lines: tuple[int, int]) -> str:
    every = text.split("\n")
    first, last = lines
    if not 1 <= first <= last:
        raise BadSetting(f"lines {first}-{last} of {ref}: count from 1, the first before the last")
    if first > len(every):
        raise BadSetting(f"lines {first}-{last} of {ref}: it has {len(every):,} lines")
    return "\n".join(every[first - 1 : last])


def page(
    core: Core, ref: str, number: int = 1, tokens: int = PAGE_TOKENS, *, tell: bool = True, raw: bool = False
) -> Page:
    """One page of an original: whole lines of about so many tokens; a line that is longer is cut into pages.

    Without `tell` no event is made of it.
    """
    if tokens < 1:
        raise BadSetting(f"page of {tokens} tokens: there must be room for a line; {PAGE_TOKENS:,} is a good number")
    pages = cut_pages(read(core, ref, raw=raw), tokens * 4)
    if not 1 <= number <= len(pages):
        raise BadSetting(f"page {number} of {ref}: it has {len(pages)} of {tokens:,} tokens")
    if tell:
        core.emit("item.recalled", ref=ref, page=number)
    first, last, text = pages[number - 1]
    return Page(ref, number, len(pages), first, last, text)


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
    found = refetch_original(find(core, ref), core.project.root if core.project else Path())
    core.note(REFETCHED, msgspec.to_builtins(restore_rate(core).after(found)))
    core.emit("item.recalled", ref=ref, again=True)
    return found


def restore_rate(core: Core) -> RestoreRate:
    """How often that was tried, and how often it went well."""
    stored = read_state(core.row().state).notes.get(REFETCHED)
    return msgspec.convert(stored, RestoreRate) if stored else RestoreRate()


def search(core: Core, text: str, *, tokens: int, limit: int | None, kind: str, since: str, until: str) -> list[Hit]:
    """Lines of this session's originals that answer a question, best first."""
    from context_compactor.archive.search.stored import search_stored  # needed by few, and takes time to load

    seen = core.seen()
    dialect = core.dialect(seen.raws)
    counter = core.counter(dialect)
    return search_stored(
        core.store,
        core.id,
        text,
        counter.counter,
        shown=dialect.parse(seen.raws),
        tokens=tokens,
        limit=limit,
        kind=kind,
        since=since,
        until=until,
    )
