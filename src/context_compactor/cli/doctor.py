"""`compactor doctor` and `config`: does it work, and which settings hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from context_compactor.agents.coding_agents import AGENTS, find_agent
from context_compactor.cli.options import AsJson
from context_compactor.cli.output import FAILED, StyledStream, columns, print_json, stdout, write_text
from context_compactor.errors import BadSetting
from context_compactor.settings import (
    LoadedSettings,
    Settings,
    load_settings,
    mask_password,
    setting_docs,
    setting_text,
)
from context_compactor.text import printable

if TYPE_CHECKING:
    from context_compactor.agents.install.commands import Command
    from context_compactor.agents.install.doctor_findings import Finding


Prompt = Annotated[bool, typer.Option("--prompt", help="Print only the prompt that asks for a summary.")]


def config(prompt: Prompt = False, as_json: AsJson = False) -> None:
    """Print every setting with its value and where it came from.

    `COMPACTOR_*` environment variables override `.compactor/config.toml`, which overrides the defaults.

    Example: `compactor config`
    """
    loaded = load_settings()
    if prompt:
        from context_compactor.summarize.prompt import effective_prompt

        write_text(effective_prompt(loaded.settings))
    elif as_json:
        print_json(_as_json(loaded))
    else:
        _print_table(loaded)


def _as_json(loaded: LoadedSettings) -> dict[str, Any]:
    values = msgspec.to_builtins(loaded.settings)
    values["store"] = mask_password(values["store"])
    docs = setting_docs()
    rows = {
        name: {"value": values[name], "origin": loaded.origins[name], "description": docs.get(name, "")}
        for name in values
    }
    return {"settings": rows, "ignored": list(loaded.ignored)}


def _print_table(loaded: LoadedSettings) -> None:
    out = stdout()
    values = {name: setting_text(getattr(loaded.settings, name)) for name in Settings.__struct_fields__}
    names, widest = max(map(len, values)), max(map(len, values.values()))
    for name, value in values.items():
        origin = loaded.origins[name]
        out.print(f"{name:<{names}}  {value:<{widest}}  {origin}", style="dim" if origin == "default" else "bold")
    for variable in loaded.ignored:
        out.print(f"{variable} names no setting and is ignored", style="yellow")


AgentName = Annotated[
    str | None, typer.Argument(metavar=f"[{'|'.join(AGENTS)}]", help="Only this coding agent; by default all of them.")
]
OneSession = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Only this session of an agent; by default all known ones."),
]
ProjectFolder = Annotated[
    Path | None, typer.Option("--project", metavar="DIR", help="The project; by default the one around this folder.")
]
_STYLES = {"ok": None, "look": "yellow", "wrong": "red"}


def doctor(
    agent: AgentName = None,
    session: OneSession = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check whether hooks, MCP server, status line and store work, and say what to do where they do not.

    Each finding is `ok`, `look` (worth a look) or `wrong`. The checks cover which hooks are registered and which run,
    whether their texts reach the model, which other programs change the context, and the store. Nothing is changed.
    Exits with 1 when something is wrong.

    Example: `compactor doctor claude-code`
    """
    from context_compactor.agents.install.doctor import examine

    known = None if agent is None else find_agent(agent)
    root, command = _root(project), _own_command()
    os.chdir(root)  # settings and the store are those of the project
    found = examine(root, dict(os.environ), known, session or "", command)
    is_well = all(finding.state != "wrong" for finding in found)
    if as_json:
        print_json({"findings": msgspec.to_builtins(found), "ok": is_well})
    else:
        _print(stdout(), found)
    if not is_well:
        raise typer.Exit(FAILED)


def _root(project: Path | None) -> Path:
    from context_compactor.agents.paths import project_root

    if project is None:
        return Path(project_root("", os.environ))
    if not project.is_dir():
        raise BadSetting(f"--project: the folder {project} does not exist. Try: the folder in which the agent works.")
    return Path(project_root(str(project), {}))


def _own_command() -> Command:
    from context_compactor.agents.install.commands import own_command

    try:
        return own_command(sys.argv[0])
    except BadSetting:
        return ()


def _print(out: StyledStream, found: list[Finding]) -> None:
    width = max(len(finding.area) for finding in found)
    for finding in found:
        first = f"{finding.state:<5}  {finding.area:<{width}}  "
        out.print(_lines(finding.what, first), style=_STYLES[finding.state])
        if finding.remedy:
            out.print(
                _lines(finding.remedy, f"{'':<{len(first)}}→ "), style="bold" if finding.state == "wrong" else None
            )
    out.print(_verdict(found), style="bold")


def _verdict(found: list[Finding]) -> str:
    wrong, looks = (sum(finding.state == state for finding in found) for state in ("wrong", "look"))
    if not wrong and not looks:
        return "Everything works."
    verdict = f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong" if wrong else "Nothing is wrong"
    return f"{verdict}{f'; {looks} to look at' if looks else ''}."


def _lines(text: str, first: str) -> str:
    """A finding in lines that fit, all of it: a path that is cut cannot be copied."""
    from textwrap import fill

    under = " " * len(first)
    line = " ".join(printable(text).split())
    return fill(
        line, columns(), initial_indent=first, subsequent_indent=under, break_long_words=False, break_on_hyphens=False
    )
