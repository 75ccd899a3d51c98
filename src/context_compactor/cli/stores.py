"""`compactor migrate` and `copy`: a store brought up to date, and its sessions taken to another one."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from context_compactor.cli.eval_bar import Bar
from context_compactor.cli.opening import store_url
from context_compactor.cli.options import AsJson, StoreUrl
from context_compactor.cli.output import paper, print_json
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from context_compactor.store.copying_desk import Left

_EXAMPLE = "such as sqlite:///.compactor/compactor.db or postgresql://user@host/database"
Source = Annotated[str, typer.Option("--from", metavar="URL", help=f"The store to copy, {_EXAMPLE}.")]
Target = Annotated[str, typer.Option("--to", metavar="URL", help="The store that gets the sessions; made when needed.")]


def migrate(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Make a store, or bring its tables to the newest version.

    Opening a store does the same; this command does nothing else, so that an owner of the database can do it for users
    who may not. Several at once do it once.

    Example: `compactor migrate --store postgresql://owner@host/database`
    """
    from context_compactor.store.connect import connect

    with closing(connect(store_url(store))) as kept:
        path, schema = kept.path, kept.schema
    if as_json:
        print_json({"store": path, "before": schema.before, "now": schema.now})
        return
    told = "up to date" if schema.before == schema.now else f"brought from version {schema.before}"
    paper(beside_output=False).print(f"{path}: version {schema.now}, {told if schema.before else 'made now'}.")


def copy(source: Source, target: Target, as_json: AsJson = False) -> None:
    """Copy all sessions of a store into another one, with every hash checked on the way.

    Each session arrives whole or not at all, with the jobs that wait for it. Webhooks are copied too, events are not.
    A copy that was interrupted is begun again: sessions that are there and the same are passed over. When one is there
    that differs, nothing is copied.

    Example: `compactor copy --from sqlite:///.compactor/compactor.db --to postgresql://user@host/database`
    """
    from context_compactor.archive.shelve import terms_of
    from context_compactor.store.connect import connect
    from context_compactor.store.copying import copy_sessions, count_messages
    from context_compactor.store.copying_desk import copy_webhooks, left_behind

    with closing(connect(source, create=False)) as old, closing(connect(target)) as new:
        if old.path == new.path:
            raise BadSetting(f"--from and --to are the same store, {old.path}. Try: another one.")
        bar, done = Bar(), []
        bar.start("copying", count_messages(old))
        try:
            for copied in copy_sessions(old, new, terms_of):
                done.append(copied)
                bar.step(copied.messages)
        finally:
            bar.clear()
        webhooks, left = copy_webhooks(old, new), left_behind(old)
    fresh = [copied for copied in done if not copied.was_there]
    if as_json:
        kept = [copied.session_id for copied in done if copied.was_there]
        names = [copied.session_id for copied in fresh]
        places = {"from": old.path, "to": new.path}
        print_json({**places, "copied": names, "were_there": kept, "webhooks": webhooks, "left": asdict(left)})
        return
    out = paper(beside_output=False)
    out.print(f"Sessions copied to {new.path}: {len(fresh):,}, and every hash is right.", style="bold green")
    out.print(f"{sum(copied.messages for copied in fresh):,} messages; there already: {len(done) - len(fresh):,}")
    if webhooks:
        out.print(f"Webhooks copied, with their secrets: {webhooks:,}")
    if stays := _stays(left):
        out.print(stays, style="yellow")


def _stays(left: Left) -> str:
    """What stays behind, in words; nothing when nothing does."""
    counts = {"events": left.events, "deliveries to webhooks": left.deliveries, "jobs that are over": left.jobs}
    told = ", ".join(f"{name}: {count:,}" for name, count in counts.items() if count)
    return f"Stays behind: {told}." if told else ""
