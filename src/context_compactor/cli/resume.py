"""`compactor checkpoint` and `resume`: where the work stands, and going on from there in a fresh window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from context_compactor.cli.opening import open_session, store_url
from context_compactor.cli.options import AsJson, SessionId, StoreUrl
from context_compactor.cli.output import EXIT_CODES, Out, paper, print_json, printable, wrapped
from context_compactor.messages.printing import one_line

if TYPE_CHECKING:
    from context_compactor.handoff.resume import Readiness
    from context_compactor.report import Report

Note = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="Something the next reader must know.", show_default=False)
]
Tokens = Annotated[int, typer.Option("--tokens", min=1, metavar="N", help="The size of the brief.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Begin the fresh window here: the context becomes as small as it goes.")
]

_HEADS = {
    "ready": ("Ready to go on.", "bold green"),
    "needs_attention": ("Needs attention before it goes on.", "bold yellow"),
    "blocked": ("Blocked.", "bold red"),
}
_STYLES = {"blocking": "red", "attention": "yellow", "note": "dim"}


def checkpoint(note: Note = "", session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Write down where the work stands, into `.compactor/progress-checkpoint.md`, and print it.

    Before every compaction one is written by itself.

    Example: `compactor checkpoint --note "the flaky test is known, ignore it"`
    """
    with open_session(session, store) as opened:
        made = opened.checkpoint(note)
    from context_compactor.handoff.checkpoint_text import render_checkpoint
    from context_compactor.session.project import project_of

    project = project_of(store_url(store))
    file = str(project.checkpoint_file) if project else ""
    if as_json:
        print_json({"file": file} | msgspec.to_builtins(made))
        return
    paper(beside_output=False).print(printable(render_checkpoint(made)).rstrip("\n"))
    paper(beside_output=True).print(f"written to {file}", style="dim")


def resume(
    tokens: Tokens = 2000,
    fresh: Fresh = False,
    session: SessionId = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """See whether work can go on from the last checkpoint, and print what a fresh window begins with.

    Git, files and other open sessions are compared with the checkpoint. A damaged checkpoint is reported and written
    anew from the store. Leaves with 0 when it is ready or needs attention, with 1 when it is blocked; then nothing is
    begun. With `--fresh` the session itself goes on in a fresh window, which `compactor undo` takes back.

    Example: `compactor resume --session run-42 --tokens 1500`
    """
    with open_session(session, store) as opened:
        name, found = opened.id, opened.resume(tokens)
        is_blocked = found.status == "blocked"
        report = opened.fresh() if fresh and not is_blocked else None
    if as_json:
        told = {"report": report.to_dict() if report else None} if fresh else {}
        print_json({"session_id": name} | msgspec.to_builtins(found) | told)
    else:
        _print_readiness(name, found, paper(beside_output=False))
        _print_fresh(report, paper(beside_output=True))
    raise typer.Exit(1 if is_blocked else EXIT_CODES[report.status] if report else 0)


def _print_fresh(report: Report | None, out: Out) -> None:
    if report is not None:
        from context_compactor.cli.render import IN_STORE, print_report

        print_report(report, out, IN_STORE)


def _print_readiness(session_id: str, found: Readiness, out: Out) -> None:
    head, style = _HEADS[found.status]
    out.print(f"{head} Session {session_id!r}.", style=style)
    for reason in found.reasons:
        out.print(wrapped(reason.what, f"  {reason.severity:<10} "), style=_STYLES[reason.severity])
        if reason.try_:
            out.print(wrapped(f"Try: {one_line(reason.try_, 300)}.", " " * 13))
    if found.brief:
        out.print()
        out.print(printable(found.brief).rstrip("\n"))
