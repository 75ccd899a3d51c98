"""`compactor export` and `verify`: the readable archive, and the proof that nothing has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from context_compactor.cli.opening import open_session, open_store
from context_compactor.cli.options import AsJson, SessionName, StoreUrl
from context_compactor.cli.output import paper, print_json
from context_compactor.errors import BadSetting

Folder = Annotated[
    str | None,
    typer.Option("--dir", metavar="D", help="Where the session's folder goes; without, as `archive_dir` says."),
]
OneSession = Annotated[
    str | None, typer.Argument(metavar="[SESSION]", help="Only this one's log; without, those of all sessions.")
]
_DAMAGED = 1


def export(session: SessionName = None, folder: Folder = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Write a session's originals into a folder in which they can be read without the store.

    It holds `tool-calls.json`, `file-summaries.md`, `subagent-outputs.md` and `manifest.json`. What is there is added
    to, never taken away.

    Example: `compactor export run-42 --dir archive`
    """
    if folder is not None and not folder.strip():
        raise BadSetting("--dir: the name of the folder is empty. Try: --dir archive.")
    with open_session(session, store) as opened:
        exported = opened.export(Path(folder) if folder else None)
        name = opened.id
    if as_json:
        files = [str(path) for path in exported.paths]
        print_json({"session_id": name, "folder": str(exported.folder), "files": files, "count": exported.count})
        return
    out = paper(beside_output=False)
    out.print(f"{exported.count:,} originals are exported.", style="bold green")
    for path in exported.paths:
        out.print(f"  {path}")


def verify(session: OneSession = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Hash everything in the store again and say what is not as it was stored. Leaves with 1 when something is damaged.

    Contents are shared by all sessions, so all of them are checked; SESSION limits the logs.

    Example: `compactor verify`
    """
    from context_compactor.session.proof import missing

    with open_store(store) as kept:
        problems = list(kept.verify(session))
        rows = kept.sessions() if session is None else [kept.session(session)]
        problems += [problem for row in rows for problem in missing(kept, row.id)]
        path = kept.path
    if as_json:
        print_json({"store": path, "sessions": [row.id for row in rows], "problems": problems})
    else:
        out = paper(beside_output=False)
        for problem in problems:
            out.print(problem, style="red")
        verdict = f"{len(problems):,} problems were found." if problems else "Everything is as it was stored."
        out.print(verdict, style="bold red" if problems else "bold green")
        out.print(f"{path}: {sum(row.messages for row in rows):,} messages in sessions: {len(rows):,}")
    if problems:
        raise typer.Exit(_DAMAGED)
