"""`compactor delete`: sessions, for good."""

from __future__ import annotations

from typing import Annotated

import typer

from context_compactor.cli.opening import open_store, store_url
from context_compactor.cli.options import AsJson, StoreUrl, Yes
from context_compactor.cli.output import ask, paper, print_json
from context_compactor.figures import plural
from context_compactor.messages.printing import one_line

Sessions = Annotated[list[str], typer.Argument(metavar="SESSION…", help="Which sessions of the store.")]


def delete(sessions: Sessions, yes: Yes = False, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Delete sessions for good: messages, archive, facts, compactions, and the files made from them in the project.

    The sessions of their sub-agents go with them. Contents that other sessions have too stay for them. Nothing brings
    a deleted session back; on a terminal it is asked first.

    Example: `compactor delete run-42`
    """
    from context_compactor.agents.deleting import delete_all, with_subagents
    from context_compactor.session.deleting import clear_deleted

    with open_store(store) as kept:
        clear_deleted(kept)  # what a deletion that was interrupted has left
        wanted = list(dict.fromkeys(name for session in sessions for name in with_subagents(kept, session)))
        messages = {name: kept.session(name).messages for name in wanted}
        out = paper(beside_output=as_json or not yes)
        if not yes:
            for name, count in messages.items():
                out.print(f"  {one_line(name, 80)}: {plural(count, 'message')}, with everything archived of it")
        named = f"the session {one_line(wanted[0], 80)!r}" if len(wanted) == 1 else f"these {len(wanted):,} sessions"
        ask(f"Delete {named} from {kept.path} for good?", yes=yes, default=False, instead="--yes")
        delete_all(kept, store_url(store), wanted)
        path = kept.path
    if as_json:
        gone = [{"id": name, "messages": count} for name, count in messages.items()]
        print_json({"store": path, "deleted": gone})
        return
    for name, count in messages.items():
        paper(beside_output=False).print(f"Deleted {one_line(name, 80)}: {plural(count, 'message')}", style="green")
