"""`compactor recall`: an original of a session, by id or by search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Struct

from context_compactor.cli.options import AsJson, SessionId, StoreUrl, open_session, open_store
from context_compactor.cli.output import FAILED, print_json, printable, stderr, stdout, write_text
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from context_compactor.archive.search.passages import Hit
    from context_compactor.sessions.session import Session

Ref = Annotated[str | None, typer.Argument(metavar="[REF]", help="The id of an original, such as tool_017.")]
Search = Annotated[str | None, typer.Option("--search", metavar="TEXT", help="Search all originals for this.")]
Lines = Annotated[str | None, typer.Option("--lines", metavar="A-B", help="Only these lines, counted from 1.")]
PageNumber = Annotated[int | None, typer.Option("--page", min=1, metavar="N", help="One page of a long original.")]
Tokens = Annotated[
    int | None,
    typer.Option("--tokens", min=1, metavar="N", help="The size of a page, or of all hits; by default 2000."),
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
Turns = Annotated[
    bool, typer.Option("--turns", help="List the turns, one line each; with --search, those that hold all its words.")
]
First = Annotated[int, typer.Option("--from", min=1, metavar="N", help="List turns from this number on.")]
Last = Annotated[int | None, typer.Option("--to", min=1, metavar="N", help="List turns up to this number.")]
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
    turns: Turns = False,
    first: First = 1,
    last: Last = None,
    session: SessionId = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print an original that left the context, search all of them, or list the turns.

    A tool result is printed byte for byte, a turn as a conversation; with `--json` its text is the JSON of its
    messages. Use `--lines` or `--page` for long originals; hits name the id and the lines. Statements about a question
    come first, with what the user had asked and what was concluded. Times are in ISO 8601. `--all` searches every
    session of the store. `--again` reads a file as it is now and says whether it has changed; a command is only shown.

    Example: `compactor recall tool_017 --lines 10-40`, `compactor recall --search "why was jose removed"` or
    `compactor recall --turns --from 90`
    """
    options = {"--lines": lines, "--page": page, "--tokens": tokens, "--limit": limit, "--kind": kind}
    options |= {"--since": since, "--until": until, "--again": again}
    if turns:
        _refuse_with_turns(ref, {**options, "--all": everywhere})
        _list_turns(session, store, (first, last, search or ""), as_json)
        return
    if first > 1 or last is not None:
        raise BadSetting("recall: --from and --to need --turns. Try: add --turns.")
    _refuse_mix(ref, search, frozenset(name for name, value in options.items() if value))
    if everywhere and (search is None or session is not None):
        raise BadSetting("recall: --all needs --search and excludes --session. Try: --all --search TEXT.")
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
            answer = _whole(opened, str(ref), wanted, as_json)
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
        stdout().print(printable(answer.text))
    if answer.note:
        stderr().print(answer.note, style="dim")


def _whole(session: Session, ref: str, lines: tuple[int, int] | None, as_json: bool) -> Recalled:
    """An original, or some lines of it: for people as it reads, for programs all of it as it was."""
    text = session.recall(ref, lines)
    exact = session.original(ref).text if as_json and lines is None else text
    ends = lines is not None or ref.startswith("turn_")
    return Recalled(f"{text}\n" if ends else text, {"id": ref, "lines": lines, "text": exact})


def _refuse_with_turns(ref: str | None, options: dict[str, Any]) -> None:
    given = sorted(name for name, value in options.items() if value)
    if ref is not None or given:
        beside = ref or ", ".join(given)
        raise BadSetting(
            f"recall: --turns cannot be combined with {beside}. Try: --turns with --from, --to or --search."
        )


def _list_turns(session_id: str | None, store: str | None, wanted: tuple[int, int | None, str], as_json: bool) -> None:
    with open_session(session_id, store) as opened:
        found = opened.turns(*wanted)
        name = opened.id
    note = "" if found else "No turn is like that. Try: other words, or without --from and --to."
    values = {"turns": [msgspec.to_builtins(each) for each in found]}
    _print(name, Recalled("\n".join(each.line() for each in found), values, note, is_original=False), as_json)


def _paged(session: Session, ref: str, number: int, tokens: int) -> Recalled:
    page = session.page(ref, number, tokens)
    more = f"; --page {number + 1} is next" if number < page.pages else ""
    note = f"page {number} of {page.pages}, lines {page.first_line:,} to {page.last_line:,}{more}"
    return Recalled(page.text, msgspec.to_builtins(page), note)


def _fetch_again(ref: str, session_id: str | None, store: str | None, as_json: bool) -> None:
    """An original from where it came from, as that is now. Exits with 1 when it is no longer available there."""
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
        raise typer.Exit(FAILED)


def _search_all(query: str, store: str | None, **wanted: Any) -> list[tuple[str, Hit]]:
    from context_compactor.archive.search.stored import search_all
    from context_compactor.tokens.counting import counter_for

    with open_store(store) as opened:
        return search_all(opened, [row.id for row in opened.sessions()], query, counter_for(None), **wanted)


def _found(query: str, hits: Sequence[tuple[str, Hit]]) -> Recalled:
    """Hits, those of the best exchange first, each under its session when there may be several."""
    from context_compactor.archive.search.passages import group_by_exchange

    sessions = {name: [hit for owner, hit in hits if owner == name] for name in dict.fromkeys(name for name, _ in hits)}
    shown = [(name, hit) for name, found in sessions.items() for hit in group_by_exchange(found)]
    blocks = [f"{f'{session_id}: ' if session_id else ''}{_head(hit)}:\n{hit.text}\n" for session_id, hit in shown]
    note = "" if hits else "Nothing was found. Try: other words, or fewer."
    values = [({"session_id": name} if name else {}) | msgspec.to_builtins(hit) for name, hit in hits]
    return Recalled("\n".join(blocks).rstrip("\n"), {"query": query, "hits": values}, note, is_original=False)


def _head(hit: Hit) -> str:
    """Where lines stand. Those of a turn are of what was said in it, and recall prints its results as well."""
    lines = "" if hit.id.startswith("turn_") else f", lines {hit.first_line:,} to {hit.last_line:,}"
    return f"{hit.id}, {hit.kind}{lines}"


def _refuse_mix(ref: str | None, search: str | None, given: frozenset[str]) -> None:
    """An option that would be ignored is refused."""
    if (ref is None) == (search is None):
        raise BadSetting("recall needs either an id or --search. Try: `recall tool_017` or `recall --search TEXT`.")
    fitting = given <= _WITH_SEARCH if ref is None else any(given <= group for group in _WITH_REF)
    if not fitting:
        beside = "a search" if ref is None else "one original"
        raise BadSetting(
            f"recall: {', '.join(sorted(given))} cannot be combined for {beside}. Try: leave some of them out."
        )


def read_lines(text: str | None) -> tuple[int, int] | None:
    """Lines as people write them: `10-40`, `10-` to the end, `10` alone."""
    if text is None:
        return None
    match = _LINES.fullmatch(text.strip())
    if match is None:
        raise BadSetting(f"--lines: {text!r:.40} is not a range of lines. Try: 10-40, 10- for the rest, or 10.")
    first, dash, last = match.groups()
    return int(first), int(last) if last else _LAST_LINE if dash else int(first)
