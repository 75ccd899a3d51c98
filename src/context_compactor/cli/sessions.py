"""`compactor sessions`, `context`, `history`, `restore`, `undo`, `redo`, `diff` and `delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from context_compactor.cli.options import (
    AsJson,
    SessionId,
    SessionName,
    StoreUrl,
    Yes,
    find_session,
    open_session,
    open_store,
    store_url,
)
from context_compactor.cli.output import columns, confirm, print_json, stderr, stdout, write_messages
from context_compactor.text import one_line, plural

if TYPE_CHECKING:
    from context_compactor.engine.report import Report
    from context_compactor.sessions.views import Totals
    from context_compactor.store.rows import SessionRow


At = Annotated[
    int | None,
    typer.Option("--at", min=0, metavar="N", help="As it was sent when N messages had been appended."),
]
Reports = Annotated[bool, typer.Option("--reports", help="Its compactions instead of its messages.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Show only the N that were used last.")]


_NAME, _LONGEST_NAME = 40, 100


def sessions(limit: Limit = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the sessions of the store, the one used last first.

    Example: `compactor sessions --limit 10`
    """
    with open_store(store) as opened:
        rows = sorted(opened.sessions(), key=lambda row: row.updated_at, reverse=True)[:limit]
        path = opened.path
    known = [described(row) for row in rows]
    if as_json:
        print_json({"store": path, "sessions": known})
        return
    out = stdout()
    if not known:
        out.print(f"There is no session in {path} yet.")
        return
    # An id is there to be copied: it stands whole, unless it is longer than anybody makes one.
    width = min(max(_NAME, *(len(each["id"]) for each in known)), _LONGEST_NAME)
    out.print(f"{'session':<{width}} {'messages':>9} {'tokens':>9}  last used (UTC)", style="bold")
    for each in known:
        numbers = f"{each['messages']:>9,} {each['tokens']:>9,}  {moment(each['updated_at'])}"
        out.print(f"{one_line(each['id'], width):<{width}} {numbers}")


def moment(time: str) -> str:
    """A stored time for people, to the minute."""
    return time[:16].replace("T", " ")


def described(row: SessionRow) -> dict[str, Any]:
    """What the store knows of a session."""
    from context_compactor.sessions.state import read_profile, read_session_state

    profile = read_profile(row.profile)
    return {
        "id": row.id,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "messages": row.messages,
        "tokens": read_session_state(row.state).gauge.tokens,
        "window": profile.window,
        "dialect": profile.dialect,
        "model": profile.model,
    }


def context(session: SessionName = None, at: At = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Print what the model sees: the messages to send next, in the session's dialect.

    This changes nothing: a due compaction waits for the next request.

    Example: `compactor context run-42 --at 120 > then.json`
    """
    found = find_session(session, store)
    from context_compactor.sessions.session import Session

    with Session.open(found.id, store=store_url(store), branch=found.id) as opened:
        messages = opened.context(found.messages if at is None else at)
    if as_json:
        print_json({"session_id": found.id, "at": found.messages if at is None else at, "messages": messages})
        return
    write_messages(messages, None)
    then = "" if at is None else f" when {at:,} had been appended"
    stderr().print(f"{len(messages):,} messages in the context{then}; {found.messages:,} in the history")


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
        stdout().print(compactions_text(totals), style="bold")
    else:
        write_messages(found, None)
        stderr().print(f"{len(found):,} messages; {compactions_text(totals)}")


def compactions_text(totals: Totals) -> str:
    """How often a session was compacted and what that saved."""
    if not totals.compactions:
        return "no compaction yet"
    times = "once" if totals.compactions == 1 else f"{totals.compactions:,} times"
    undone = f", {totals.undone:,} undone" if totals.undone else ""
    return f"compacted {times}{undone}: {totals.tokens_saved:,} tokens saved"


def _print_reports(reports: list[dict[str, Any]]) -> None:
    out = stdout()
    for each in reports:
        change = f"{each['tokens_before']:>9,} → {each['tokens_after']:<9,}"
        why = one_line(f"{each['trigger']} {each['level'] or ''}", 24)
        out.print(f"{moment(each['created_at'])}  {each['compaction_id']:<16} {change} {why}")


Ref = Annotated[str, typer.Argument(metavar="REF", help="The id of an original, such as tool_017.")]
Before = Annotated[
    int | None, typer.Option("--before", min=0, metavar="N", help="The context when N messages had been appended.")
]
After = Annotated[int | None, typer.Option("--after", min=0, metavar="N", help="The other one; by default as now.")]


def restore(ref: Ref, session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Put an original back into the context; space is made for it if needed.

    It stays until the next compaction, which leaves its reference again.

    Example: `compactor restore tool_017`
    """
    with open_session(session, store) as opened:
        name, restored = opened.id, opened.restore(ref)
    if as_json:
        print_json({"session_id": name} | msgspec.to_builtins(restored))
        return
    out = stdout()
    out.print(restored.in_words(), style="bold green")
    out.print(f"{'context':<12}{restored.tokens_after:,} tokens")


def undo(session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Take the last compaction back: the context is as before, with everything appended since.

    `compactor redo` applies it again. Undo once more to take back the one before.

    Example: `compactor undo --session run-42`
    """
    with open_session(session, store) as opened:
        _print_turned("undo", opened.id, opened.undo(), opened.usage().tokens, as_json)


def redo(session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Take the last undo back: the compaction applies again.

    Example: `compactor redo --session run-42`
    """
    with open_session(session, store) as opened:
        _print_turned("redo", opened.id, opened.redo(), opened.usage().tokens, as_json)


def _print_turned(verb: str, session_id: str, report: Report | None, tokens: int, as_json: bool) -> None:
    if as_json:
        result = report.to_dict() if report else None
        print_json({"session_id": session_id, "done": report is not None, "tokens": tokens, "report": result})
        return
    out = stdout()
    if report is None:
        out.print(f"Nothing to {verb} in session {session_id!r}.")
        return
    done = "was taken back" if verb == "undo" else "counts again"
    out.print(f"The compaction {report.compaction_id} {done}.", style="bold green")
    out.print(f"{'context':<12}{tokens:,} tokens")


def diff(
    before: Before = None,
    after: After = None,
    session: SessionId = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show two contexts side by side: before and after the last compaction, or those at two messages.

    Each line is a message: `=` the same, `<` gone, `>` new, `|` changed.

    Example: `compactor diff --before 120 --after 240`
    """
    with open_session(session, store) as opened:
        name, found = opened.id, opened.diff(before, after)
    if as_json:
        print_json({"session_id": name, "counts": found.counts()} | msgspec.to_builtins(found))
        return
    out = stdout()
    out.print(found.to_text(columns()))
    out.print()
    out.print(", ".join(f"{count:,} {name}" for name, count in found.counts().items()), style="bold")


Sessions = Annotated[list[str], typer.Argument(metavar="SESSION…", help="Which sessions of the store.")]


def delete(sessions: Sessions, yes: Yes = False, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Delete sessions for good: messages, archive, facts, compactions, and the files made from them in the project.

    Their branches and the sessions of their sub-agents go with them. Contents that other sessions have too stay for
    them. Nothing brings a deleted session back; on a terminal it is asked first.

    Example: `compactor delete run-42`
    """
    from context_compactor.agents.deletion import delete_sessions, with_subagents
    from context_compactor.sessions.lifecycle import clear_deleted

    with open_store(store) as opened:
        clear_deleted(opened)  # what a deletion that was interrupted has left
        wanted = list(dict.fromkeys(name for session in sessions for name in with_subagents(opened, session)))
        messages = {name: opened.session(name).messages for name in wanted}
        out = stderr() if as_json or not yes else stdout()
        if not yes:
            for name, count in messages.items():
                out.print(f"  {one_line(name, 80)}: {plural(count, 'message')}, with everything archived of it")
        named = f"the session {one_line(wanted[0], 80)!r}" if len(wanted) == 1 else f"these {len(wanted):,} sessions"
        confirm(f"Delete {named} from {opened.path} for good?", yes=yes, default=False, instead="--yes")
        delete_sessions(opened, store_url(store), wanted)
        path = opened.path
    if as_json:
        gone = [{"id": name, "messages": count} for name, count in messages.items()]
        print_json({"store": path, "deleted": gone})
        return
    for name, count in messages.items():
        stdout().print(f"Deleted {one_line(name, 80)}: {plural(count, 'message')}", style="green")
