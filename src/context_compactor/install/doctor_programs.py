"""Which programs are there: this one, those that settings call, and the agents."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from context_compactor import __version__
from context_compactor.agents.known import Agent
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, ok, wrong
from context_compactor.install.doctor_sources import Registered, hooks_of, sources
from context_compactor.install.ours import hook_command
from context_compactor.install.program import BY_NAME, NAME, Command, is_fleeting, launched

AREA = "versions"
COMMANDS = {"claude-code": "claude", "codex": "codex"}
_SECONDS = 10.0
_LONGEST = 80


def programs(case: Case) -> Iterator[Finding]:
    """Versions of everything that has to work together."""
    own = shlex.join(case.command) or "no script"
    yield ok(AREA, f"compactor {__version__} on Python {platform.python_version()} ({own})")
    for agent in case.agents:
        ours = [hook for hook in hooks_of(sources(case, agent)) if hook.is_ours]
        if ours or case.is_named:
            yield _agent(case, agent)
        by_command = {(hook_command(hook.entry) or BY_NAME, hook.source.scope): hook for hook in ours}
        for (command, _), hook in by_command.items():
            yield _called(case, agent, command, hook)


def find_command(case: Case, command: Command) -> Command | None:
    """What runs for a command that settings name; None where it cannot be run. One without a path is looked for on the
    PATH, then where an install has written it down."""
    path = case.env.get("PATH")
    if command == BY_NAME and shutil.which(NAME, path=path) is None:
        command = launched(case.env) or command
    found = shutil.which(command[0], path=path)
    return (found, *command[1:]) if found else None


def may_run(case: Case, command: Command, scope: str) -> bool:
    """Whether to run a command that settings name. Those of a project may come from anybody."""
    found = find_command(case, command)
    known = [case.command, find_command(case, BY_NAME)]
    return found is not None and (scope in ("user", "local") or any(each and is_same(found, each) for each in known))


def is_same(one: Command, other: Command) -> bool:
    """Whether two commands run the same installation. A script may have several names; the Python of an environment is
    a link to one that many have in common, so that is taken by its name."""
    resolved = os.path.realpath if len(one) == 1 else os.path.abspath
    return bool(one and other) and resolved(one[0]) == resolved(other[0]) and one[1:] == other[1:]


def install_line(case: Case, agent: Agent, scope: str) -> str:
    """What to type so that this command is registered: its name, if that is what a shell finds by it."""
    named = shutil.which(NAME, path=case.env.get("PATH"))
    is_found = not case.command or (named is not None and is_same((named,), case.command))
    typed = NAME if is_found else shlex.join(case.command)
    return f"{typed} install {agent.name}{' --project' if scope == 'project' else ''}"


def version_of(command: Command, env: Mapping[str, str]) -> str:
    """What a program says for `--version`, on one line; nothing when it says nothing in time."""
    try:
        ran = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env=dict(env),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = ran.stdout.decode("utf-8", "replace").strip().splitlines()
    return lines[0][:_LONGEST] if lines and ran.returncode == 0 else ""


def _agent(case: Case, agent: Agent) -> Finding:
    name = COMMANDS[agent.name]
    found = shutil.which(name, path=case.env.get("PATH"))
    if found is None:
        return look(AREA, f"`{name}` is not found on the PATH", f"Install {agent.title}, or add its folder to the PATH")
    version = version_of((found,), case.env)
    if not version:
        return look(AREA, f"{found} does not tell its version", f"Run `{name} --version` and see what it says")
    return ok(AREA, f"{agent.title}: {version} ({found})")


def _called(case: Case, agent: Agent, command: Command, hook: Registered) -> Finding:
    """The program that an agent is told to run."""
    where = f"{agent.title} calls {shlex.join(command)} ({hook.source.scope})"
    again = install_line(case, agent, hook.source.scope)
    found = find_command(case, command)
    if found is None:
        return wrong(AREA, f"{where}, {why_not(command)}", again)
    if is_same(found, case.command):
        if is_fleeting(found) and command != BY_NAME:
            return look(AREA, f"{where}, which may be gone tomorrow", f"Install the package for good, then {again}")
        return ok(AREA, f"{where}, which is this program")
    if not may_run(case, command, hook.source.scope):
        return look(AREA, f"{where}, which is another program than this one", f"Look whose it is, or {again}")
    return _other(case, found, where, again, is_named=command == BY_NAME)


def why_not(command: Command) -> str:
    """Why a command does not run, after its name."""
    if command == BY_NAME:
        return "which is not on the PATH, and no install has written down where it is"
    return "which cannot be run" if Path(command[0]).exists() else "which is not there"


def _other(case: Case, found: Command, where: str, again: str, *, is_named: bool) -> Finding:
    """A command that is not this one, but may be run."""
    version = version_of(found, case.env)
    if not version:
        return wrong(AREA, f"{where}, which does not run", again)
    if version != f"{NAME} {__version__}":
        return look(AREA, f"{where}, which is {version}; this is {__version__}", f"Update one of them, then {again}")
    if is_named:
        return ok(AREA, f"{where}, which is {found[0]}, of the same version as this one")
    return look(AREA, f"{where}; this is {shlex.join(case.command)}, of the same version", f"{again}, to use this one")
