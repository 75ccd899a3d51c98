"""`compactor sessions`, `context` and `history`: which sessions there are, what the model sees, what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from context_compactor.cli.opening import find_session, open_session, open_store, store_url
from context_compactor.cli.options import AsJson, SessionName, StoreUrl
from context_compactor.cli.output import paper, print_json, write_messages
from context_compactor.messages.printing import one_line

if TYPE_CHECKING:
    from context_compactor.session.record import Totals
    from context_compactor.store.rows import SessionRow

At = Annotated[
    int | None,
    typer.Option("--at", min=0, metavar="N", help="As it was sent when N messages had been appended."),
]
Reports = Annotated[bool, typer.Option("--reports", help="Its compactions instead of its messages.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Show only the N that were used last.")]


def sessions(limit: Limit = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the sessions of the store, the one used last first.

    Example: `compactor sessions --limit 10`
    """
    with open_store(store) as kept:
        rows = sorted(kept.sessions(), key=lambda row: row.updated_at, reverse=True)[:limit]
        path = kept.path
    known = [described(row) for row in rows]
    if as_json:
        print_json({"store": path, "sessions": known})
        return
    out = paper(beside_output=False)
    if not known:
        out.print(f"There is no session in {path} yet.")
        return
    out.print(f"{'session':<40} {'messages':>9} {'tokens':>9}  last used (UTC)", style="bold")
    for each in known:
        numbers = f"{each['messages']:>9,} {each['tokens']:>9,}  {moment(each['updated_at'])}"
        out.print(f"{one_line(each['id'], 40):<40} {numbers}")


def moment(time: str) -> str:
    """A stored time for people, to the minute."""
    return time[:16].replace("T", " ")


def described(row: SessionRow) -> dict[str, Any]:
    """What the store knows of a session."""
    from context_compactor.session.values import read_profile, read_state

    profile = read_profile(row.profile)
    return {
        "id": row.id,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "messages": row.messages,
        "tokens": read_state(row.state).gauge.tokens,
        "window": profile.window,
        "dialect": profile.dialect,
        "model": profile.model,
    }


def context(session: SessionName = None, at: At = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Print what the model sees: the messages to send next, in the session's dialect.

    Looking changes nothing: a compaction that is due waits for whoever sends the next request.

    Example: `compactor context run-42 --at 120 > then.json`
    """
    found = find_session(session, store)
    from context_compactor.session.session import Session

    with Session.open(found.id, store=store_url(store)) as opened:
        messages = opened.context(found.messages if at is None else at)
    if as_json:
        print_json({"session_id": found.id, "at": found.messages if at is None else at, "messages": messages})
        return
    write_messages(messages, None)
    then = "" if at is None else f" when {at:,} had been appended"
    paper(beside_output=True).print(
        f"{len(messages):,} messages in the context{then}; {found.messages:,} in the history"
    )


def history(
    session: SessionName = None, reports: Reports = False, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Print everything that was appended, in order, equal to what went in.

    With `--reports` the compactions are listed instead: when, why, and what each one saved.

    Example: `compactor history run-42 --reports`
    """
    with open_session(session, store) as opened:
        name, totals = opened.id, opened.totals()
        found = [report.to_dict() for report in opened.compactions()] if reports else opened.history()
    if as_json:
        known = {"session_id": name, "totals": msgspec.to_builtins(totals)}
        print_json(known | {"compactions" if reports else "messages": found})
    elif reports:
        _print_reports(found)
        paper(beside_output=False).print(in_words(totals), style="bold")
    else:
        write_messages(found, None)
        paper(beside_output=True).print(f"{len(found):,} messages; {in_words(totals)}")


def in_words(totals: Totals) -> str:
    """How often a session was compacted and what that saved."""
    if not totals.compactions:
        return "no compaction yet"
    times = "once" if totals.compactions == 1 else f"{totals.compactions:,} times"
    undone = f", {totals.undone:,} undone" if totals.undone else ""
    return f"compacted {times}{undone}: {totals.tokens_saved:,} tokens saved"


def _print_reports(reports: list[dict[str, Any]]) -> None:
    out = paper(beside_output=False)
    for each in reports:
        change = f"{each['tokens_before']:>9,} → {each['tokens_after']:<9,}"
        why = one_line(f"{each['trigger']} {each['level'] or ''}", 24)
        out.print(f"{moment(each['created_at'])}  {each['compaction_id']:<16} {change} {why}")
