"""`compactor restore`, `undo`, `redo` and `diff`: changing a session's context back, and seeing what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from context_compactor.cli.opening import open_session
from context_compactor.cli.options import AsJson, SessionId, StoreUrl
from context_compactor.cli.output import columns, paper, print_json

if TYPE_CHECKING:
    from context_compactor.report import Report

Ref = Annotated[str, typer.Argument(metavar="REF", help="The id of an original, such as tool_017.")]
Before = Annotated[
    int | None, typer.Option("--before", min=0, metavar="N", help="The context when N messages had been appended.")
]
After = Annotated[int | None, typer.Option("--after", min=0, metavar="N", help="The other one; without, as it is now.")]


def restore(ref: Ref, session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Put an original back into the context, with room made for it when there is none.

    It stays until the next compaction, which leaves its reference again.

    Example: `compactor restore tool_017`
    """
    with open_session(session, store) as opened:
        name, restored = opened.id, opened.restore(ref)
    if as_json:
        print_json({"session_id": name} | msgspec.to_builtins(restored))
        return
    out = paper(beside_output=False)
    out.print(restored.in_words(), style="bold green")
    out.print(f"{'context':<12}{restored.tokens_after:,} tokens")


def undo(session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Take the last compaction back: the context is again what it was, with everything appended since.

    `compactor redo` makes it count again. Undo once more to take back the one before.

    Example: `compactor undo --session run-42`
    """
    with open_session(session, store) as opened:
        _print_turned("undo", opened.id, opened.undo(), opened.usage().tokens, as_json)


def redo(session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Take the last undo back: the compaction counts again.

    Example: `compactor redo --session run-42`
    """
    with open_session(session, store) as opened:
        _print_turned("redo", opened.id, opened.redo(), opened.usage().tokens, as_json)


def _print_turned(verb: str, session_id: str, report: Report | None, tokens: int, as_json: bool) -> None:
    if as_json:
        told = report.to_dict() if report else None
        print_json({"session_id": session_id, "done": report is not None, "tokens": tokens, "report": told})
        return
    out = paper(beside_output=False)
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
    out = paper(beside_output=False)
    out.print(found.to_text(columns()))
    out.print()
    out.print(", ".join(f"{count:,} {name}" for name, count in found.counts().items()), style="bold")
