"""`compactor lessons`: what was learned in this project, whose it is, and taking it out again."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from context_compactor.cli.opening import store_url
from context_compactor.cli.options import AsJson, StoreUrl
from context_compactor.cli.output import paper, print_json, wrapped
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from context_compactor.facts.owners import OwnedLesson

Action = Annotated[str, typer.Argument(metavar="[list|remove|claim]", help="What to do; without, list.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which lessons, as the list calls them.")]
Owner = Annotated[
    str | None, typer.Option("--owner", metavar="NAME", help="Those of this owner; for claim, who gets them.")
]
Unowned = Annotated[bool, typer.Option("--unowned", help="Those that have no owner.")]

_NO_OWNER = "no owner: nobody is told these. Try: `compactor lessons claim`, or `compactor lessons remove --unowned`"
_ID = 13


def lessons(
    action: Action = "list",
    ids: Ids = None,
    owner: Owner = None,
    unowned: Unowned = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what sessions of this project have learned, with its owner and the sessions it comes from; or remove it.

    `remove` takes ids, or all of an owner with --owner, or all without one with --unowned. `claim` gives lessons that
    have no owner to you or to --owner, all of them or those of the ids.

    Example: `compactor lessons`, then `compactor lessons remove 3f0c2a9d1b`
    """
    if owner is not None and unowned:
        raise BadSetting("lessons: --owner and --unowned cannot both be meant. Try: one of them.")
    folder = _folder(store)
    if action == "list":
        _list(folder, ids or [], owner, unowned, as_json)
    elif action == "remove":
        _remove(folder, ids or [], owner, unowned, as_json)
    elif action == "claim":
        _claim(folder, ids or [], owner or _local_owner(store), as_json)
    else:
        raise BadSetting(f"lessons: {action[:40]!r} is not known. Try: list, remove or claim.")


def _folder(store: str | None) -> Path:
    from context_compactor.session.project import project_of

    project = project_of(store_url(store))
    if project is None:
        raise BadSetting("lessons: this store is not in a folder of this machine, so nothing is learned there")
    return project.learned


def _local_owner(store: str | None) -> str:
    from context_compactor.session.project import local_owner

    owner = local_owner(store_url(store), Path.cwd())
    if not owner:
        raise BadSetting("lessons claim: the store is not that of this folder. Try: --owner NAME, or in its folder.")
    return owner


def _list(folder: Path, ids: Sequence[str], owner: str | None, unowned: bool, as_json: bool) -> None:
    from context_compactor.facts.owners import list_lessons

    if ids:
        raise BadSetting(f"lessons list: {ids[0][:40]!r} is not expected. Try: `compactor lessons remove ID`.")
    found = [each for each in list_lessons(folder) if (owner is None or each.owner == owner)]
    found = [each for each in found if not unowned or each.owner is None]
    if as_json:
        print_json({"folder": str(folder), "lessons": msgspec.to_builtins(found)})
        return
    out = paper(beside_output=False)
    if not found:
        out.print(f"Nothing{f' of {owner!r}' if owner else ''} was learned in {folder}.")
    for (whose, file), group in groupby(found, key=lambda each: (each.owner, each.file)):
        out.print(wrapped(f"{whose or _NO_OWNER} ({file})", ""), style="bold")
        for each in group:
            out.print(wrapped(each.text, f"  {each.id:<{_ID - 2}}"))
            out.print(wrapped(_origin(each), " " * _ID), style="dim")


def _origin(lesson: OwnedLesson) -> str:
    from context_compactor.facts.lesson import WHO

    unread = "" if lesson.is_read or lesson.owner is None else " · struck out or among the older: not told"
    if lesson.by is None:
        return f"noted by hand{unread}"
    times = f"{lesson.sessions:,} session{'s' * (lesson.sessions > 1)}"
    return f"by {WHO[lesson.by]} · {lesson.last} · {times}: {', '.join(lesson.sources)}{unread}"


def _remove(folder: Path, ids: Sequence[str], owner: str | None, unowned: bool, as_json: bool) -> None:
    from context_compactor.facts.owners import remove_lessons, remove_owner

    if bool(ids) + (owner is not None) + unowned != 1:
        raise BadSetting("lessons remove: which? Try: `compactor lessons remove ID`, --owner NAME or --unowned.")
    gone = remove_lessons(folder, ids) if ids else remove_owner(folder, owner)
    _tell("removed", gone, {}, as_json)


def _claim(folder: Path, ids: Sequence[str], owner: str, as_json: bool) -> None:
    from context_compactor.facts.owners import claim_lessons
    from context_compactor.session.values import OS_USER, check_owner

    whose = owner if owner.startswith(OS_USER) else check_owner(owner)
    _tell("claimed", claim_lessons(folder, whose, ids), {"owner": whose}, as_json)


def _tell(what: str, done: Sequence[OwnedLesson], more: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json({**more, what: msgspec.to_builtins(done)})
        return
    out = paper(beside_output=False)
    for each in done:
        out.print(wrapped(each.text, f"  {each.id:<{_ID - 2}}"))
    whose = f" for {more['owner']!r}" if more else ""
    out.print(f"{len(done):,} lesson{'s' * (len(done) != 1)} {what}{whose}", style="bold")
