"""The tools by which an agent reads its own archive: recall, search and facts, for one session."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from context_compactor.archive.search.passages import Hit, group_by_exchange
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.dialect import ToolDeclaration, kind_of_value
from context_compactor.errors import BadInput, BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import fact_line
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import all_facts
from context_compactor.sessions.recall import PAGE_TOKENS, cut_pages, find_original, original_text, search_originals
from context_compactor.sessions.tool_schemas import (
    FACTS,
    RECALL,
    SEARCH,
    ArchiveTool,
    FactOutput,
    FactsArguments,
    FactsOutput,
    HitOutput,
    PagedArguments,
    RecallArguments,
    RecallOutput,
    SearchArguments,
    SearchOutput,
    ToolAnswer,
    schema_of,
)
from context_compactor.text import clip_line
from context_compactor.tokens.counting import replace_surrogates

T = TypeVar("T")
_PAGE_BYTES = PAGE_TOKENS * 4
_FEWEST_CHARS = 500


def page_of_text(text: str, number: int, what: str) -> tuple[int, int, int, str]:
    """A page of a text: how many there are, its first and last line, and what it says.

    A page has fewer characters where these are not ASCII, since each is then more of a token.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    chars = _PAGE_BYTES if size == len(text) else max(_FEWEST_CHARS, _PAGE_BYTES * len(text) // size)
    pages = cut_pages(text, chars)
    first, last, piece = _pick(pages, number, what)
    return len(pages), first, last, piece


def page_of_list(items: Iterable[T], size_of: Callable[[T], int], number: int, what: str) -> tuple[int, list[T]]:
    """A page of a list: how many there are, and what is on it. `size_of` says how many characters an item takes."""
    pages: list[list[T]] = [[]]
    room = _PAGE_BYTES
    for item in items:
        size = size_of(item)
        if size > room and pages[-1]:
            pages.append([])
            room = _PAGE_BYTES
        pages[-1].append(item)
        room -= size
    return len(pages), _pick(pages, number, what)


def _pick(pages: Sequence[T], number: int, what: str) -> T:
    if number > len(pages):
        raise BadSetting(f"page {number:,} of {what}: it has {len(pages):,}. Try: page={len(pages)}.")
    return pages[number - 1]


_LONGEST_FACT = 500
_LONGEST_HIT = 8_000
_CONTEXT_LINES = 40
_LAST_LINE = 10**9
_REPLACED_CHARACTERS = "Halves of characters, which the protocol cannot carry, are shown as \N{REPLACEMENT CHARACTER}."


def recall(core: Core, given: RecallArguments) -> RecallOutput:
    """A page of an original."""
    ref = given.id.strip().strip("`\"'[]()")
    original = find_original(core, ref)
    before, text = _lines(original_text(core, ref), original.id, given.lines)
    pages, first, last, piece = page_of_text(text, given.page, ref)
    core.emit("item.recalled", ref=ref, page=given.page)
    return RecallOutput(
        session=core.id,
        id=original.id,
        kind=original.kind,
        summary=clip_line(original.summary),
        page=given.page,
        pages=pages,
        first_line=before + first,
        last_line=before + last,
        text=piece,
        next=next_call("recall", structs.replace(given, id=original.id), pages),
        note="" if replace_surrogates(piece) == piece else _REPLACED_CHARACTERS,
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


def search_archive(core: Core, given: SearchArguments) -> SearchOutput:
    """Lines of originals that answer a question."""
    hits = search_originals(
        core, given.text, tokens=PAGE_TOKENS, limit=given.limit, kind=given.kind, since="", until=""
    )
    archived = len(core.store.originals(core.id))
    return SearchOutput(
        session=core.id,
        query=clip_line(given.text, 200),
        archived=archived,
        hits=[_hit(hit) for hit in group_by_exchange(hits)],
        note=_hint(hits, archived),
    )


def _hint(hits: list[Hit], archived: int) -> str:
    if not archived:
        return "Nothing is archived yet: all that was said is still in the context."
    if not hits:
        return f"Nothing was found in {archived:,} originals. Try: fewer words, names as they were written, or facts()."
    return "recall(id=…) gives the whole of any of these."


def _hit(hit: Hit) -> HitOutput:
    """A hit with the lines around it. Those of a turn are counted without its results, and it is recalled with them."""
    around = f"{max(1, hit.first_line - _CONTEXT_LINES)}-{hit.last_line + _CONTEXT_LINES}"
    text = hit.text if len(hit.text) <= _LONGEST_HIT else hit.text[:_LONGEST_HIT] + "…"
    return HitOutput(hit.id, hit.kind, text, "" if hit.id.startswith("turn_") else around, hit.exchange)


def facts(core: Core, given: FactsArguments) -> FactsOutput:
    """A page of the facts, the newest first."""
    every = all_facts(core, given.kind or None, from_models=True)
    rows = [_fact(fact) for fact in sorted(every, key=_last_turn, reverse=True)]
    pages, shown = page_of_list(rows, lambda fact: len(fact.line) + _CONTEXT_LINES, given.page, "the facts")
    return FactsOutput(
        session=core.id,
        total=len(every),
        counts=dict(sorted(Counter(fact.kind for fact in every).items())),
        page=given.page,
        pages=pages,
        facts=shown,
        next=next_call("facts", given, pages),
    )


def _last_turn(fact: Fact) -> int:
    return fact.last_turn or fact.turn


def _fact(fact: Fact) -> FactOutput:
    ref = fact.ref or f"turn_{_last_turn(fact):03d}"
    line = clip_line(fact_line(fact), _LONGEST_FACT)
    return FactOutput(fact.kind, line, ref, fact.turn, fact.summarized_by, fact.first_seen, fact.last_seen)


def next_call(tool: str, given: PagedArguments, pages: int) -> str:
    """The call that gives the following page; nothing when this is the last one."""
    fields = {name: value for name, value in structs.asdict(given).items() if value and name not in ("session", "page")}
    arguments = [f"{field}={json.dumps(value, ensure_ascii=False)}" for field, value in fields.items()]
    return f"{tool}({', '.join([*arguments, f'page={given.page + 1}'])})" if given.page < pages else ""


TOOLS: Mapping[str, tuple[ArchiveTool, Callable[[Core, Any], ToolAnswer]]] = {
    RECALL.name: (RECALL, recall),
    SEARCH.name: (SEARCH, search_archive),
    FACTS.name: (FACTS, facts),
}
"""The function tools by their names, each with what it does."""

_FLAVOURS = {"openai": "openai-chat", "responses": "openai-responses"}


def declare_tools(core: Core, flavour: str | None) -> list[dict[str, Any]]:
    """The tools as they are declared in a request to a provider; without a flavour, in the session's dialect."""
    named = str(flavour)
    dialect = core.dialect() if flavour is None else find_dialect(_FLAVOURS.get(named, named), ())
    return dialect.declare_tools(
        [ToolDeclaration(tool.name, tool.description, schema_of(tool.arguments)) for tool, _ in TOOLS.values()]
    )


def call_tool(core: Core, name: str, arguments: object) -> str:
    """What a tool answers, as text for the model; what is wrong with a call is an answer too.

    `BadSetting` for a tool that is none of ours: the caller has to answer that one.
    """
    if str(name) not in TOOLS:
        raise BadSetting(f"call: {name!r:.60} is not a tool of a session. Try: {', '.join(TOOLS)}.")
    tool, run = TOOLS[name]
    try:
        return run(core, _read_arguments(tool, arguments)).render()
    except (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError) as error:
        names = ", ".join(sorted(tool.arguments.__struct_fields__, key=lambda field: field == "page"))
        return f"{name}: {error}. Try: {name}({names})."
    except BadInput as error:
        return f"{name}: {error}"


def _read_arguments(tool: ArchiveTool, arguments: object) -> Any:
    """Arguments as a model gives them: a dictionary, or its JSON. One that is null counts as not given."""
    given = msgspec.json.decode(arguments or "{}") if isinstance(arguments, (str, bytes)) else arguments or {}
    if not isinstance(given, Mapping):
        raise TypeError(f"expected an object with arguments, got {kind_of_value(given)}")
    known = {name: value for name, value in given.items() if value is not None}
    return msgspec.convert(known, tool.arguments, strict=False)
