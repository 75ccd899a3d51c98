"""`compactor facts` and `lessons`: what must outlive the text, and what outlives a session."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from context_compactor.cli.options import AsJson, SessionId, StoreUrl, open_session, store_url
from context_compactor.cli.output import LineOutput, print_json, stdout, wrap_text
from context_compactor.cli.sessions import moment
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from context_compactor.facts.fact import Fact
    from context_compactor.facts.lesson_folders import OwnedLesson


Kind = Annotated[
    str | None,
    typer.Option("--kind", metavar="K", help="Only these: decision, failure, error (with failures), constraint, …"),
]


def facts(kind: Kind = None, session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the facts of a session: decisions, failures, constraints, file states and so on, with their source.

    Example: `compactor facts --kind failure`
    """
    with open_session(session, store) as opened:
        name, found = opened.id, opened.facts(kind)
    if as_json:
        print_json({"session_id": name, "facts": msgspec.to_builtins(found)})
        return
    out = stdout()
    if not found:
        out.print(f"Session {name!r} has no facts{f' of the kind {kind}' if kind else ' yet'}.")
        return
    by_kind = sorted(found, key=lambda fact: fact.kind)
    for each, group in groupby(by_kind, key=lambda fact: fact.kind):
        _print_kind(each, list(group), out)


def _print_kind(kind: str, group: Sequence[Fact], out: LineOutput) -> None:
    out.print(f"{kind} ({len(group):,})", style="bold")
    for fact in group:
        source = fact.ref or f"turn_{fact.turn:03d}"
        by = f", from the summary of {fact.summarized_by}" if fact.summarized_by else ""
        status = f"[{fact.status}] " if fact.status else ""
        times = f" ({fact.count:,} times)" if fact.count > 1 else ""
        seen = f" ({moment(fact.last_seen)} UTC)" if fact.last_seen else ""
        out.print(wrap_text(f"{status}{fact.content}{times}{by}{seen}", f"  {source:<10} "))
        if fact.detail:
            out.print(wrap_text(fact.detail, " " * 13), style="dim")


Action = Annotated[str, typer.Argument(metavar="[list|remove|claim]", help="What to do; by default list.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which lessons, as the list calls them.")]
Owner = Annotated[
    str | None, typer.Option("--owner", metavar="NAME", help="Those of this owner; for claim, who gets them.")
]
Unowned = Annotated[bool, typer.Option("--unowned", help="Those that have no owner.")]

_NO_OWNER = (
    "no owner, so no session reads these. Try: `compactor lessons claim` or `compactor lessons remove --unowned`"
)
_ID = 13


def lessons(
    action: Action = "list",
    ids: Ids = None,
    owner: Owner = None,
    unowned: Unowned = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the lessons of this project, each with its owner and the sessions it comes from; or remove them.

    `remove` takes ids, or all of an owner with --owner, or all without one with --unowned. `claim` gives lessons that
    have no owner to you or to --owner, all of them or those of the ids.

    Example: `compactor lessons`, then `compactor lessons remove 3f0c2a9d1b`
    """
    if owner is not None and unowned:
        raise BadSetting("lessons: --owner and --unowned exclude each other. Try: one of them.")
    folder = _folder(store)
    if action == "list":
        _list(folder, ids or [], owner, unowned, as_json)
    elif action == "remove":
        _remove(folder, ids or [], owner, unowned, as_json)
    elif action == "claim":
        _claim(folder, ids or [], owner or _local_owner(store), as_json)
    else:
        raise BadSetting(f"lessons: {action[:40]!r} is not an action. Try: list, remove or claim.")


def _folder(store: str | None) -> Path:
    from context_compactor.sessions.project import project_of

    project = project_of(store_url(store))
    if project is None:
        raise BadSetting(
            "lessons: lessons need a store in a file on this machine. Try: --store sqlite:///.compactor/compactor.db"
        )
    return project.learned


def _local_owner(store: str | None) -> str:
    from context_compactor.sessions.project import local_owner

    owner = local_owner(store_url(store), Path.cwd())
    if not owner:
        raise BadSetting(
            "lessons claim: the store belongs to another folder. Try: --owner NAME, or run it in that folder."
        )
    return owner


def _list(folder: Path, ids: Sequence[str], owner: str | None, unowned: bool, as_json: bool) -> None:
    from context_compactor.facts.lesson_folders import list_lessons

    if ids:
        raise BadSetting(f"lessons list: {ids[0][:40]!r} list takes no id. Try: `compactor lessons remove ID`.")
    found = [each for each in list_lessons(folder) if (owner is None or each.owner == owner)]
    found = [each for each in found if not unowned or each.owner is None]
    if as_json:
        print_json({"folder": str(folder), "lessons": msgspec.to_builtins(found)})
        return
    out = stdout()
    if not found:
        out.print(f"Nothing{f' of {owner!r}' if owner else ''} was learned in {folder}.")
    for (whose, file), group in groupby(found, key=lambda each: (each.owner, each.file)):
        out.print(wrap_text(f"{whose or _NO_OWNER} ({file})", ""), style="bold")
        for each in group:
            out.print(wrap_text(each.text, f"  {each.id:<{_ID - 2}}"))
            out.print(wrap_text(_origin(each), " " * _ID), style="dim")


def _origin(lesson: OwnedLesson) -> str:
    from context_compactor.facts.lessons import AUTHOR_NAMES

    unread = "" if lesson.is_read or lesson.owner is None else " · struck out or among the older ones: not read"
    if lesson.by is None:
        return f"noted by hand{unread}"
    times = f"{lesson.sessions:,} session{'s' * (lesson.sessions > 1)}"
    return f"by {AUTHOR_NAMES[lesson.by]} · {lesson.last} · {times}: {', '.join(lesson.sources)}{unread}"


def _remove(folder: Path, ids: Sequence[str], owner: str | None, unowned: bool, as_json: bool) -> None:
    from context_compactor.facts.lesson_folders import remove_lessons, remove_owner

    if bool(ids) + (owner is not None) + unowned != 1:
        raise BadSetting(
            "lessons remove: no lesson is named. Try: `compactor lessons remove ID`, --owner NAME or --unowned."
        )
    gone = remove_lessons(folder, ids) if ids else remove_owner(folder, owner)
    _print_changed("removed", gone, {}, as_json)


def _claim(folder: Path, ids: Sequence[str], owner: str, as_json: bool) -> None:
    from context_compactor.facts.lesson_folders import claim_lessons
    from context_compactor.sessions.state import OS_USER, check_owner

    whose = owner if owner.startswith(OS_USER) else check_owner(owner)
    _print_changed("claimed", claim_lessons(folder, whose, ids), {"owner": whose}, as_json)


def _print_changed(what: str, done: Sequence[OwnedLesson], more: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json({**more, what: msgspec.to_builtins(done)})
        return
    out = stdout()
    for each in done:
        out.print(wrap_text(each.text, f"  {each.id:<{_ID - 2}}"))
    whose = f" for {more['owner']!r}" if more else ""
    out.print(f"{len(done):,} lesson{'s' * (len(done) != 1)} {what}{whose}", style="bold")
