"""`compactor recall`: an original of a session, by id or by search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Struct

from context_compactor.cli.opening import open_session, open_store
from context_compactor.cli.options import AsJson, SessionId, StoreUrl
from context_compactor.cli.output import paper, print_json, printable, write_text
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from context_compactor.archive.search.hits import Hit
    from context_compactor.session.session import Session

Ref = Annotated[str | None, typer.Argument(metavar="[REF]", help="The id of an original, such as tool_017.")]
Search = Annotated[str | None, typer.Option("--search", metavar="TEXT", help="Search all originals for this.")]
Lines = Annotated[str | None, typer.Option("--lines", metavar="A-B", help="Only these lines, counted from 1.")]
PageNumber = Annotated[int | None, typer.Option("--page", min=1, metavar="N", help="One page of a long original.")]
Tokens = Annotated[
    int | None,
    typer.Option("--tokens", min=1, metavar="N", help="The size of a page, or of all hits; without, 2000."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most N hits.")]
Kind = Annotated[
    str, typer.Option("--kind", metavar="K", help="Hits of this kind, such as `test run`.", show_default=False)
]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Archived at this time or later.", show_default=False)
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Archived before this time.", show_default=False)]
Again = Annotated[
    bool,
    typer.Option("--again", help="From where it came: read the file again, or show the command. Nothing is run."),
]
Everywhere = Annotated[bool, typer.Option("--all", help="Search all sessions of the store, not only one.")]

_TOKENS = 2_000
_WITH_SEARCH = frozenset({"--tokens", "--limit", "--kind", "--since", "--until"})
_WITH_REF = (frozenset({"--lines"}), frozenset({"--page", "--tokens"}), frozenset({"--again"}))
_LINES = re.compile(r"(\d{1,9})(?:(-)(\d{1,9})?)?")
_LAST_LINE = 10**9


def recall(
    ref: Ref = None,
    search: Search = None,
    lines: Lines = None,
    page: PageNumber = None,
    tokens: Tokens = None,
    limit: Limit = None,
    kind: Kind = "",
    since: Since = "",
    until: Until = "",
    again: Again = False,
    everywhere: Everywhere = False,
    session: SessionId = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print an original that left the context, byte for byte, or search all of them.

    Long originals come by lines or by pages; hits name the id and the lines to ask for next. Times are in ISO 8601.
    `--all` searches every session of the store. With `--again` a file is read as it is now, and it is said whether it
    has changed since; a command is only shown.

    Example: `compactor recall tool_017 --lines 10-40` or `compactor recall --search "jwt expiry" --limit 5`
    """
    options = {"--lines": lines, "--page": page, "--tokens": tokens, "--limit": limit, "--kind": kind}
    options |= {"--since": since, "--until": until, "--again": again}
    _refuse_mix(ref, search, frozenset(name for name, value in options.items() if value))
    if everywhere and (search is None or session is not None):
        raise BadSetting("recall: --all searches every session. Try: with --search TEXT, and without --session.")
    wanted = read_lines(lines)
    if everywhere and search is not None:
        found = _search_all(search, store, limit=limit, tokens=tokens or _TOKENS, kind=kind, since=since, until=until)
        _print(None, _found(search, found), as_json)
        return
    if again:
        _fetch_again(str(ref), session, store, as_json)
        return
    with open_session(session, store) as opened:
        if search is not None:
            size = tokens or _TOKENS
            hits = opened.search(search, limit=limit, tokens=size, kind=kind, since=since, until=until)
            answer = _found(search, [("", hit) for hit in hits])
        elif page or tokens:
            answer = _paged(opened, str(ref), page or 1, tokens or _TOKENS)
        else:
            text = opened.recall(str(ref), wanted)
            answer = Recalled(f"{text}\n" if wanted else text, {"id": ref, "lines": wanted, "text": text})
        name = opened.id
    _print(name, answer, as_json)


class Recalled(Struct, frozen=True):
    """What was asked for: for people, for programs, and a word beside it. Originals are printed as they are."""

    text: str
    values: dict[str, Any]
    note: str = ""
    is_original: bool = True


def _print(session_id: str | None, answer: Recalled, as_json: bool) -> None:
    if as_json:
        print_json(({} if session_id is None else {"session_id": session_id}) | answer.values)
        return
    if answer.is_original:
        write_text(answer.text)
    elif answer.text:
        paper(beside_output=False).print(printable(answer.text))
    if answer.note:
        paper(beside_output=True).print(answer.note, style="dim")


def _paged(session: Session, ref: str, number: int, tokens: int) -> Recalled:
    page = session.page(ref, number, tokens)
    more = f"; --page {number + 1} is next" if number < page.pages else ""
    note = f"page {number} of {page.pages}, lines {page.first_line:,} to {page.last_line:,}{more}"
    return Recalled(page.text, msgspec.to_builtins(page), note)


def _fetch_again(ref: str, session_id: str | None, store: str | None, as_json: bool) -> None:
    """An original from where it came from, as that is now. Leaves with 1 when it cannot be had there any more."""
    with open_session(session_id, store) as opened:
        fetched = opened.refetch(ref)
        name = opened.id
    is_text = fetched.kind == "file" and fetched.can_restore
    answer = Recalled(
        fetched.text if is_text else fetched.said,
        {"id": ref} | msgspec.to_builtins(fetched),
        fetched.said if is_text else "",
        is_original=is_text,
    )
    _print(name, answer, as_json)
    if not fetched.can_restore:
        raise typer.Exit(1)


def _search_all(query: str, store: str | None, **wanted: Any) -> list[tuple[str, Hit]]:
    """Hits of all sessions, each with its session."""
    from context_compactor.archive.search.stored import search_all
    from context_compactor.measure.tokens import counter_for

    with open_store(store) as kept:
        return search_all(kept, [row.id for row in kept.sessions()], query, counter_for(None), **wanted)


def _found(query: str, hits: Sequence[tuple[str, Hit]]) -> Recalled:
    """Hits, each under its session when there may be several."""
    blocks = [f"{f'{session_id}: ' if session_id else ''}{_head(hit)}:\n{hit.text}\n" for session_id, hit in hits]
    note = "" if hits else "Nothing was found. Try: other words, or fewer."
    told = [({"session_id": name} if name else {}) | msgspec.to_builtins(hit) for name, hit in hits]
    return Recalled("\n".join(blocks).rstrip("\n"), {"query": query, "hits": told}, note, is_original=False)


def _head(hit: Hit) -> str:
    """Where lines stand. Those of a turn are of what was said in it, and not of the messages that recall prints."""
    lines = "" if hit.id.startswith("turn_") else f", lines {hit.first_line:,} to {hit.last_line:,}"
    return f"{hit.id}, {hit.kind}{lines}"


def _refuse_mix(ref: str | None, search: str | None, given: frozenset[str]) -> None:
    """An option that would be ignored is refused."""
    if (ref is None) == (search is None):
        raise BadSetting("recall: name one original, such as `recall tool_017`, or search with `recall --search TEXT`")
    fitting = given <= _WITH_SEARCH if ref is None else any(given <= group for group in _WITH_REF)
    if not fitting:
        beside = "a search" if ref is None else "one original"
        raise BadSetting(f"recall: {', '.join(sorted(given))} cannot be used together for {beside}")


def read_lines(text: str | None) -> tuple[int, int] | None:
    """Lines as people write them: `10-40`, `10-` to the end, `10` alone."""
    if text is None:
        return None
    match = _LINES.fullmatch(text.strip())
    if match is None:
        raise BadSetting(f"--lines: {text!r:.40} names no lines. Try: 10-40, 10- for the rest, or 10.")
    first, dash, last = match.groups()
    return int(first), int(last) if last else _LAST_LINE if dash else int(first)
