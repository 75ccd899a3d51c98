"""`compactor install` and `uninstall`, and the help of `hook` and `statusline`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from context_compactor.agents.coding_agents import AGENTS, CodingAgent, find_agent
from context_compactor.agents.hooks.entry import EVENTS
from context_compactor.agents.hooks.entry import main as answer
from context_compactor.agents.statusline import main
from context_compactor.cli.options import AsJson, Yes
from context_compactor.cli.output import StyledStream, confirm, print_json, printable, stderr, stdout, wrap_text
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from context_compactor.agents.install.files import FileChange
    from context_compactor.agents.install.plan import FilePlan, InstallRecords
    from context_compactor.agents.install.targets import InstallScope


HookEventArgument = Annotated[str, typer.Argument(metavar="EVENT", help=f"One of {', '.join(EVENTS)}.")]
HookAgentOption = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="claude-code or codex; by default detected from the input.")
]


def hook(event: HookEventArgument, agent: HookAgentOption = "") -> None:
    """Handle an event of a coding agent, which sends JSON on standard input and reads JSON on standard output.

    `compactor install` registers it. It always exits with 0, since any other code could stop the agent; failures are
    logged in `.compactor/logs/hooks.jsonl`, and `compactor doctor` explains them.

    Example: `compactor hook pre-compact < input.json`
    """
    sys.exit(answer([event, *(["--agent", agent] if agent else [])]))


def statusline() -> None:
    """Print one line for Claude Code: gauge, level, tokens, forecast, last compaction.

    Claude Code runs it after every answer, with JSON on standard input, and shows the line under the prompt. The
    percentage is that of the window; levels begin at their share of the budget, which is the window less the space for
    the answer. A narrow terminal (COLUMNS) loses the last compaction first, then the tokens; NO_COLOR is respected.

    `compactor install claude-code` registers it. By hand, in `.claude/settings.json`:
    `{"statusLine": {"type": "command", "command": "compactor statusline"}}`

    Example: `compactor statusline < input.json`
    """
    raise typer.Exit(main())


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

    Everything else in its settings stays byte for byte. The changes are shown first; `compactor uninstall` takes them
    back exactly. Your own settings name this command by its full path, those of a project only by name. A second
    install changes nothing; one from another installation brings the paths up to date.

    Example: `compactor install claude-code`
    """
    from context_compactor.agents.install.commands import BY_NAME, launcher_text, own_command
    from context_compactor.agents.install.plan import InstallRecords, next_steps, plan_install, undo_command, warnings
    from context_compactor.agents.install.targets import targets

    known, scope, own = find_agent(agent), _install_scope(user, project), own_command(sys.argv[0])
    command = BY_NAME if scope.is_project else own
    records = InstallRecords(scope.env)

    def plan() -> list[FilePlan]:
        return [plan_install(known, target, records) for target in targets(known, scope, command)]

    def launcher(_plans: Sequence[FilePlan]) -> FileChange:
        return _launcher(scope, launcher_text(own))

    done = _apply(plan, launcher, records, dry_run=dry_run, yes=yes, as_json=as_json, records_first=True)
    is_new = not dry_run and any(each.is_changed for each in done)
    found_warnings = list(warnings(known, scope, own))
    steps = list(next_steps(known, scope)) if is_new else []
    if as_json:
        document = {"agent": agent, "scope": scope.name, "command": shlex.join(command), "dry_run": dry_run}
        more = {"warnings": found_warnings, "next": steps, "undo": undo_command(known, scope)}
        files = [{**_described(each), "registered": list(each.becomes)} for each in done]
        print_json({**document, "files": files, **more})
        return
    out = stdout()
    if not any(each.is_changed for each in done):
        out.print(f"Everything is registered with {known.title} already; nothing was changed.", style="bold")
    if not dry_run:
        _print_registered(out, known, done, is_new)
    for warning in found_warnings:
        out.print(wrap_text(warning, "! "), style="yellow")
    for number, step in enumerate(steps, 1):
        out.print(wrap_text(step, f"{number}. "))
    if is_new:
        out.print(f"To undo this: {undo_command(known, scope)}", style="dim")


def uninstall(
    agent: AgentName,
    user: User = False,
    project: Project = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove everything that `compactor install` added to the settings of a coding agent.

    A file that was not changed since becomes what it was, byte for byte, and one that was created by the install is
    deleted. In a file that was changed since, only our entries are removed. The store of your sessions stays.

    Example: `compactor uninstall claude-code`
    """
    from context_compactor.agents.install.commands import BY_NAME
    from context_compactor.agents.install.plan import InstallRecords, plan_uninstall
    from context_compactor.agents.install.targets import targets

    known, scope = find_agent(agent), _install_scope(user, project)
    records = InstallRecords(scope.env)

    def plan() -> list[FilePlan]:
        return [plan_uninstall(target, records) for target in targets(known, scope, BY_NAME)]

    def launcher(plans: Sequence[FilePlan]) -> FileChange:
        gone = _launcher(scope, None)
        is_needed = records.files() - {each.record.path for each in plans}
        return structs.replace(gone, after=gone.before) if is_needed else gone

    done = _apply(plan, launcher, records, dry_run=dry_run, yes=yes, as_json=as_json, records_first=False)
    if as_json:
        files = [{**_described(each), "removed": list(each.was), "as_before": each.is_exact} for each in done]
        print_json({"agent": agent, "scope": scope.name, "dry_run": dry_run, "files": files})
        return
    out = stdout()
    changed = [each for each in done if each.is_changed]
    if not changed:
        out.print(f"The {scope.name} settings of {known.title} have no entry of compactor.", style="bold")
    elif not dry_run:
        out.print(f"Removed from the settings of {known.title}:", style="bold")
        for each in (each for each in changed if not each.is_own_file):
            out.print(f"  {each.path}: {_outcome(each)}")
        for place, what in _places([each for each in changed if each.is_own_file], lambda each: each.was):
            out.print(f"  {place}: {', '.join(what)}, deleted")
        out.print(
            wrap_text(f"Restart {known.title}. The sessions in .compactor/ stay; delete that folder to remove them.")
        )


def _install_scope(user: bool, project: bool) -> InstallScope:
    from context_compactor.agents.install.targets import InstallScope
    from context_compactor.agents.paths import project_root

    if user and project:
        raise BadSetting("--user and --project exclude each other. Try: one of them; --user is the default.")
    if os.name == "nt":
        raise BadSetting("coding agents on Windows are not supported. Try: run it in WSL.")
    return InstallScope(dict(os.environ), Path(project_root(str(Path.cwd()), {})), project)


def _launcher(scope: InstallScope, after: bytes | None) -> FileChange:
    """What becomes of the script by which settings without a path find this program."""
    from context_compactor.agents.install.commands import launcher
    from context_compactor.agents.install.files import FileChange, read_file

    path = launcher(scope.env)
    return FileChange(path, read_file(path), after, is_private=True, is_program=True)


def _apply(
    plan: Callable[[], list[FilePlan]],
    launcher: Callable[[Sequence[FilePlan]], FileChange],
    records: InstallRecords,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    records_first: bool,
) -> list[FilePlan]:
    """Show the changes, ask, and write them: all of them or none, and only one install at a time."""
    from context_compactor.agents.install.files import write_all
    from context_compactor.files import make_private_folder, one_writer

    if not dry_run:
        make_private_folder(records.folder)
    with nullcontext() if dry_run else one_writer(records.folder):
        plans = plan()
        if not as_json or not (yes or dry_run):
            _print_diff(stderr() if as_json else stdout(), plans)
        if dry_run:
            return plans
        if any(each.is_changed for each in plans):
            confirm("Write this?", yes=yes, default=True, instead="--yes, or --dry-run to look")
        order = [(each.record, each.change) if records_first else (each.change, each.record) for each in plans]
        script = launcher(plans)
        changes = [*(change for pair in order for change in pair), script]
        folders = [*(folder for each in plans for folder in each.folders), script.path.parent]
        write_all([change for change in changes if change.before != change.after], folders)
        return plans


def _print_diff(out: StyledStream, plans: Sequence[FilePlan]) -> None:
    from context_compactor.agents.install.plan import diff_lines

    for each in plans:
        for line in diff_lines(each):
            style = next((style for mark, style in _STYLES.items() if line.startswith(mark)), None)
            out.print(printable(line), style=style)
        if each.is_changed and not each.is_own_file:
            out.print()


def _print_registered(out: StyledStream, agent: CodingAgent, plans: Sequence[FilePlan], is_new: bool) -> None:
    if is_new:
        out.print(f"Registered with {agent.title}:", style="bold")
    for place, registered in _places(plans, lambda each: each.becomes):
        out.print(f"  {place}")
        for what in registered:
            out.print(wrap_text(what, "    "), style="dim")


def _places(
    plans: Sequence[FilePlan], registered: Callable[[FilePlan], tuple[str, ...]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each settings file with what is registered there; files that are wholly ours by the folder they share."""
    yield from ((str(each.path), registered(each)) for each in plans if registered(each) and not each.is_own_file)
    own = [each for each in plans if each.is_own_file and registered(each)]
    for what in dict.fromkeys(registered(each) for each in own):
        paths = [str(each.path) for each in own if registered(each) == what]
        yield (paths[0] if len(paths) == 1 else os.path.commonpath(paths)), what


def _outcome(each: FilePlan) -> str:
    if each.change.after is None:
        return "the file was deleted"
    return "as it was before" if each.is_exact else "the rest stays as it is now"


def _described(each: FilePlan) -> dict[str, Any]:
    from context_compactor.agents.install.plan import diff_lines

    return {"path": str(each.path), "status": each.status, "diff": "".join(f"{line}\n" for line in diff_lines(each))}
