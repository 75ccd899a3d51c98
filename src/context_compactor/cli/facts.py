"""`compactor facts`: what must outlive the text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from context_compactor.cli.opening import open_session
from context_compactor.cli.options import AsJson, SessionId, StoreUrl
from context_compactor.cli.output import Out, paper, print_json, wrapped

if TYPE_CHECKING:
    from context_compactor.facts.fact import Fact

Kind = Annotated[
    str | None,
    typer.Option("--kind", metavar="K", help="Only these: decision, failure, error (with failures), constraint, …"),
]


def facts(kind: Kind = None, session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List what must outlive the text: decisions, failures, constraints, file states and so on, with their source.

    Example: `compactor facts --kind failure`
    """
    with open_session(session, store) as opened:
        name, found = opened.id, opened.facts(kind)
    if as_json:
        print_json({"session_id": name, "facts": msgspec.to_builtins(found)})
        return
    out = paper(beside_output=False)
    if not found:
        out.print(f"Session {name!r} has no facts{f' of the kind {kind}' if kind else ' yet'}.")
        return
    by_kind = sorted(found, key=lambda fact: fact.kind)
    for each, group in groupby(by_kind, key=lambda fact: fact.kind):
        _print_kind(each, list(group), out)


def _when(fact: Fact) -> str:
    """The time at which it was last seen, to the minute."""
    return f" ({fact.last_seen[:16].replace('T', ' ')} UTC)" if fact.last_seen else ""


def _print_kind(kind: str, group: Sequence[Fact], out: Out) -> None:
    out.print(f"{kind} ({len(group):,})", style="bold")
    for fact in group:
        source = fact.ref or f"turn_{fact.turn:03d}"
        told = f", told by {fact.told_by}" if fact.told_by else ""
        status = f"[{fact.status}] " if fact.status else ""
        times = f" ({fact.count:,} times)" if fact.count > 1 else ""
        out.print(wrapped(f"{status}{fact.content}{times}{told}{_when(fact)}", f"  {source:<10} "))
        if fact.detail:
            out.print(wrapped(fact.detail, " " * 13), style="dim")
