"""`compactor export`, `verify`, `migrate` and `copy`: what concerns a store as a whole."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import asdict

from context_compactor.cli.options import AsJson, SessionName, StoreUrl, open_session, open_store, store_url
from context_compactor.cli.output import FAILED, print_json, stdout
from context_compactor.cli.report import ProgressBar
from context_compactor.errors import BadSetting

Folder = Annotated[
    str | None,
    typer.Option("--dir", metavar="D", help="Where the session's folder goes; by default the setting `archive_dir`."),
]
OneSession = Annotated[
    str | None, typer.Argument(metavar="[SESSION]", help="Only this one's log; by default those of all sessions.")
]


def export(session: SessionName = None, folder: Folder = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Write a session's originals into a folder in which they can be read without the store.

    It holds `tool-calls.json`, `file-summaries.md`, `subagent-outputs.md` and `manifest.json`. Existing
    files are added to; nothing is removed.

    Example: `compactor export run-42 --dir archive`
    """
    if folder is not None and not folder.strip():
        raise BadSetting("--dir: the folder name is empty. Try: --dir archive.")
    with open_session(session, store) as opened:
        exported = opened.export(Path(folder) if folder else None)
        name = opened.id
    if as_json:
        files = [str(path) for path in exported.paths]
        print_json({"session_id": name, "folder": str(exported.folder), "files": files, "count": exported.count})
        return
    out = stdout()
    out.print(f"{exported.count:,} originals are exported.", style="bold green")
    for path in exported.paths:
        out.print(f"  {path}")


def verify(session: OneSession = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Check every hash in the store and list what is damaged. Exits with 1 when something is.

    Contents are shared by all sessions, so all of them are checked; SESSION limits the logs.

    Example: `compactor verify`
    """
    from context_compactor.sessions.log import missing_contents

    with open_store(store) as opened:
        problems = list(opened.verify(session))
        rows = opened.sessions() if session is None else [opened.session(session)]
        problems += [problem for row in rows for problem in missing_contents(opened, row.id)]
        path = opened.path
    if as_json:
        print_json({"store": path, "sessions": [row.id for row in rows], "problems": problems})
    else:
        out = stdout()
        for problem in problems:
            out.print(problem, style="red")
        verdict = f"{len(problems):,} problems were found." if problems else "Everything is as it was stored."
        out.print(verdict, style="bold red" if problems else "bold green")
        out.print(f"{path}: {sum(row.messages for row in rows):,} messages in sessions: {len(rows):,}")
    if problems:
        raise typer.Exit(FAILED)


_EXAMPLE = "such as sqlite:///.compactor/compactor.db or postgresql://user@host/database"
Source = Annotated[str, typer.Option("--from", metavar="URL", help=f"The store to copy, {_EXAMPLE}.")]
Target = Annotated[str, typer.Option("--to", metavar="URL", help="The store that gets the sessions; made when needed.")]


def migrate(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Create a store, or update its tables to the newest version.

    Opening a store does the same. Use this command to do it as the owner of the database, for users who may not. It can
    run several times at once.

    Example: `compactor migrate --store postgresql://owner@host/database`
    """
    from context_compactor.store.connect import connect

    with closing(connect(store_url(store))) as opened:
        path, schema = opened.path, opened.schema
    if as_json:
        print_json({"store": path, "before": schema.before, "now": schema.now})
        return
    change = "up to date" if schema.before == schema.now else f"upgraded from version {schema.before}"
    stdout().print(f"{path}: version {schema.now}, {change if schema.before else 'created'}.")


def copy(source: Source, target: Target, as_json: AsJson = False) -> None:
    """Copy all sessions of a store into another one, and check every hash.

    Each session is copied whole or not at all, with its waiting jobs. Webhooks are copied too, events are not. Run an
    interrupted copy again: identical sessions are skipped. If a session in the target differs, nothing is copied.

    Example: `compactor copy --from sqlite:///.compactor/compactor.db --to postgresql://user@host/database`
    """
    from context_compactor.archive.storage import terms_of
    from context_compactor.store.connect import connect
    from context_compactor.store.copy import (
        copy_proxied_requests,
        copy_sessions,
        copy_webhooks,
        count_messages,
        left_behind,
    )

    with closing(connect(source, create=False)) as old, closing(connect(target)) as new:
        if old.path == new.path:
            raise BadSetting(f"--from and --to are the same store, {old.path}. Try: another --to.")
        bar, done = ProgressBar(), []
        bar.start("copying", count_messages(old))
        try:
            for copied in copy_sessions(old, new, terms_of):
                done.append(copied)
                bar.step(copied.messages)
        finally:
            bar.clear()
        webhooks, proxied, left = copy_webhooks(old, new), copy_proxied_requests(old, new), left_behind(old)
    fresh = [copied for copied in done if not copied.was_there]
    if as_json:
        there = [copied.session_id for copied in done if copied.was_there]
        names = [copied.session_id for copied in fresh]
        places = {"from": old.path, "to": new.path}
        counts = {"webhooks": webhooks, "proxied_requests": proxied}
        print_json({**places, "copied": names, "were_there": there, **counts, "left": asdict(left)})
        return
    out = stdout()
    out.print(f"Sessions copied to {new.path}: {len(fresh):,}, and every hash is right.", style="bold green")
    out.print(f"{sum(copied.messages for copied in fresh):,} messages; there already: {len(done) - len(fresh):,}")
    if webhooks:
        out.print(f"Webhooks copied, with their secrets: {webhooks:,}")
    if proxied:
        out.print(f"Requests of a proxy copied: {proxied:,}")
    counts = {"events": left.events, "deliveries to webhooks": left.deliveries, "finished jobs": left.jobs}
    if not_copied := ", ".join(f"{name}: {count:,}" for name, count in counts.items() if count):
        out.print(f"Not copied: {not_copied}.", style="yellow")
