"""`compactor install` and `compactor uninstall`: into the settings of a coding agent, and out of them again."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from context_compactor.agents.known import AGENTS, Agent, find_agent
from context_compactor.cli.options import AsJson, Yes
from context_compactor.cli.output import Paper, ask, paper, print_json, printable, wrapped
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from context_compactor.install.changes import Change
    from context_compactor.install.ledger import Ledger
    from context_compactor.install.planning import FilePlan
    from context_compactor.install.targets import Place

AgentName = Annotated[str, typer.Argument(metavar="|".join(AGENTS), help="Which coding agent.")]
User = Annotated[bool, typer.Option("--user", help="In your own settings, for all projects. The default.")]
Project = Annotated[bool, typer.Option("--project", help="In the project's settings, for everybody who works in it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]

_STYLES = {"+++": "bold", "---": "bold", "@@": "cyan", "+": "green", "-": "red"}


def install(
    agent: AgentName,
    user: User = False,
    project: Project = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Register the hooks, the MCP server and the status line with a coding agent.

    What is in its settings stays as it is, byte by byte. The changes are shown first; `compactor uninstall` takes them
    back exactly. Your own settings name this command by its whole path, those of a project by its name alone. A second
    install changes nothing; one from another place brings the paths up to date.

    Example: `compactor install claude-code`
    """
    from context_compactor.install.ledger import Ledger
    from context_compactor.install.notes import next_steps, undo, warnings
    from context_compactor.install.planning import plan_install
    from context_compactor.install.program import BY_NAME, launcher_text, own_command
    from context_compactor.install.targets import targets

    known, place, own = find_agent(agent), _place(user, project), own_command(sys.argv[0])
    command = BY_NAME if place.is_project else own
    ledger = Ledger(place.env)

    def plan() -> list[FilePlan]:
        return plan_install(known, targets(known, place, command), ledger)

    def launcher(_plans: Sequence[FilePlan]) -> Change:
        return _launcher(place, launcher_text(own))

    done = _carry_out(plan, launcher, ledger, dry_run=dry_run, yes=yes, as_json=as_json, ledger_first=True)
    is_new = not dry_run and any(each.is_changed for each in done)
    told = list(warnings(known, place, own))
    steps = list(next_steps(known, place)) if is_new else []
    if as_json:
        document = {"agent": agent, "scope": _scope(place), "command": shlex.join(command), "dry_run": dry_run}
        files = [{**_described(each), "registered": list(each.becomes)} for each in done]
        print_json({**document, "files": files, "warnings": told, "next": steps, "undo": undo(known, place)})
        return
    out = paper(beside_output=False)
    if not any(each.is_changed for each in done):
        out.print(f"Everything is registered with {known.title} already; nothing was changed.", style="bold")
    if not dry_run:
        _print_registered(out, known, done, is_new)
    for warning in told:
        out.print(wrapped(warning, "! "), style="yellow")
    for number, step in enumerate(steps, 1):
        out.print(wrapped(step, f"{number}. "))
    if is_new:
        out.print(f"To take it back: {undo(known, place)}", style="dim")


def uninstall(
    agent: AgentName,
    user: User = False,
    project: Project = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take everything of ours out of the settings of a coding agent.

    A file that nobody has changed since becomes what it was, byte by byte, and one that was made for us is gone. In a
    file that was changed since, only our entries go. The store of your sessions stays.

    Example: `compactor uninstall claude-code`
    """
    from context_compactor.install.ledger import Ledger
    from context_compactor.install.notes import left_over
    from context_compactor.install.planning import plan_uninstall
    from context_compactor.install.program import BY_NAME
    from context_compactor.install.targets import targets

    known, place = find_agent(agent), _place(user, project)
    ledger = Ledger(place.env)

    def plan() -> list[FilePlan]:
        return plan_uninstall(targets(known, place, BY_NAME), ledger)

    def launcher(plans: Sequence[FilePlan]) -> Change:
        gone = _launcher(place, None)
        is_needed = ledger.records() - {each.ledger.path for each in plans}
        return structs.replace(gone, after=gone.before) if is_needed else gone

    done = _carry_out(plan, launcher, ledger, dry_run=dry_run, yes=yes, as_json=as_json, ledger_first=False)
    if as_json:
        files = [{**_described(each), "removed": list(each.was), "as_before": each.is_exact} for each in done]
        print_json({"agent": agent, "scope": _scope(place), "dry_run": dry_run, "files": files})
        return
    out = paper(beside_output=False)
    changed = [each for each in done if each.is_changed]
    if not changed:
        out.print(f"Nothing of ours is in the {_scope(place)} settings of {known.title}.", style="bold")
    elif not dry_run:
        out.print(f"Taken out of the settings of {known.title}:", style="bold")
        for each in changed:
            out.print(f"  {each.path}: {_outcome(each)}")
        for step in left_over(known):
            out.print(wrapped(step))


def _place(user: bool, project: bool) -> Place:
    from context_compactor.agents.places import project_root
    from context_compactor.install.targets import Place

    if user and project:
        raise BadSetting("--user and --project exclude each other. Try: one of them; --user is the default.")
    if os.name == "nt":
        raise BadSetting("agents on Windows are not supported yet. Try: in WSL.")
    return Place(dict(os.environ), Path(project_root(str(Path.cwd()), {})), project)


def _launcher(place: Place, after: bytes | None) -> Change:
    """What becomes of the script by which settings without a path find this program."""
    from context_compactor.install.changes import Change, read_file
    from context_compactor.install.program import launcher

    path = launcher(place.env)
    return Change(path, read_file(path), after, is_private=True, is_program=True)


def _carry_out(
    plan: Callable[[], list[FilePlan]],
    launcher: Callable[[Sequence[FilePlan]], Change],
    ledger: Ledger,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    ledger_first: bool,
) -> list[FilePlan]:
    """Show the changes, ask, and write them: all of them or none, and only one install at a time."""
    from context_compactor.files import make_private_folder, one_writer
    from context_compactor.install.changes import write_all

    if not dry_run:
        make_private_folder(ledger.folder)
    with nullcontext() if dry_run else one_writer(ledger.folder):
        plans = plan()
        if not as_json or not (yes or dry_run):
            _print_diff(paper(beside_output=as_json), plans)
        if dry_run:
            return plans
        if any(each.is_changed for each in plans):
            ask("Write this?", yes=yes, default=True, instead="--yes, or --dry-run to look")
        order = [(each.ledger, each.change) if ledger_first else (each.change, each.ledger) for each in plans]
        script = launcher(plans)
        changes = [*(change for pair in order for change in pair), script]
        folders = [*(folder for each in plans for folder in each.folders), script.path.parent]
        write_all([change for change in changes if change.before != change.after], folders)
        return plans


def _print_diff(out: Paper, plans: Sequence[FilePlan]) -> None:
    from context_compactor.install.differences import diff_lines

    for each in plans:
        for line in diff_lines(each):
            style = next((style for mark, style in _STYLES.items() if line.startswith(mark)), None)
            out.print(printable(line), style=style)
        if each.is_changed:
            out.print()


def _print_registered(out: Paper, agent: Agent, plans: Sequence[FilePlan], is_new: bool) -> None:
    if is_new:
        out.print(f"Registered with {agent.title}:", style="bold")
    for each in plans:
        if each.becomes:
            out.print(f"  {each.path}")
        for what in each.becomes:
            out.print(wrapped(what, "    "), style="dim")


def _outcome(each: FilePlan) -> str:
    if each.change.after is None:
        return "the file is gone"
    return "as it was before" if each.is_exact else "the rest stays as it is now"


def _scope(place: Place) -> str:
    return "project" if place.is_project else "user"


def _described(each: FilePlan) -> dict[str, Any]:
    from context_compactor.install.differences import diff_lines

    return {"path": str(each.path), "status": each.status, "diff": "".join(f"{line}\n" for line in diff_lines(each))}
