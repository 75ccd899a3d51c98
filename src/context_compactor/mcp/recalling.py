"""Getting back what left the context: originals by id, by search, and the facts of a session."""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from context_compactor.apply.digests.text import clip
from context_compactor.archive.search.hits import Hit, by_exchange
from context_compactor.errors import BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import fact_line
from context_compactor.mcp.answers import (
    FactAnswer,
    FactsAnswer,
    HitAnswer,
    RecallAnswer,
    SearchAnswer,
    TurnAnswer,
    TurnsAnswer,
)
from context_compactor.mcp.asked import FactsAsked, RecallAsked, SearchAsked, TurnsAsked
from context_compactor.mcp.pages import page_of_list, page_of_text
from context_compactor.mcp.place import Place
from context_compactor.mcp.scope import in_any_way, opened
from context_compactor.measure.tokens import clean
from context_compactor.session.core import Core
from context_compactor.session.recall import PAGE_TOKENS, find, read

_LONGEST_FACT = 500
_LONGEST_HIT = 8_000
_BESIDE = 40
_LAST_LINE = 10**9
_CHANGED = "Halves of characters, which the protocol cannot carry, are shown as \N{REPLACEMENT CHARACTER}."
_EARLIER = "From before the user went back to an earlier point of this session and took another way."


def recall(place: Place, asked: RecallAsked) -> RecallAnswer:
    """A page of an original."""
    with opened(place, asked.session) as found:
        answer = in_any_way(found, lambda core: _recalled(core, asked))
        notes = [note for note in (found.note, answer.note) if note]
        if answer.session != found.core.id:
            notes.append(_EARLIER)
    return structs.replace(answer, note=" ".join(notes))


def _recalled(core: Core, asked: RecallAsked) -> RecallAnswer:
    ref = asked.id.strip().strip("`\"'[]()")
    original = find(core, ref)
    before, text = _lines(read(core, ref), original.id, asked.lines)
    pages, first, last, piece = page_of_text(text, asked.page, ref)
    core.emit("item.recalled", ref=ref, page=asked.page)
    lines = f', lines="{asked.lines}"' if asked.lines else ""
    return RecallAnswer(
        session=core.id,
        id=original.id,
        kind=original.kind,
        summary=clip(original.summary),
        page=asked.page,
        pages=pages,
        first_line=before + first,
        last_line=before + last,
        text=piece,
        next=f'recall(id="{original.id}", page={asked.page + 1}{lines})' if asked.page < pages else "",
        note="" if clean(piece) == piece else _CHANGED,
    )


def _lines(text: str, ref: str, wanted: str) -> tuple[int, str]:
    """How many lines come before the part that is wanted, and its text."""
    if not wanted:
        return 0, text
    start, dash, end = wanted.partition("-")
    first, last = int(start), int(end) if end else _LAST_LINE if dash else int(start)
    every = text.split("\n")
    if not 1 <= first <= last or first > len(every):
        raise BadSetting(f'lines "{wanted}" of {ref}: it has {len(every):,}, counted from 1. Try: "1-40".')
    return first - 1, "\n".join(every[first - 1 : last])


def search_archive(place: Place, asked: SearchAsked) -> SearchAnswer:
    """Lines of originals that answer a question."""
    with opened(place, asked.session) as found:
        hits = found.session.search(asked.text, limit=asked.limit, tokens=PAGE_TOKENS, kind=asked.kind)
        archived = len(found.core.store.originals(found.core.id))
        name, note = found.core.id, found.note
    return SearchAnswer(
        session=name,
        query=clip(asked.text, 200),
        archived=archived,
        hits=[_hit(hit) for hit in by_exchange(hits)],
        note=" ".join(each for each in (note, _hint(hits, archived)) if each),
    )


def _hint(hits: list[Hit], archived: int) -> str:
    if not archived:
        return "Nothing is archived yet: all that was said is still in the context."
    if not hits:
        return f"Nothing was found in {archived:,} originals. Try: fewer words, names as they were written, or facts()."
    return "recall(id=…) gives the whole of any of these."


def _hit(hit: Hit) -> HitAnswer:
    """A hit with the lines around it. Those of a turn are counted without its results, and it is recalled with them."""
    around = f"{max(1, hit.first_line - _BESIDE)}-{hit.last_line + _BESIDE}"
    text = hit.text if len(hit.text) <= _LONGEST_HIT else hit.text[:_LONGEST_HIT] + "…"
    return HitAnswer(hit.id, hit.kind, text, "" if hit.id.startswith("turn_") else around, hit.exchange)


def list_turns(place: Place, asked: TurnsAsked) -> TurnsAnswer:
    """A page of the index of turns."""
    with opened(place, asked.session) as found:
        every = found.session.turns(asked.first, asked.last or None, asked.words)
        name, note = found.core.id, found.note
    rows = [TurnAnswer(each.id, each.who, each.text, each.tokens, each.is_shown) for each in every]
    pages, shown = page_of_list(rows, lambda turn: len(turn.text) + _BESIDE, asked.page, "the turns")
    last = f"last={asked.last}, " if asked.last else ""
    words = f'words="{asked.words}", ' if asked.words else ""
    following = f"list_turns(first={asked.first}, {last}{words}page={asked.page + 1})"
    return TurnsAnswer(
        session=name,
        total=len(every),
        page=asked.page,
        pages=pages,
        turns=shown,
        next=following if asked.page < pages else "",
        note=note,
    )


def facts(place: Place, asked: FactsAsked) -> FactsAnswer:
    """A page of the facts, the newest first."""
    with opened(place, asked.session) as found:
        every = found.session.facts(asked.kind or None)
        name, note = found.core.id, found.note
    rows = [_fact(fact) for fact in sorted(every, key=_last_turn, reverse=True)]
    pages, shown = page_of_list(rows, lambda fact: len(fact.line) + _BESIDE, asked.page, "the facts")
    kind = f'kind="{asked.kind}", ' if asked.kind else ""
    return FactsAnswer(
        session=name,
        total=len(every),
        counts=dict(sorted(Counter(fact.kind for fact in every).items())),
        page=asked.page,
        pages=pages,
        facts=shown,
        next=f"facts({kind}page={asked.page + 1})" if asked.page < pages else "",
        note=note,
    )


def _last_turn(fact: Fact) -> int:
    return fact.last_turn or fact.turn


def _fact(fact: Fact) -> FactAnswer:
    ref = fact.ref or f"turn_{_last_turn(fact):03d}"
    line = clip(fact_line(fact), _LONGEST_FACT)
    return FactAnswer(fact.kind, line, ref, fact.turn, fact.told_by, fact.first_seen, fact.last_seen)
